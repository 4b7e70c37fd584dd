package protocol

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// DELTA-15: waiting and removed names also count as changes of a refusal.
func TestDiffNames(t *testing.T) {
	d := diff{upserts: resources(1, "b"), waiting: []waiter{{name: "c"}}, removed: []string{"a"}, absent: []string{"a"}, kept: []string{"x"}}
	for some, want := range []string{"b", "b c", "b c a"} {
		var got []string
		for n := range d.names {
			if got = append(got, n); len(got) > some {
				break
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestMinus(t *testing.T) {
	for _, c := range []struct{ names, others, want string }{
		{"a b c", "", "a b c"}, {"a b c", "b", "a c"}, {"a b c", "a b c", ""}, {"", "a", ""}, {"a c", "b d", "a c"},
	} {
		names := strings.Fields(c.names)
		if got := strings.Join(minus(names, strings.Fields(c.others)), " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if strings.Join(names, " ") != c.names {
			t.Errorf("%+v: the shared list was changed", c)
		}
	}
}

// DELTA-7: each absence is reported to Envoy after its own delay. The absence of a name that Envoy
// held is reported at once.
func TestDelayedAbsence(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Route.URL: tableOf(xds.Route, "had")})
	l.ask(xds.Request{Type: xds.Route, Node: &xds.Node{UserAgentName: "envoy"}, Subscribe: []string{"a", "had"}})
	l.want("RDS had@1")
	l.ack(xds.Route)
	l.commit(xds.Route, nil, "had")
	l.want("RDS -had")
	l.ack(xds.Route)
	l.wait(15 * time.Second)
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"b"}})
	l.want("")
	if next := l.Deadline(); !next.Equal(l.now.Add(5 * time.Second)) {
		t.Errorf("woken in %v", next.Sub(l.now))
	}
	l.wait(5 * time.Second)
	l.want("RDS -a")
	l.ack(xds.Route)
	l.commit(xds.Route, resources(1, "b"))
	l.want("RDS b@1")
	l.ack(xds.Route)
	l.commit(xds.Route, nil, "b")
	l.want("RDS -b")
	if u := l.subs[0]; u.mute != nil {
		l.Advance(l.now)
		if u.mute != nil {
			t.Errorf("SAFE-1: %v is kept", u.mute.until)
		}
	}
}

// SAFE-1: delayed absences do not increase the cost of other inputs. The cost of the end of a delay
// does not depend on the number of all names.
func TestDelayedAbsenceIsCheap(t *testing.T) {
	run := func(n int) time.Duration {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Route.URL: xds.NewTable(xds.Route)})
		if err := l.Receive(xds.Request{Type: xds.Route, Node: &xds.Node{UserAgentName: "envoy"}}); err != nil {
			t.Fatal(err)
		}
		names := numbered(n)
		now := l.now
		took := computing(func() {
			for _, name := range names {
				now = now.Add(time.Microsecond)
				l.Advance(now)
				if err := l.Receive(xds.Request{Type: xds.Route, Subscribe: []string{name}}); err != nil {
					t.Fatal(err)
				}
			}
			for range n {
				now = l.Deadline()
				l.Advance(now)
			}
		})
		if u := l.subs[0]; u.mute != nil {
			t.Errorf("of %d names, %d are held back too long", n, len(u.mute.until))
		}
		if !now.Equal(l.now.Add(20*time.Second + time.Duration(n)*time.Microsecond)) {
			t.Errorf("the last of %d ends in %v", n, now.Sub(l.now))
		}
		return took
	}
	grows(t, 30, func() time.Duration { return run(1000) }, func() time.Duration { return run(8000) })
}

// SAFE-1: names that are subscribed again or dropped are not kept twice.
func TestDelayedAbsenceIsBounded(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Route.URL: xds.NewTable(xds.Route)})
	l.ask(xds.Request{Type: xds.Route, Node: &xds.Node{UserAgentName: "envoy"}, Subscribe: []string{"again", "stays"}})
	for i := range 1000 {
		l.wait(time.Microsecond)
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"again", fmt.Sprint(i)}, Unsubscribe: []string{fmt.Sprint(i - 1)}})
		l.want("")
	}
	if m := l.subs[0].mute; len(m.until) > 20 || cap(m.list) > 40 {
		t.Errorf("of 3 names %d are kept, %d times", len(m.until), len(m.list))
	}
	l.wait(l.Deadline().Sub(l.now))
	l.want("RDS -stays")
	l.ack(xds.Route)
	l.wait(l.Deadline().Sub(l.now))
	l.want("RDS -999 -again")
}
