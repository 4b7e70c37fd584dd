package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Tests of the values without I/O.

func TestBackoff(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name   string
		ended  string // r: a stream ends after a response; x: before a response; s: a second passes before that
		random float64
		want   time.Duration
	}{
		{"the first", "x", 0.5, time.Second},
		{"the least", "x", 0, 800 * time.Millisecond},
		{"the second", "xx", 0.5, 1600 * time.Millisecond},
		{"the most", strings.Repeat("x", 100), 0.5, 2 * time.Minute},
		{"the most with jitter", strings.Repeat("x", 100), 1, 144 * time.Second},
		{"after a response", "r", 0.5, 0},
		{"after many and a response", "xxxxxr", 0.5, 0},
		{"after a response, and a stream without a response", "xxxxxrx", 0.5, time.Second},
		{"twice at once", "rr", 0, time.Second},
		{"three times at once", "rrr", 0, time.Second},
		{"and again", "rsr", 0.5, 0},
	} {
		t.Run("CLI-4 "+c.name, func(t *testing.T) {
			var b reconnect
			var got time.Duration
			now := start
			for _, e := range c.ended {
				switch e {
				case 's':
					now = now.Add(time.Second)
					continue
				case 'r':
					b.answered()
				}
				next := b.ended(now, e == 'r', c.random)
				got = next.Sub(now)
				now = next
			}
			if d := got - c.want; d < -time.Microsecond || d > time.Microsecond {
				t.Errorf("%v, not %v", got, c.want)
			}
		})
	}
}

func TestFallbackValue(t *testing.T) {
	down := func(list ...int) func(int) bool {
		return func(i int) bool { return slices.Contains(list, i) }
	}
	var f fallback
	steps := []struct {
		do   func() bool
		did  bool
		want int
	}{
		{func() bool { return f.advance(3, down()) }, false, 0},
		{func() bool { return f.advance(3, down(1)) }, false, 0},
		{func() bool { return f.advance(3, down(0)) }, true, 1},
		{func() bool { return f.advance(3, down(0)) }, false, 1},
		{func() bool { return f.responded(2) }, false, 1},
		{func() bool { return f.responded(1) }, false, 1},
		{func() bool { return f.responded(0) }, true, 0},
		{func() bool { return f.advance(3, down(0, 1)) }, true, 2},
		{func() bool { return f.advance(3, down(0, 1, 2)) }, false, 2},
		{func() bool { return f.responded(1) }, true, 1},
	}
	for i, s := range steps {
		if did := s.do(); did != s.did || f.active != s.want {
			t.Fatalf("CLI-10 step %d: %v, server %d in charge", i, did, f.active)
		}
	}
}

// The mailbox keeps the last event of each name, and an Updated event before it whose resource is still
// in use.
func TestMailbox(t *testing.T) {
	res := func(s string) *xds.Resource { return xds.NewResource(xds.Cluster, "x", []byte(s)) }
	ev := func(s string) (ev Event) { // "a+1" updated, "a-" removed, "a!1" refused with 1 in use, "a!" refused, "a~" unavailable, "*." complete
		ev.Name = s[:1]
		ev.Kind = map[byte]Kind{'+': Updated, '-': Removed, '!': Refused, '~': Unavailable, '.': Complete, '?': Absent}[s[1]]
		if len(s) > 2 {
			ev.Resource = res(s[2:])
		}
		return ev
	}
	spell := func(ev Event) string {
		s := ev.Name + map[Kind]string{Updated: "+", Removed: "-", Refused: "!", Unavailable: "~", Complete: ".", Absent: "?"}[ev.Kind]
		if ev.Resource != nil {
			s += string(ev.Resource.Body)
		}
		return s
	}
	for _, c := range []struct{ puts, want string }{
		{"a+1 b+1 a+2", "a+2 b+1"},
		{"a+1 a!1", "a+1 a!1"},
		{"a+1 a!1 a!1", "a+1 a!1"},
		{"a+1 a!1 a+2", "a+2"},
		{"a+1 a!", "a!"},
		{"a+1 a~", "a~"},
		{"a+1 take a!1", "a+1 a!1"},
		{"a+1 a!1 take a!1", "a+1 a!1"},
		{"a!1", "a!1"},
		{"a+1 a-", ""},            // no event was taken: none is needed
		{"a+1 a- a+2", "a+2"},     //
		{"a+1 take a-", "a+1 a-"}, // the event was taken
		{"a+1 take a- a+2 a-", "a+1 a-"},
		{"a+1 a! take a-", "a! a-"},
		{"a+1 a!1 take a-", "a+1 a-"}, // the update was taken
		{"k+1 k-", "k-"},              // a name of the watch's own
		{"k+1 k?", "k?"},
		{"*. a+1 *.", "a+1 *."},
		{"a+1 *. b+1 *.", "a+1 b+1 *."},
		{"a+1 take b+1 take c+1", "a+1 b+1 c+1"},
		{"a+1 b+1 c+1 b-", "a+1 c+1"},
		{"a+1 b+1 c+1 c-", "a+1 b+1"},
		{"a+1 b+1 c+1 a-", "b+1 c+1"},
	} {
		t.Run(c.puts, func(t *testing.T) {
			m := newMailbox()
			var got []string
			told := map[string]bool{}
			take := func() bool {
				ev, ok := m.take()
				if ok {
					got = append(got, spell(ev))
				}
				return ok
			}
			for p := range strings.FieldsSeq(c.puts) {
				if p == "take" {
					take()
					continue
				}
				e := ev(p)
				m.put(e, !told[e.Name], e.Name == "k")
				told[e.Name] = e.Kind != Removed && e.Kind != Absent
			}
			for take() {
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%s, not %s", s, c.want)
			}
			if len(m.slots) > 0 || m.first != nil || m.last != nil {
				t.Error("something is left")
			}
		})
	}
}

