package protocol

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// SOTW-3: a late or repeated answer changes only its own response.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		answers string // to three responses; "!" refuses
		want    string // the list then; "x" is superseded
	}{
		{"", "1 2 3"},
		{"1", "2 3"},
		{"2", "1x 3"},
		{"3", "1x 2x"},
		{"3 1", "2x"},
		{"2!", "1 3"}, // a refused one replaces nothing
		{"3!", "1 2"},
		{"2 2 2", "1x 3"},
		{"1 2 3", ""},
		{"9", "1 2 3"},
		{"bad", "1 2 3"},
	} {
		u := newSubscription(xds.Route)
		s := &Session{variant: xds.Delta, now: time.Unix(1, 0), view: xds.Tables{}}
		for n := range uint64(3) {
			s.deliver(u, &delivery{parts: []part{{nonce: n + 1, lo: "a", hi: "z"}}, cargo: cargo{Items: itemsOf("a:->a1")}})
		}
		answer(s, u, c.answers)
		var out []string
		for _, d := range u.deliveries {
			n := fmt.Sprint(d.last())
			if d.superseded {
				n += "x"
			}
			out = append(out, n)
		}
		if got := strings.Join(out, " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.answers, got, c.want)
		}
		newest := !strings.Contains(c.answers, "3")
		if u.unacked != newest {
			t.Errorf("%q: unacked %v", c.answers, u.unacked)
		}
	}
}

// The event of an answer, and the refusals after it.
func TestSettleEvents(t *testing.T) {
	ack := func(nonce string) xds.Request { return xds.Request{Nonce: nonce} }
	nack := func(nonce string) xds.Request {
		return xds.Request{Nonce: nonce, Version: "old", Error: &xds.Status{Message: "b is bad"}}
	}
	for _, c := range []struct {
		name    string
		variant xds.Variant
		answers []xds.Request // to two responses, of three and two seconds ago
		want    string        // the event of the last one; the number of refusals
	}{
		{"SOTW-3 the newest", xds.SotW, []xds.Request{ack("2")}, "acked 2 v2 2s settled; 0"},
		{"SOTW-3 an older one", xds.SotW, []xds.Request{ack("1")}, "acked 1 v1 3s; 0"},
		{"SOTW-4 the newest is refused", xds.SotW, []xds.Request{nack("2")}, "nacked 2 v2 2s settled refuses [b a] old; 1"},
		{"SOTW-4 an older one is refused", xds.SotW, []xds.Request{nack("1")}, "nacked 1 v1 3s refuses [b a] old; 1"},
		{"SOTW-4 accepted after one that was refused", xds.SotW, []xds.Request{nack("1"), ack("2")}, "acked 2 v2 2s settled; 0"},
		{"SOTW-4 accepted before one that was refused", xds.Delta, []xds.Request{nack("2"), ack("1")}, "acked 1 v1 3s refuses; 1"},
		{"SOTW-3 the newest a second time", xds.SotW, []xds.Request{ack("2"), ack("2")}, "; 0"},
		{"SOTW-3 an older one a second time", xds.Delta, []xds.Request{ack("2"), ack("1"), ack("1")}, "stale 1; 0"},
		{"SOTW-3 a nonce that was never sent", xds.SotW, []xds.Request{ack("7")}, "stale 7; 0"},
		{"SOTW-20 a nonce that is not a number", xds.SotW, []xds.Request{ack("x")}, "stale x; 0"},
		{"SOTW-20 the nonce 0", xds.SotW, []xds.Request{ack("0")}, "stale 0; 0"},
		{"SOTW-3 refused after a later one was accepted, which answers both", xds.SotW, []xds.Request{ack("2"), nack("1")}, "nacked 1 v1 3s [] old; 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewSession(c.variant, nil, xds.Tables{}, Options{})
			u := newSubscription(xds.Route)
			s.Advance(time.Unix(100, 0))
			for n := range uint64(2) {
				u.add(entry{Name: "a", Told: stampOf("a1"), Named: true}, entry{Name: "b", Told: stampOf("b1"), Named: true})
				s.deliver(u, &delivery{cargo: cargo{Items: itemsOf("a:->a1 b:->b1")}, version: fmt.Sprint("v", n+1), sent: s.now, parts: []part{{nonce: n + 1, lo: "a", hi: "b"}}})
				s.Advance(s.now.Add(time.Second))
			}
			s.Advance(s.now.Add(time.Second))
			told := ""
			for _, a := range c.answers {
				u.settle(s, a)
				told = ""
				for e := range s.Events() {
					told = fmt.Sprint(e.Kind, " ", e.Nonce)
					if e.Kind != Stale {
						told += fmt.Sprint(" ", e.Version, " ", e.Took)
					}
					if e.Settled {
						told += " settled"
					}
					if e.Refuses {
						told += " refuses"
					}
					if e.Kind == Nacked {
						told += fmt.Sprint(" ", e.Names, " ", e.InUse)
					}
				}
			}
			if got := fmt.Sprintf("%s; %d", told, len(u.refusals)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if err := u.checkRecord(); err != nil {
				t.Error(err)
			}
		})
	}
}

