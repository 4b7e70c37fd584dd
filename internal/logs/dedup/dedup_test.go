package dedup

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A book counts lines.
type book struct {
	Counter
	lines           int
	counted, counts atomic.Int32
}

func (b *book) say(source, why string, most int) bool {
	now := b.Allow(source, why, most, func(n int, _ []string) { b.counts.Add(1); b.counted.Add(int32(n)) })
	if now {
		b.lines++
	}
	return now
}

func (b *book) want(t *testing.T, lines, counts, counted int) {
	t.Helper()
	if c, n := int(b.counts.Load()), int(b.counted.Load()); b.lines != lines || c != counts || n != counted {
		t.Errorf("%d lines, and %d that count %d; want %d, %d, %d", b.lines, c, n, lines, counts, counted)
	}
}

// remembered returns how many reasons and sources are in memory.
func (b *book) remembered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) != b.order.Len() {
		return -1
	}
	return max(len(b.open), len(b.shares))
}

func within(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

func TestSay(t *testing.T) {
	within(t, "OBS-2 the first few sources of a repeated reason are named, each once", func(t *testing.T) {
		var c Counter
		var named []string
		for _, source := range []string{"a", "b", "b", "c", "a", "d", "e", "f"} {
			c.Allow(source, "no", 1, func(_ int, by []string) { named = by })
		}
		if pass(Within); fmt.Sprint(named) != "[b c a d e]" {
			t.Errorf("%q are named", named)
		}
	})
	within(t, "SAFE-2 a reason has one line, and then a line with the count of each period", func(t *testing.T) {
		var b book
		for i := range 3 {
			for range 5 {
				b.say(fmt.Sprint("node-", i), "no", 1)
			}
		}
		b.want(t, 1, 0, 0)
		pass(Within)
		b.want(t, 1, 1, 14)
		b.say("node-1", "no", 1)
		pass(Within)
		b.want(t, 1, 2, 15)
		pass(Within)
		b.say("node-1", "no", 1)
		b.want(t, 2, 2, 15)
		pass(Within)
		b.want(t, 2, 2, 15)
		if n := b.remembered(); n != 0 {
			t.Errorf("%d are remembered for ever", n)
		}
	})
	within(t, "OBS-3 a few lines, and one line with the count of the others", func(t *testing.T) {
		var b book
		for range 30 {
			b.say("n", "connected", 20)
		}
		b.want(t, 20, 0, 0)
		pass(Within)
		b.want(t, 20, 1, 10)
		for range 30 { // the lines continue: the line with the count is the first of the new period
			b.say("n", "connected", 20)
		}
		b.want(t, 39, 1, 10)
		pass(Within)
		b.want(t, 39, 2, 21)
		pass(Within)
	})
	within(t, "OBS-2 a flood of reasons from one source does not hide lines of another", func(t *testing.T) {
		var b book
		for i := range 3 * MaxReasons {
			b.say("flood", fmt.Sprint("made up ", i), 1)
		}
		b.want(t, Share+1, 0, 0)
		if !b.say("real", "bad cluster", 1) || !b.say("real", "bad route", 1) {
			t.Error("it is hidden")
		}
		pass(Within)
		b.want(t, Share+3, 1, 3*MaxReasons-Share-1)
		pass(Within)
		if n := b.remembered(); n != 0 {
			t.Errorf("%d are remembered for ever", n)
		}
	})
	within(t, "OBS-2 nor does a flood from many sources, and memory is bounded", func(t *testing.T) {
		var b book
		b.say("first", "old", 1)
		b.say("second", "old", 1)
		for i := range 3 * MaxReasons {
			b.say(fmt.Sprint("flood-", i), fmt.Sprint("made up ", i), 1)
		}
		if n := b.remembered(); n != MaxReasons {
			t.Errorf("%d are remembered", n)
		}
		b.want(t, 3*MaxReasons+1, 1, 1) // the count is reported when its reason is evicted
		if !b.say("real", "bad cluster", 1) {
			t.Error("it is hidden")
		}
		if b.say("real", "bad cluster", 1) {
			t.Error("a repeated reason gets a second line")
		}
		pass(Within)
		b.want(t, 3*MaxReasons+2, 2, 2)
		pass(Within)
		if n := b.remembered(); n != 0 {
			t.Errorf("%d are remembered for ever", n)
		}
	})
	within(t, "OBS-2 reasons that others gave first do not count for a source's share", func(t *testing.T) {
		var b book
		b.say("other", "theirs", 1)
		for i := range Share {
			b.say("one", fmt.Sprint("own ", i), 1)
		}
		if b.say("one", "theirs", 1) {
			t.Error("a repeated reason gets a second line")
		}
		pass(2 * Within)
		b.want(t, Share+1, 1, 1)
	})
	within(t, "OBS-2 a reason that was just counted is not the oldest", func(t *testing.T) {
		var b book
		b.say("first", "goes on", 1)
		b.say("first", "goes on", 1)
		pass(Within / 2)
		for i := range MaxReasons - 1 {
			b.say(fmt.Sprint("source-", i), fmt.Sprint("once ", i), 1)
		}
		pass(Within / 2)
		b.want(t, MaxReasons, 1, 1)
		b.say("last", "one more", 1)
		if b.say("first", "goes on", 1) {
			t.Error("the reason was forgotten before older ones")
		}
		pass(2 * Within)
	})
	within(t, "OBS-2 a timer of an evicted reason reports nothing", func(t *testing.T) {
		var b book
		b.say("first", "old", 1)
		old := b.order.Front().Value.(*repeated)
		for i := range MaxReasons {
			b.say(fmt.Sprint("flood-", i), fmt.Sprint("made up ", i), 1)
		}
		b.say("first", "old", 1) // anew
		b.expire(old)            // the timer of the old reason had fired when the reason was evicted
		if b.say("first", "old", 1) {
			t.Error("the new reason is forgotten")
		}
		pass(2 * Within)
		if n := b.remembered(); n != 0 {
			t.Errorf("%d are remembered for ever", n)
		}
	})
	within(t, "report may log more, and the newest report is called", func(t *testing.T) {
		var c Counter
		var told []string
		for _, who := range []string{"line", "first", "last"} {
			c.Allow("n", "no", 1, func(n int, _ []string) {
				c.Allow("n", "another", 1, nil)
				told = append(told, fmt.Sprint(who, " ", n))
			})
		}
		pass(Within)
		if len(told) != 1 || told[0] != "last 2" {
			t.Error(told)
		}
		pass(2 * Within)
	})
	within(t, "SAFE-8 report may panic", func(t *testing.T) {
		var c Counter
		for range 2 {
			c.Allow("n", "no", 1, func(int, []string) { panic("a logger") })
		}
		pass(2 * Within)
	})
}
