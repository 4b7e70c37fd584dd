package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// SAFE-1: zero Options have the documented defaults; other values stay.
func TestOptionsDefaults(t *testing.T) {
	got := NewSession(xds.Delta, nil, xds.Tables{}, Options{}).opts
	if got.MaxTypes != 64 || got.MaxNames != 100_000 || got.MaxNameLen != 4096 || got.MaxResponse != 3<<20 || got.Grace != 5*time.Second {
		t.Errorf("%+v", got)
	}
	got = NewSession(xds.Delta, nil, xds.Tables{}, Options{MaxTypes: 1, MaxNames: 2, MaxNameLen: 3, MaxResponse: 4, Grace: -1}).opts
	if got.MaxTypes != 1 || got.MaxNames != 2 || got.MaxNameLen != 3 || got.MaxResponse != 4 || got.Grace != -1 {
		t.Errorf("%+v", got)
	}
}

// Each limit allows exactly its value.
func TestLimits(t *testing.T) {
	opts := Options{MaxTypes: 2, MaxNames: 3, MaxNameLen: 4}
	sub := func(names ...string) xds.Request { return xds.Request{Type: xds.Endpoint, Subscribe: names} }
	for name, c := range map[string]struct {
		first, then xds.Request
		limit       bool
	}{
		"SAFE-1 as many names":                    {sub("a", "b"), sub("c"), false},
		"SAFE-1 one name more":                    {sub("a", "b"), sub("c", "d"), true},
		"SAFE-1 names given up make room":         {sub("a", "b"), xds.Request{Type: xds.Endpoint, Subscribe: []string{"c", "d"}, Unsubscribe: []string{"a"}}, false},
		"SAFE-1 names given up twice make one":    {sub("a", "b", "c"), xds.Request{Type: xds.Endpoint, Subscribe: []string{"d", "e"}, Unsubscribe: []string{"a", "a"}}, true},
		"SAFE-1 phantoms make no room":            {sub("a", "b"), xds.Request{Type: xds.Endpoint, Subscribe: []string{"c", "d"}, Unsubscribe: []string{"x"}}, true},
		"DELTA-4 names asked for again":           {sub("a", "b", "c"), sub("a", "b", "c"), false},
		"SOTW-14 a name listed twice counts once": {sub("a"), sub("b", "b", "c", "c"), false},
		"SAFE-1 the longest name":                 {sub("abcd"), sub("a"), false},
		"SAFE-1 a name that is too long":          {sub("a"), sub("abcde"), true},
		"SAFE-1 the longest that is stated":       {sub("a"), xds.Request{Type: xds.Route, Initial: []xds.Version{{Name: "abcd", Version: "1234"}}}, false},
		"SAFE-1 a stated name that is too long":   {sub("a"), xds.Request{Type: xds.Listener, Initial: []xds.Version{{Name: "abcde"}}}, true},
		"SAFE-1 a stated version too long":        {sub("a"), xds.Request{Type: xds.Listener, Initial: []xds.Version{{Version: "12345"}}}, true},
		"DELTA-10 what is stated later":           {sub("a"), xds.Request{Type: xds.Endpoint, Initial: []xds.Version{{Name: "abcde"}}}, false},
		"SAFE-1 one type more":                    {sub("a"), xds.Request{Type: xds.Route}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, xds.Delta, nil, opts, xds.Tables{})
			l.ask(c.first)
			err := l.Receive(c.then)
			if c.limit != errors.Is(err, ErrLimit) || !c.limit && err != nil {
				t.Error(err)
			}
			if err := l.Receive(xds.Request{Type: xds.Secret}); c.then.Type == xds.Route && !errors.Is(err, ErrLimit) {
				t.Error("a third type:", err)
			}
		})
	}
	l := newLine(t, xds.SotW, nil, opts, xds.Tables{})
	if err := l.Receive(xds.Request{Type: xds.Endpoint, Names: strings.Split("a b c a b c", " ")}); err != nil {
		t.Error("SOTW-14:", err)
	}
	for limit, req := range map[xds.Limit]xds.Request{
		xds.LimitNames:      {Type: xds.Endpoint, Names: strings.Split("a b c d", " ")},
		xds.LimitNameLength: {Type: xds.Route, Version: "12345"}, // a stated version
	} {
		err := l.Receive(req)
		if e, ok := errors.AsType[*xds.LimitError](err); !errors.Is(err, ErrLimit) || !ok || e.Limit != limit {
			t.Errorf("SAFE-1 %s: %v", limit, err)
		}
	}
	l = newLine(t, xds.SotW, nil, Options{MaxTypes: 1, MaxNameLen: 4}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"a"}})
	for limit, req := range map[xds.Limit]xds.Request{
		xds.LimitTypes:      {Type: xds.Route},
		xds.LimitNameLength: {Type: xds.Endpoint, Names: []string{"12345"}},
	} {
		if e, ok := errors.AsType[*xds.LimitError](l.Receive(req)); !ok || e.Limit != limit {
			t.Errorf("SAFE-1 %s: %v", limit, e)
		}
	}
}

