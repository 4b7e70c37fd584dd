package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// versionsOf returns the stamps of a table: "a1 b2" is a at version 1, b at 2.
func versionsOf(text string) *xds.Versions {
	t := xds.NewTable(nil)
	for f := range strings.FieldsSeq(text) {
		t = with(t, []*xds.Resource{stampedResource(f)})
	}
	return t.Versions()
}

func stampedResource(f string) *xds.Resource {
	return resource(f[:1], int(f[1]-'0'))
}

// stampOf returns the stamp for "a1"; "-" is absent, "" nil.
func stampOf(f string) *xds.Stamp {
	switch f {
	case "":
		return nil
	case "-":
		return absent
	}
	return stampedResource(f).Stamp
}

func textOf(s *xds.Stamp) string {
	switch s {
	case nil:
		return "nothing"
	case absent:
		return "-"
	}
	return s.Name + s.Version
}

// itemsOf reads items: "a:a1>a2" changes a from a1 to a2, "a:>" does not mention it.
func itemsOf(text string) (items []item) {
	for f := range strings.FieldsSeq(text) {
		name, rest, _ := strings.Cut(f, ":")
		was, is, _ := strings.Cut(rest, ">")
		items = append(items, item{Name: name, Was: stampOf(was), Is: stampOf(is)})
	}
	return items
}

func cargoText(c *cargo) string {
	var out []string
	for name, it := range c.Each {
		out = append(out, fmt.Sprintf("%s:%s>%s", name, textOf(it.Was), textOf(it.Is)))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// DELTA-13: each message of a split response has its own names and its own answer. Removals are in
// the last message.
func TestPartsAreAnsweredSeparately(t *testing.T) {
	one, removed := stampOf("a1"), absent
	p := part{lo: "b", hi: "d", gone: "f", last: "h"}
	for name, want := range map[string][2]bool{"a": {false, false}, "b": {true, false}, "c": {true, false}, "d": {true, false}, "e": {false, false}, "f": {false, true}, "h": {false, true}, "i": {false, false}} {
		if got := [2]bool{p.within(name, one), p.within(name, removed)}; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	d := delivery{parts: []part{{nonce: 1, lo: "a", hi: "b", fate: accepted}, {nonce: 2, lo: "c", hi: "d"}, {nonce: 3, lo: "e", hi: "f", gone: "x", last: "z", fate: refused}}}
	for name, want := range map[string]bool{"a": false, "c": true, "e": false} {
		if d.open(name, one) != want {
			t.Errorf("%s open: %v", name, !want)
		}
	}
	if d.open("y", removed) || d.settled() || d.last() != 3 {
		t.Error("removals, or the end")
	}
	d.parts[1].fate = accepted
	if !d.settled() {
		t.Error("not settled")
	}
}

// SAFE-1: an unanswered response stays listed as long as something waits for its answer. Superseded
// responses and heartbeats are dropped if the list has four responses.
func TestMakeRoom(t *testing.T) {
	for _, c := range []struct {
		superseded, beats []int
		world             bool
		want              string
	}{
		{nil, nil, false, "1, 2, 3, 4, 5"},
		{nil, []int{3}, false, "1, 2, 4, 5"},
		{nil, []int{3}, true, "1, 2, 3, 4, 5"},
		{[]int{2}, []int{1}, false, "2, 3, 4, 5"},
		{[]int{1, 2, 3, 4}, nil, true, "2, 3, 4, 5"},
	} {
		u := newSubscription(xds.Cluster)
		s := &Session{now: time.Unix(1, 0), variant: xds.Delta}
		for n := range uint64(4) {
			is := fmt.Sprintf("a:a%d>a%d", n, n+1)
			s.deliver(u, &delivery{cargo: cargo{Items: itemsOf(is)}, parts: []part{{nonce: n + 1, world: c.world}}})
		}
		for _, n := range c.superseded {
			u.deliveries[n-1].superseded = true
		}
		for _, n := range c.beats {
			u.deliveries[n-1].beats = []*xds.Resource{}
		}
		s.deliver(u, &delivery{cargo: cargo{Items: itemsOf("a:a4>a5")}, parts: []part{{nonce: 5}}})
		var listed []string
		for i := range u.deliveries {
			listed = append(listed, fmt.Sprint(u.deliveries[i].last()))
		}
		if got := strings.Join(listed, ", "); got != c.want {
			t.Errorf("superseded %v, heartbeats %v: %s, want %s", c.superseded, c.beats, got, c.want)
		}
		if u.nonce != 5 || !u.unacked {
			t.Errorf("the newest nonce is %d, unanswered: %v", u.nonce, u.unacked)
		}
	}
}

// neverAnswers changes a resource every 5 s until a stream ends whose client never answers. It
// returns the number of responses and the error.
func neverAnswers(l *line, req xds.Request) (n int, err error) {
	l.t.Helper()
	l.ask(req)
	for range 4 * maxListed {
		n += len(l.drain())
		if l.Err() != nil {
			return n, l.Err()
		}
		l.wait(patience)
		l.commit(req.Type, resources(n+1, "a"))
	}
	return n, nil
}

// SAFE-1: a stream with 64 unanswered responses that waited in vain ends with the reason.
func TestStreamWithoutAnswersEnds(t *testing.T) {
	all := xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a"), xds.Cluster.URL: tableOf(xds.Cluster, "a")}
	for _, c := range []struct {
		name    string
		variant xds.Variant
		typ     *xds.Type
	}{
		{"SAFE-1 full state", xds.SotW, xds.Cluster},
		{"SAFE-1 by name, SotW", xds.SotW, xds.Endpoint},
		{"SAFE-1 delta", xds.Delta, xds.Cluster},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := neverAnswers(newLine(t, c.variant, nil, Options{}, all), xds.Request{Type: c.typ, Names: []string{"a"}, Subscribe: []string{"a"}})
			e, is := errors.AsType[*xds.LimitError](err)
			if n != maxListed+1 || !is || e.Limit != xds.LimitUnanswered || !errors.Is(err, ErrLimit) {
				t.Errorf("ended with response %d: %v", n, err)
			}
		})
	}
	t.Run("SAFE-1 a client that answers after five minutes", func(t *testing.T) {
		const late = 60
		l := newLine(t, xds.Delta, nil, Options{}, all)
		l.ask(xds.Request{Type: xds.Cluster})
		for n := range 4 * maxListed {
			if l.drain(); n >= late {
				l.ask(xds.Request{Type: xds.Cluster, Nonce: fmt.Sprint(n - late + 1)})
			}
			if l.Err() != nil {
				t.Fatalf("ended with response %d: %v", n, l.Err())
			}
			l.wait(patience)
			l.commit(xds.Cluster, resources(n+2, "a"))
		}
	})
	t.Run("SAFE-1 many names", func(t *testing.T) {
		const most = 10
		l := newLine(t, xds.Delta, nil, Options{MaxNames: most}, xds.Tables{})
		for n := range maxListed {
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: numbered(most)})
			if l.drain(); l.Err() != nil {
				if n != maxInFlight+4 || !strings.Contains(l.Err().Error(), "50 names") {
					t.Errorf("ended with response %d: %v", n+1, l.Err())
				}
				return
			}
			l.wait(patience)
		}
		t.Error("the stream does not end")
	})
}

