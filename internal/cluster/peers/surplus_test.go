package peers

import (
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// A server above 1.3 times the mean ends some streams a second until it is near the mean, and begins
// again only above 1.3.
func TestSurplus(t *testing.T) {
	var s Surplus
	mine, seconds := 600, 0
	others := []int{300, 0}
	for ; ; seconds++ {
		n, _ := s.Next(mine, others, true)
		if n == 0 {
			break
		}
		if n > perSecond {
			t.Fatalf("%d in a second", n)
		}
		mine -= n
		others[1] += n
	}
	if mine > 330 || mine < 320 || seconds < 54 {
		t.Errorf("%d are left after %d s", mine, seconds)
	}
	for _, tt := range []struct {
		mine   int
		others []int
		sure   bool
	}{
		{380, []int{300, 300}, true}, // between
		{1000, nil, true},
		{1000, []int{0, 0}, false},
		{12, []int{3, 3}, true}, // too few to matter
		{0, []int{0}, true},
		{12, []int{math.MaxInt, 10, 10}, true},
	} {
		if n, _ := s.Next(tt.mine, tt.others, tt.sure); n != 0 {
			t.Errorf("%+v: %d", tt, n)
		}
	}
	if n, mean := s.Next(40, []int{0}, true); n != 1 || mean != 20 {
		t.Error(n, mean)
	}
	if n, _ := s.Next(40, []int{0}, false); n != 0 || s.ends {
		t.Error("streams end although sure is false")
	}
}

// No streams are ended for some minutes after a server has vanished, or while the store is away.
func TestNoStreamsEndWhileUnsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		r := server(b, "me", io.Discard, func() int { return 1 })
		put := func(id string) {
			b.put(prefix+id, []byte(`{"format":1,"id":"`+id+`","since":"2026-01-02T03:04:05Z","revision":"r1","streams":7}`))
		}
		put("a")
		put("b")
		is := func(n int, want bool) {
			t.Helper()
			r.look(t.Context())
			if others, sure := r.Streams(); len(others) != n || sure != want {
				t.Errorf("%d other servers, sure: %t", len(others), sure)
			}
		}
		is(2, true)
		b.put(prefix+"b", nil)
		is(1, false)
		time.Sleep(calm / 2)
		is(1, false)
		time.Sleep(calm)
		is(1, true)
		put("b")
		is(2, true)
		b.lose(true)
		is(2, false)
		b.lose(false)
		is(2, true)
		time.Sleep(time.Minute)
		if _, sure := r.Streams(); sure {
			t.Error("sure is true a minute after the last read")
		}
		b.put(prefix+"x", []byte("{"))
		is(2, false)
		b.put(prefix+"x", []byte(`{"format":1,"id":"x","since":"2026-01-02T03:04:05Z","streams":0}`))
		is(2, true) // it serves nothing yet
		b.put(prefix+"x", []byte(`{"format":1,"id":"x","since":"2026-01-02T03:04:05Z","revision":"r1","streams":9223372036854775807}`))
		is(2, false)
	})
}