// SAFE-2: before Waits nothing can be sent, so a server need not wake the stream.
func TestWaits(t *testing.T) {
	view := xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "c"), xds.Listener.URL: tableOf(xds.Listener, "l")}
	l := newLine(t, xds.SotW, nil, Options{}, view)
	wait := func(why string, want time.Duration) {
		t.Helper()
		var got time.Duration
		if at := l.Waits(); !at.IsZero() {
			got = at.Sub(time.Unix(1_700_000_000, 0))
		}
		if got != want {
			t.Fatalf("%s: until %v, want %v", why, got, want)
		}
	}
	wait("nothing is open", 0)
	l.ask(xds.Request{Type: xds.Cluster})
	l.drain()
	wait("the first response is unanswered", 5*time.Second)
	l.ask(xds.Request{Type: xds.Route}) // without a subscription it does not count
	l.drain()
	wait("a type that wants nothing", 5*time.Second)
	l.wait(2 * time.Second)
	l.ask(xds.Request{Type: xds.Secret, Names: []string{"s"}})
	wait("a type that was told nothing may be told something", 0)
	l.commit(xds.Secret, resources(1, "s"))
	l.drain()
	wait("of two the earlier one", 5*time.Second)
	l.ask(xds.Request{Type: xds.Cluster, Nonce: "1", Version: "x"})
	wait("one is answered", 0)
}

// SAFE-12: the newest response of a type must be answered, whatever the state of older responses.
// Responses before a given time, and names without a subscription, need no answer.
func TestAnswered(t *testing.T) {
	began := time.Unix(0, 0)
	for _, c := range []struct {
		name    string
		variant xds.Variant
		answers string // to three responses
		since   time.Duration
		want    bool
	}{
		{"SAFE-12 none", xds.SotW, "", 0, false},
		{"SAFE-12 none, all responses were sent later", xds.SotW, "", time.Hour, true},
		{"SAFE-12 none since the last was sent", xds.SotW, "", 20 * time.Second, false},
		{"SAFE-12 an older one", xds.SotW, "2", 0, false},
		{"SAFE-12 the newest answers all", xds.SotW, "3", 0, true},
		{"SAFE-12 the newest and then an older one", xds.SotW, "3 1", 0, true},
		{"SAFE-12 the newest is refused", xds.SotW, "3!", 0, true},
		{"SAFE-12 delta, all but the newest", xds.Delta, "1 2", 0, false},
		{"SAFE-12 delta, all", xds.Delta, "1 2 3", 0, true},
		{"SAFE-12 unsubscribed", xds.Delta, "-", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewSession(c.variant, nil, xds.Tables{}, Options{})
			if !s.Answered(time.Time{}) {
				t.Error("nothing was sent")
			}
			u := newSubscription(xds.Route)
			s.subs = append(s.subs, u)
			for n := range uint64(3) {
				s.now = began.Add(time.Duration(n) * 10 * time.Second)
				s.deliver(u, &delivery{sent: s.now, parts: []part{{nonce: n + 1, lo: "a", hi: "z"}}, cargo: cargo{Items: itemsOf("a:->a1")}})
			}
			for a := range strings.FieldsSeq(c.answers) {
				if a == "-" { // the client unsubscribes from the last name
					if err := s.Receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"a"}}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				nonce, no := strings.CutSuffix(a, "!")
				req := xds.Request{Nonce: nonce}
				if no {
					req.Error = &xds.Status{}
				}
				u.settle(s, req)
			}
			if got := s.Answered(began.Add(c.since)); got != c.want {
				t.Errorf("answered: %v", got)
			}
		})
	}
}

// SAFE-1: the memory of many events is released.
func TestEventsGiveMemoryBack(t *testing.T) {
	names := numbered(1000)
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, names...)})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Listener})
	l.settle()
	l.commit(xds.Cluster, nil, names...)
	for range 100 {
		l.event(Event{Kind: Stale})
	}
	l.settle()
	if cap(l.events) > manyEvents {
		t.Errorf("room for %d events", cap(l.events))
	}

	l = newLine(t, xds.Delta, nil, Options{}, xds.Tables{})
	for range 10 { // a first step has many events, and later steps have few
		l.event(Event{Kind: Stale})
	}
	l.settle()
	l.event(Event{Kind: Stale})
	l.settle()
	if cap(l.events) > 2 {
		t.Errorf("room for %d events after a step with one", cap(l.events))
	}
}