// ADS-6, SAFE-1: while a warming cluster may withhold the ACKs, a stream does not end. Its memory is
// limited: the client may hold any content of the oldest responses.
func TestStreamOfWarmingClientStays(t *testing.T) {
	stuck := resource("stuck", 1, xds.Ref{Type: xds.Endpoint, Name: "none"})
	view := xds.Tables{xds.Cluster.URL: with(tableOf(xds.Cluster, "a"), []*xds.Resource{stuck})}
	for _, only := range []*xds.Type{nil, xds.Cluster} {
		for _, names := range [][]string{nil, {"a", "stuck"}} {
			l := newLine(t, xds.Delta, only, Options{}, view)
			n, err := neverAnswers(l, xds.Request{Type: xds.Cluster, Subscribe: names})
			u := l.sub(xds.Cluster)
			if err != nil || n != 4*maxListed || len(u.deliveries) != maxListed {
				t.Errorf("only %v, %q: %d responses, %d listed: %v", only, names, n, len(u.deliveries), err)
			}
			if !u.hadBefore("stuck") || !l.vague(u) {
				t.Error("ADS-3: the client may hold any content of the oldest responses")
			}
			l.ack(xds.Cluster)
			l.wait(silence)
			if l.vague(u) || u.stuck() || l.blocked(u) {
				t.Error("the ACK of the newest response covers all")
			}
			l.commit(xds.Cluster, resources(1000, "a"))
			l.want("CDS a@1000")
			if len(u.deliveries) > maxInFlight {
				t.Errorf("%d responses are listed", len(u.deliveries))
			}
		}
		const most = 10
		l := newLine(t, xds.Delta, only, Options{MaxNames: most}, view)
		for range 20 {
			l.ask(xds.Request{Type: xds.Cluster, Subscribe: append(numbered(most-1), "stuck")})
			l.drain()
			l.wait(patience)
		}
		if n := len(l.sub(xds.Cluster).deliveries); l.Err() != nil || n != maxInFlight {
			t.Errorf("only %v, many names: %d listed: %v", only, n, l.Err())
		}
	}
}