// The mailbox of a watch that takes no events grows with the present names, not with past ones.
func TestMailboxIsBounded(t *testing.T) {
	w, err := newWatch(xds.Cluster, []string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	tab := newTable(xds.Cluster)
	tab.addWatch(w, "*")
	say := func(kind Kind, name string, i int) {
		e := tab.entry(name)
		r := xds.NewResource(xds.Cluster, name, fmt.Append(nil, i))
		tab.change(e, func() {
			if e.res, e.state, e.fault = r, Acked, nil; kind == Removed {
				e.dropResource()
				e.state = DoesNotExist
			}
			if kind == Refused {
				e.state, e.fault = Nacked, &fault{kind: Refused, err: errors.New("x")}
			}
		})
		ev := tab.event(e)
		ev.Kind = kind
		tab.notify(e, ev, true)
		tab.dropIfIdle(e)
	}
	for i := range 100_000 {
		name := fmt.Sprint("n", i)
		say(Updated, name, i)
		say(Refused, name, i)
		say(Removed, name, i)
		say(Updated, "stays", i)
	}
	if n := len(w.box.slots); n > 2 {
		t.Errorf("the mailbox holds %d names", n)
	}
	if n := len(tab.entries); n > 2 {
		t.Errorf("the table holds %d names", n)
	}
}

// It does not grow without limit with names of resources that were only refused, either.
func TestMailboxLimitsUnusableNames(t *testing.T) {
	m := newMailbox()
	for i := range 200 {
		m.put(Event{Kind: Refused, Name: fmt.Sprint(i, strings.Repeat("x", 10<<10)), Err: errors.New("x")}, true, false)
	}
	if n := len(m.slots); n == 0 || n*10<<10 > maxUnusable {
		t.Errorf("the mailbox holds %d names", n)
	}
}

func TestNewDoesNotChangeCallersNode(t *testing.T) {
	list := make([]string, 0, 9)
	nodeWithDefaults(&xds.Node{ClientFeatures: list})
	if s := list[:1][0]; s != "" {
		t.Errorf("the caller's list has %q", s)
	}
}

// An inert transport is never used.
type inert struct{ Transport }

func (*inert) Close() error { return nil }

func TestNewCopiesConfig(t *testing.T) {
	servers := []Server{{Transport: &inert{}}}
	cfg := Config{Servers: servers, Authorities: map[string]Authority{"x": {Servers: servers}}}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	servers[0] = Server{}
	cfg.Authorities["y"] = Authority{}
	if c.cfg.Servers[0].Transport == nil || c.cfg.Authorities["x"].Servers[0].Transport == nil || len(c.cfg.Authorities) != 1 {
		t.Errorf("%+v", c.cfg)
	}
	// A watch that fails leaves nothing.
	w, err := newWatch(xds.Cluster, []string{"a", "xdstp://unknown/envoy.config.cluster.v3.Cluster/b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.addWatch(t.Context(), w); err == nil {
		t.Error("no error")
	}
	left := make(chan int, 1)
	c.do(func() { left <- len(c.authorities) })
	if n := <-left; n != 0 {
		t.Errorf("%d authorities are left", n)
	}
}

func TestIsGlob(t *testing.T) {
	for name, want := range map[string]bool{
		"*": true, "a": false, "a/*": false, "xdstp://a/t/*": true, "xdstp://a/t/x/*?k=v": true, "xdstp://a/t/x/*#d": true, "xdstp://a/t/x": false, "": false,
	} {
		if isGlob(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	for name, want := range map[string]string{"a": "-", "xdstp:///t/x": "", "xdstp://a/t/x": "a", "xdstp://a": "a", "xdstp://a?x": "a", "xdstp://": "", "xdstp:a": "-"} {
		got, ok := authorityOf(name)
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%q: %q, not %q", name, got, want)
		}
	}
}