// Events report how long answers take, and how many names were reported as missing, whatever the
// form of the report.
func TestEventsCount(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Endpoint, Options{Bodyless: true}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	event := func(kind EventKind) (found Event) {
		for e := range l.Events() {
			if e.Kind == kind {
				found = e
			}
		}
		return found
	}
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b", "none"}})
	for r := range l.Responses() {
		l.last[xds.Endpoint.URL] = r.Nonce
	}
	if e := event(Sent); e.Count != 2 || e.Removed != 1 {
		t.Errorf("DELTA-7: the event has %d resources and %d absent names", e.Count, e.Removed)
	}
	l.wait(3 * time.Second)
	l.ack(xds.Endpoint)
	if e := event(Acked); e.Took != 3*time.Second {
		t.Errorf("it took %v", e.Took)
	}
}

// A request with an error changes nothing: the subscription stays.
func TestErrorsChangeNothing(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{MaxNames: 1, MaxTypes: 1}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
	l.want("EDS a@1")
	for i, req := range []xds.Request{{Type: xds.Endpoint, Subscribe: []string{"b"}}, {Type: xds.Secret}, {}} {
		if err := l.Receive(req); err == nil {
			t.Error(i, "no error")
		}
		l.check()
		l.want("")
	}
	if n := fmt.Sprint(len(l.subs), l.subs[0].named); n != "1 1" {
		t.Error(n)
	}
}

// "A hint only saves work": a removed name is kept from the next call of Responses on, whatever the
// hints were.
func TestHintOfNoNames(t *testing.T) {
	for name, touched := range map[string][]xds.Names{"ADS-3 a hint of nothing": {}, "ADS-3 no hint": nil} {
		t.Run(name, func(t *testing.T) {
			eds := tableOf(xds.Endpoint, "e")
			cds := with(xds.NewTable(xds.Cluster), []*xds.Resource{resource("c", 1, xds.Ref{Type: xds.Endpoint, Name: "e"})})
			view := xds.Tables{xds.Cluster.URL: with(cds, nil, "c"), xds.Endpoint.URL: with(eds, nil, "e")}
			l := newLine(t, xds.Delta, nil, Options{Recent: func(typ *xds.Type) []*xds.Table {
				return map[*xds.Type][]*xds.Table{xds.Cluster: {cds}, xds.Endpoint: {eds}}[typ]
			}}, view)
			l.ask(xds.Request{Type: xds.Cluster, Initial: []xds.Version{{Name: "c", Version: "1"}}})
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"e"}})
			l.Change(view, touched)
			l.wait(time.Second)
			l.want("EDS e@1")
			if got := l.sub(xds.Endpoint).leaving["e"]; got == nil || !got.since.Equal(l.now) {
				t.Errorf("%+v, not since %v", got, l.now)
			}
		})
	}
}

// "A hint only saves work": a name had no references when it was removed, and has a reference at
// the next call of Responses. The name is kept for the same time, with or without a hint.
func TestHintAndLaterReference(t *testing.T) {
	for name, hinted := range map[string]bool{"ADS-3 hints": true, "ADS-3 no hint": false} {
		t.Run(name, func(t *testing.T) {
			scope := func(version int) []*xds.Resource {
				return []*xds.Resource{resource("p", version, xds.Ref{Type: xds.Route, Name: "r"})}
			}
			view := xds.Tables{xds.ScopedRoute.URL: with(xds.NewTable(xds.ScopedRoute), scope(1)), xds.Route.URL: tableOf(xds.Route, "r")}
			l := newLine(t, xds.Delta, nil, Options{}, view)
			l.ask(xds.Request{Type: xds.Route, Subscribe: []string{xds.Wildcard}})
			l.ask(xds.Request{Type: xds.ScopedRoute})
			l.want("SRDS p@1, RDS r@1")
			l.ack(xds.Route)
			change := func(typ *xds.Type, set []*xds.Resource, remove ...string) {
				if l.commit(typ, set, remove...); !hinted {
					l.Change(l.view, nil)
				}
			}
			change(xds.Route, nil, "r")
			change(xds.ScopedRoute, scope(2))
			l.wait(patience)
			l.want("SRDS p@2")
			if took, said := l.next(); took != silence || said != "RDS -r" {
				t.Errorf("after %v the session sent %s", took, said)
			}
		})
	}
}

// SOTW-12: the Opened event has the version that the client states.
func TestOpenedAtAVersion(t *testing.T) {
	s := NewSession(xds.SotW, nil, xds.Tables{}, Options{})
	s.Advance(time.Unix(0, 0))
	if err := s.Receive(xds.Request{Type: xds.Cluster, Version: "v"}); err != nil {
		t.Fatal(err)
	}
	for e := range s.Events() {
		if e.Kind == Opened && e.Version == "v" {
			return
		}
	}
	t.Error("no event reports this")
}