// ADS-3: silence begins with the first unanswered response. It begins neither with an earlier
// answer nor again with each response.
func TestSilence(t *testing.T) {
	u := newSubscription(xds.Route)
	s := &Session{now: time.Unix(100, 0), variant: xds.Delta, view: xds.Tables{}}
	at := func(sec int64) { s.now = time.Unix(sec, 0) }
	s.deliver(u, &delivery{parts: []part{{nonce: 1}}})
	at(110)
	s.deliver(u, &delivery{parts: []part{{nonce: 2}}})
	if u.silent != time.Unix(100, 0) {
		t.Error("the second response restarted silence:", u.silent.Unix())
	}
	at(120)
	u.settle(s, xds.Request{Nonce: "1"})
	if u.silent != time.Unix(120, 0) || !u.unacked {
		t.Error("after an answer, silence is", u.silent.Unix(), u.unacked)
	}
	at(130)
	u.settle(s, xds.Request{Nonce: "2"})
	at(200)
	s.deliver(u, &delivery{parts: []part{{nonce: 3}}})
	if u.silent != time.Unix(200, 0) {
		t.Error("silent before a response:", u.silent.Unix())
	}
	// The last message of a split response is answered, but not the first. So the next response is
	// the first response that needs an answer.
	w := newSubscription(xds.Route)
	s.deliver(w, &delivery{parts: []part{{nonce: 1}, {nonce: 2}}})
	w.settle(s, xds.Request{Nonce: "2"})
	at(300)
	s.deliver(w, &delivery{parts: []part{{nonce: 3}}})
	if w.silent != time.Unix(300, 0) {
		t.Error("silent before a new response:", w.silent.Unix())
	}
	at(200)
	if got := u.silentUntil(delay.Unanswered, time.Unix(205, 0)); got != time.Unix(205, 0).Add(silence) {
		t.Error("since a later loss:", got.Unix())
	}
	if got := u.silentUntil(delay.Unanswered, time.Unix(150, 0)); got != time.Unix(200, 0).Add(silence) {
		t.Error("since the response:", got.Unix())
	}
}

// ADS-3: a dropped name counts as not held before a full state in flight, and arrives with this
// full state, whatever its item was. Each name has one item.
func TestUnsubscribeInFlight(t *testing.T) {
	u := newSubscription(xds.Cluster)
	for name, told := range map[string]string{"a": "a2", "b": "b1", "c": "c1"} {
		u.add(entry{Name: name, Told: stampOf(told), Named: true})
	}
	d := delivery{cargo: cargo{Items: append(itemsOf("a:a1>a2"), item{Name: "b"})}, parts: []part{{nonce: 1, world: true}}}
	u.deliveries = []delivery{d}
	u.letGo(map[string]bool{"a": true, "b": true, "c": true, "x": true})
	if got := cargoText(&u.deliveries[0].cargo); got != "a:->a2 b:->b1 c:->c1" {
		t.Error(got)
	}
}

// ADS-8: if the client unsubscribes from the wildcard, it drops all names without an entry. A full
// state in flight brings these names again, even if it did not change them.
func TestUnsubscribeWildcardInFlight(t *testing.T) {
	for _, c := range []struct {
		world bool
		want  string
	}{{false, "a:a1>a2 b:->b2 d:->-"}, {true, "a:a1>a2 b:->b2 c:->c1 d:->-"}} {
		u := newSubscription(xds.Cluster)
		u.add(entry{Name: "a", Told: stampOf("a2"), Named: true})
		from, to := versionsOf("a1 b1 c1 d1"), versionsOf("a2 b2 c1")
		u.deliveries = []delivery{{cargo: cargo{From: from, To: to}, parts: []part{{nonce: 1, world: c.world}}}}
		for range 2 {
			u.letGoAll()
			if got := cargoText(&u.deliveries[0].cargo); got != c.want {
				t.Errorf("a world %v: %s", c.world, got)
			}
		}
	}
}

// TTL-3: for a name without heartbeats, the TTL counts from its first response. That is so even if
// a later response had the name again and is no longer listed.
func TestTTLCountsFromEvictedResponse(t *testing.T) {
	r := xds.NewResource(nil, "r", []byte("1"))
	r.TTL, r.Refs = 30*time.Second, []xds.Ref{}
	r.Seal("1")
	l := newLine(t, xds.Delta, nil, Options{ForceTTL: true}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{r})})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"r"}})
	l.want("EDS r@1")
	u := l.sub(xds.Endpoint)
	for _, want := range []time.Time{l.now, l.now.Add(-time.Second)} {
		if l.starveOpen(u, &u.deliveries[0]); !u.unfed["r"].Equal(want) {
			t.Errorf("since %v, want %v", u.unfed["r"], want)
		}
		u.starve("r", l.now.Add(-time.Second))
	}
}