// DELTA-13: each message has its own answer. The client may accept one message of a split response
// and refuse another. The response stays listed until all messages are answered.
func TestSettlePartByPart(t *testing.T) {
	for _, c := range []struct {
		answers string
		listed  bool
		open    string // names without an answer
		refused string
	}{
		{"", true, "a b c", ""},
		{"1", true, "b c", ""},
		{"2!", true, "a c", "b"},
		{"1 3", true, "b", ""},
		{"3! 1", true, "b", "c"},
		{"1 2 3", false, "", ""},
		{"3! 2! 1!", false, "", "a b c"},
		{"2 1! 3", false, "", "a"},
	} {
		s := NewSession(xds.Delta, nil, xds.Tables{}, Options{})
		u := newSubscription(xds.Route)
		d := delivery{cargo: cargo{Items: itemsOf("a:->a1 b:->b1 c:->c1")}}
		for i, name := range []string{"a", "b", "c"} {
			u.add(entry{Name: name, Told: stampOf(name + "1"), Named: true})
			d.addPart(part{nonce: uint64(i + 1), lo: name, hi: name})
		}
		s.deliver(u, &d)
		answer(s, u, c.answers)
		var open, refused []string
		for _, name := range []string{"a", "b", "c"} {
			if d, _ := u.unanswered(name, 0); d != nil {
				open = append(open, name)
			}
			if u.refuses(name) {
				refused = append(refused, name)
			}
		}
		if got := strings.Join(open, " "); got != c.open || len(u.deliveries) > 0 != c.listed || u.unacked != c.listed {
			t.Errorf("DELTA-13: %q: open parts %q, listed: %v, unanswered: %v", c.answers, got, len(u.deliveries) > 0, u.unacked)
		}
		if got := strings.Join(refused, " "); got != c.refused {
			t.Errorf("DELTA-13: %q: refused names %q", c.answers, got)
		}
	}
}

// SOTW-3: a client without subscriptions need not answer, and nothing waits for its answer.
func TestNoAnswerOwedWithoutSubscription(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"a"}})
	l.drain()
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"a", "b"}})
	l.want("")
	u := l.sub(xds.Endpoint)
	if !u.unacked || !u.stalled || l.Answered(time.Time{}) {
		t.Errorf("SOTW-3: unanswered %v, stalled %v", u.unacked, u.stalled)
	}
	l.ask(xds.Request{Type: xds.Endpoint, Names: nil})
	if u.unacked || u.stalled || !l.Answered(time.Time{}) || !l.Deadline().IsZero() {
		t.Errorf("SOTW-3: unanswered %v, stalled %v, wanted in %v", u.unacked, u.stalled, l.Deadline().Sub(l.now))
	}
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"b"}})
	l.want("EDS b@1")
}

// answer sends answers: nonces are ACKs, with a "!" NACKs.
func answer(s *Session, u *subscription, answers string) {
	for a := range strings.FieldsSeq(answers) {
		nonce, no := strings.CutSuffix(a, "!")
		req := xds.Request{Nonce: nonce}
		if no {
			req.Error = &xds.Status{}
		}
		u.settle(s, req)
	}
}
