package protocol

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// DELTA-3: new subscriptions are answered while a response is unanswered, until the list of
// unanswered responses is full. Superseded responses do not count.
func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		acks string // nonces answered, all at the end
		want bool   // the next subscription is answered
	}{
		{"", false}, {"1", true}, {"2", true}, {"3", true}, {"4", true},
	} {
		l := newLine(t, xds.Delta, xds.Endpoint, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, numbered(10)...)})
		for _, n := range numbered(maxInFlight) {
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{n}})
			l.want("EDS " + n + "@1")
		}
		if c.acks != "" {
			l.ask(xds.Request{Type: xds.Endpoint, Nonce: c.acks})
		}
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"name-00009"}})
		if got := l.said() != ""; got != c.want {
			t.Errorf("answered %q: a response is sent: %v", c.acks, got)
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

// SAFE-2: only an unanswered response blocks, only for the duration patience, and only if an ACK is
// expected.
func TestBlocked(t *testing.T) {
	for _, c := range []struct {
		name    string
		variant xds.Variant
		do      func(s *Session, u *subscription)
		want    bool
	}{
		{"SOTW-3 unanswered", xds.SotW, func(*Session, *subscription) {}, true},
		{"DELTA-12 unanswered", xds.Delta, func(*Session, *subscription) {}, true},
		{"SOTW-3 newly subscribed", xds.SotW, func(_ *Session, u *subscription) { u.asked = true }, true},
		{"DELTA-3 newly subscribed", xds.Delta, func(_ *Session, u *subscription) { u.asked = true }, false},
		{"ADS-6 patience is over", xds.SotW, func(s *Session, _ *subscription) { s.now = s.now.Add(patience) }, false},
		{"ADS-6 it cannot be answered", xds.SotW, func(_ *Session, u *subscription) { u.deliveries[0].stuck = true }, false},
		{"ADS-6 it could not be answered, and is settled", xds.SotW, func(s *Session, u *subscription) {
			u.deliveries[0].stuck, u.deliveries[0].superseded = true, true
			s.deliver(u, &delivery{sent: s.now, parts: []part{{nonce: 2}}})
		}, true},
		{"TTL-3 a heartbeat in delta", xds.Delta, func(_ *Session, u *subscription) { u.deliveries[0].beats = []*xds.Resource{} }, false},
		{"TTL-3 a full state as a heartbeat", xds.SotW, func(_ *Session, u *subscription) { u.deliveries[0].beats = []*xds.Resource{} }, true},
	} {
		s := &Session{variant: c.variant, now: time.Unix(100, 0)}
		u := newSubscription(xds.Cluster)
		s.deliver(u, &delivery{sent: s.now, parts: []part{{nonce: 1}}})
		c.do(s, u)
		if got := s.blocked(u); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TTL-3: a heartbeat that waits for an answer is sent after the duration patience.
func TestDeadlineSendsHeartbeat(t *testing.T) {
	a := resource("a", 1)
	a.TTL = 30 * time.Second
	a.Seal("1")
	l := newLine(t, xds.Delta, xds.Endpoint, Options{ForceTTL: true, Grace: -1}, xds.Tables{xds.Endpoint.URL: with(tableOf(xds.Endpoint, "b"), []*xds.Resource{a})})
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

// SAFE-1: while nothing may be sent, the cost of a request is the number of names in it, not the
// number of waiting names.
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
		if all := l.drain(); len(all) != 1 || len(all[0].Upserts)+len(all[0].Removed) != n-2*maxInFlight {
			t.Errorf("DELTA-4: %d responses for the waiting names", len(all))
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

// SAFE-9: "What a client can make the server hold or do is bounded". The cost of a response is its
// content, not the number of subscribed names, also with a wildcard.
func TestNamesBesideAWildcardAreCheap(t *testing.T) {
	run := func(n int) func() time.Duration {
		return func() time.Duration {
			var rs []*xds.Resource
			for _, name := range numbered(n) {
				r := xds.NewResource(nil, name, []byte(name))
				r.Refs, r.Aliases = []xds.Ref{}, []string{"alias of " + name}
				r.Seal("1")
				rs = append(rs, r)
			}
			l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), rs)})
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
