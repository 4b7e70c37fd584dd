package protocol

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// DELTA-3: new names are answered though a response is unanswered, until as many
// responses are as are listed; those that were dealt with do not count.
func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		acks string // nonces that are answered, all at the end
		want bool   // the next subscription is answered
	}{
		{"", false}, {"1", true}, {"2", true}, {"3", true}, {"4", true},
	} {
		l := newLine(t, xds.Delta, xds.Endpoint, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, numbered(10)...)})
		for _, n := range numbered(maxDeliveries) {
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{n}})
			l.want("EDS " + n + "@1")
		}
		if c.acks != "" {
			l.ask(xds.Request{Type: xds.Endpoint, Nonce: c.acks})
		}
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"name-00009"}})
		if got := l.said() != ""; got != c.want {
			t.Errorf("answered %q: it is told: %v", c.acks, got)
		}
		if c.want {
			continue
		}
		if next := l.Deadline(); !next.Equal(l.now.Add(patience)) {
			t.Errorf("SAFE-2: woken in %v", next.Sub(l.now))
		}
		l.wait(patience)
		l.want("EDS name-00009@1")
	}
}

// SAFE-1: what is told anew, waits or is an exception to the wildcard has an entry
// only until that is over.
func TestExceptionsEnd(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"), xds.Listener.URL: tableOf(xds.Listener, "l", "m"),
	})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Listener})
	l.settle()
	entries := func(why string, want int) {
		t.Helper()
		if n := l.sub(xds.Listener).names.len(); n != want {
			t.Fatalf("%s: %d entries", why, n)
		}
	}
	entries("all is told", 0)
	l.commit(xds.Cluster, resources(1, "z"))
	l.commit(xds.Listener, []*xds.Resource{resource("l", 2, xds.Ref{Type: xds.Cluster, Name: "z"}), resource("m", 2)})
	l.want("CDS z@1, LDS m@2")
	entries("l waits for z", 1)
	l.ack(xds.Listener)
	l.ack(xds.Cluster)
	l.want("LDS l@2")
	l.ack(xds.Listener)
	l.commit(xds.Listener, resources(3, "m"))
	l.want("LDS m@3")
	entries("l is told", 0)
	l.nack(xds.Listener)
	l.commit(xds.Listener, resources(4, "m"))
	l.settle()
	l.commit(xds.Listener, resources(5, "m"))
	l.settle()
	entries("m was refused, told anew and accepted", 0)
}

// DELTA-4: whoever asks for everything again is told everything again, also what
// has to wait for a while.
func TestWaitsWhenAskedAgain(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Cluster.URL:  tableOf(xds.Cluster, "x"),
		xds.Listener.URL: xds.NewTable(xds.Listener).With([]*xds.Resource{resource("l", 1, xds.Ref{Type: xds.Cluster, Name: "x"}), resource("m", 1)}),
	})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"*"}})
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"*"}})
	l.settle()
	l.commit(xds.Cluster, resources(2, "x"))
	l.want("CDS x@2")
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"*"}})
	l.want("LDS m@1")
	l.ack(xds.Listener)
	l.ack(xds.Cluster)
	l.want("LDS l@1")
}

// SAFE-2: only a response that is unanswered blocks, and only until patience is
// over, or if an answer is to be expected.
func TestBlocked(t *testing.T) {
	for _, c := range []struct {
		name    string
		variant xds.Variant
		do      func(s *Session, u *subscription)
		want    bool
	}{
		{"SOTW-3 unanswered", xds.SotW, func(*Session, *subscription) {}, true},
		{"DELTA-12 unanswered", xds.Delta, func(*Session, *subscription) {}, true},
		{"SOTW-3 asked for more", xds.SotW, func(_ *Session, u *subscription) { u.asked = true }, true},
		{"DELTA-3 asked for more", xds.Delta, func(_ *Session, u *subscription) { u.asked = true }, false},
		{"ADS-6 patience is over", xds.SotW, func(s *Session, _ *subscription) { s.now = s.now.Add(patience) }, false},
		{"ADS-6 it cannot be answered", xds.SotW, func(_ *Session, u *subscription) { u.deliveries[0].stuck = 1 }, false},
		{"ADS-6 it could not be answered, and was dealt with", xds.SotW, func(s *Session, u *subscription) {
			u.deliveries[0].stuck, u.deliveries[0].superseded = 1, true
			u.deliver(s, &delivery{sent: s.now, parts: []part{{nonce: 2}}})
		}, true},
		{"TTL-3 a heartbeat in delta", xds.Delta, func(_ *Session, u *subscription) { u.deliveries[0].beats = []*xds.Resource{} }, false},
		{"TTL-3 a world told as a heartbeat", xds.SotW, func(_ *Session, u *subscription) { u.deliveries[0].beats = []*xds.Resource{} }, true},
	} {
		s := &Session{variant: c.variant, now: time.Unix(100, 0)}
		u := &subscription{typ: xds.Cluster}
		u.deliver(s, &delivery{sent: s.now, parts: []part{{nonce: 1}}})
		c.do(s, u)
		if got := s.blocked(u); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TTL-3: a heartbeat that waits for an answer leaves when patience is over.
func TestWokenForABeat(t *testing.T) {
	a := resource("a", 1)
	a.TTL = 30 * time.Second
	a.Seal("1")
	l := newLine(t, xds.Delta, xds.Endpoint, Options{ForceTTL: true, Grace: -1}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "b").With([]*xds.Resource{a})})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b"}})
	l.settle()
	beat := l.Deadline()
	l.wait(beat.Sub(l.now) - time.Second)
	l.commit(xds.Endpoint, resources(2, "b"))
	l.want("EDS b@2")
	if after, said := l.next(); after != patience || said != "EDS ~a" {
		t.Error(after, said)
	}
}

// ADS-3: of what stays nothing is said, also when what leaves beside it is told. Each is
// listed once.
func TestToldOnceBesideWhatStays(t *testing.T) {
	l := withdrawing2(t, xds.Delta, "*", "y")
	l.commit(xds.Route, route(2, "z"))
	l.want("RDS r@2")
	l.commit(xds.Cluster, nil, "x", "y")
	l.want("CDS -y")
	if items := l.sub(xds.Cluster).deliveries[0].items; len(items) != 2 {
		t.Errorf("listed are %v", items)
	}
}

// SAFE-1: while nothing may be said, a request costs what it asks for, and not all that
// waits.
func TestUnansweredNamesAreCheap(t *testing.T) {
	run := func(n int, have ...string) time.Duration {
		names := numbered(n)
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, have...)})
		took := computing(func() {
			for i := 0; i < n; i += 2 {
				l.talk(xds.Request{Type: xds.Endpoint, Subscribe: names[i : i+2]})
			}
		})
		l.wait(patience)
		if all := l.drain(); len(all) != 1 || len(all[0].Upserts)+len(all[0].Removed) != n-2*maxDeliveries {
			t.Errorf("DELTA-4: %d responses to what has waited", len(all))
		}
		return took
	}
	have := numbered(4000)
	t.Run("there", func(t *testing.T) {
		grows(t, 25, func() time.Duration { return run(500, have...) }, func() time.Duration { return run(4000, have...) })
	})
	t.Run("not there", func(t *testing.T) {
		grows(t, 25, func() time.Duration { return run(500) }, func() time.Duration { return run(4000) })
	})
}

// SAFE-9: "What a client can make the server hold or do is bounded": beside a wildcard, too,
// a response costs what it says, and not what the client has asked for by name.
func TestNamesBesideAWildcardAreCheap(t *testing.T) {
	run := func(n int) func() time.Duration {
		return func() time.Duration {
			var rs []*xds.Resource
			for _, name := range numbered(n) {
				r := xds.NewResource(name, []byte(name))
				r.Refs, r.Aliases = []xds.Ref{}, []string{"alias of " + name}
				r.Seal("1")
				rs = append(rs, r)
			}
			l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: xds.NewTable(xds.Endpoint).With(rs)})
			nonce := l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*"}})
			return computing(func() {
				for _, r := range rs {
					nonce = l.talk(xds.Request{Type: xds.Endpoint, Nonce: nonce, Subscribe: r.Aliases})
				}
			})
		}
	}
	grows(t, 25, run(500), run(4000))
}
