package protocoltest

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/tabletest"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

var with = tabletest.With

// A court puts one stream before the ledger by hand: what a client asks and
// answers, and what a session might say, without a session.
type court struct {
	t    *testing.T
	l    *ledger
	view xds.Tables
	past []*xds.Table
	n    int // nonces
}

func newCourt(t *testing.T, v xds.Variant) *court {
	c := &court{t: t, view: xds.Tables{}}
	c.l = newLedger(v, nil, c.view, epoch, protocol.Options{Recent: func(*xds.Type) []*xds.Table { return c.past }}, map[string][]*xds.Resource{}, map[string][]sending{}, past{})
	return c
}

// thing makes a resource that refers to others, and may have an alias: "r|alias=to-x>CDS/x".
// By a leading "?" it is on demand.
func thing(s string) *xds.Resource {
	s, lazy := strings.CutPrefix(s, "?")
	left, refs, _ := strings.Cut(s, ">")
	name, body, _ := strings.Cut(left, "=")
	name, alias, aliased := strings.Cut(name, "|")
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name, Refs: []xds.Ref{}}, Body: []byte(s), OnDemand: lazy}
	for ref := range strings.SplitSeq(refs, ",") {
		if short, n, ok := strings.Cut(ref, "/"); ok {
			typ, _ := typeOf(short)
			r.Refs = append(r.Refs, xds.Ref{Type: typ, Name: n})
		}
	}
	if aliased {
		r.Aliases = []string{alias}
	}
	if body, timed := strings.CutSuffix(body, "!"); timed {
		_, r.TTL = body, 30*time.Second
	}
	r.Seal("")
	return r
}

// commit sets and, by a leading "-", removes: "CDS", "x=1", "RDS", "-r".
func (c *court) commit(words ...string) {
	next := xds.Tables{}
	maps.Copy(next, c.view)
	var t *xds.Type
	for _, w := range words {
		if typ, err := typeOf(w); err == nil && !strings.Contains(w, "=") && w[0] != '-' {
			t = typ
			continue
		}
		tab := next.Table(t)
		if next[t.URL] == nil {
			tab = xds.NewTable(t)
		}
		c.past = append(c.past, tab)
		if name, gone := strings.CutPrefix(w, "-"); gone {
			next[t.URL] = with(tab, nil, name)
		} else {
			next[t.URL] = with(tab, []*xds.Resource{thing(w)})
		}
	}
	c.view = next
	c.l.change(next)
}

func (c *court) ask(t *xds.Type, names ...string) {
	c.l.receive(xds.Request{Type: t, Subscribe: names, Names: names, Node: &xds.Node{ClientFeatures: []string{"xds.config.supports-resource-ttl"}}}, false)
}

func (c *court) resume(t *xds.Type, names []string, has ...xds.Version) {
	c.l.receive(xds.Request{Type: t, Subscribe: names, Initial: has, Node: &xds.Node{}}, false)
}

func (c *court) answer(t *xds.Type, nonce string, refused bool) {
	r := xds.Request{Type: t, Nonce: nonce}
	if refused {
		r.Error = &xds.Status{Code: 3}
	}
	c.l.receive(r, false)
}

// keeps says which route that the client may hold keeps a cluster, or "".
func (c *court) keeps(cluster string, d doubt) (why string) {
	c.l.keeps(c.l.account(xds.Route), xds.Cluster, []string{cluster}, leaver{}, d, &why)
	return why
}

// takes is told something and acknowledges it.
func (c *court) takes(t *xds.Type, words ...string) {
	c.t.Helper()
	c.answer(t, c.told(t, words...), false)
}

// refuses is told something and does not take it.
func (c *court) refuses(t *xds.Type, words ...string) {
	c.t.Helper()
	c.answer(t, c.told(t, words...), true)
}

func (c *court) wait(d time.Duration) { c.l.advance(c.l.now.Add(d)) }

// try lets a response leave and returns its nonce and the verdict on it, and on
// what did not leave with it.
func (c *court) try(t *xds.Type, words ...string) (string, error) {
	c.l.begun()
	return c.say(t, words...)
}

func (c *court) say(t *xds.Type, words ...string) (string, error) {
	c.n++
	r := &xds.Response{Type: t, Nonce: string(rune('0' + c.n)), Changes: &xds.Changes{}}
	for _, w := range words {
		if name, gone := strings.CutPrefix(w, "-"); gone {
			r.Removed = append(r.Removed, name)
			continue
		}
		if name, missing := strings.CutPrefix(w, "!"); missing {
			r.Missing = append(r.Missing, name)
			continue
		}
		beat := strings.HasPrefix(w, "~")
		x := thing(strings.TrimPrefix(w, "~"))
		if r.TTL = r.TTL || x.TTL > 0; beat {
			r.Beats = append(r.Beats, x)
		} else {
			r.Upserts = append(r.Upserts, x)
		}
	}
	table := c.l.view.Table(t)
	if r.Version = table.Version(); c.l.variant == xds.SotW && t.FullState {
		r.Version = table.VersionWith(func(yield func(*xds.Stamp) bool) {
			for _, x := range r.Upserts {
				if table.Lookup(x.Name) == nil && !yield(x.Stamp) {
					return
				}
			}
		})
	}
	return r.Nonce, c.l.sent(r)
}

// told is a response that is right.
func (c *court) told(t *xds.Type, words ...string) string {
	c.t.Helper()
	nonce, err := c.try(t, words...)
	if err != nil {
		c.t.Fatalf("%s %v: %v", t, words, err)
	}
	return nonce
}

// given has x and the route to it with the client, and then withdraws x while the
// route moves to y.
func given(t *testing.T) *court {
	c := newCourt(t, xds.Delta)
	c.commit("CDS", "x=1", "y=1", "RDS", "r=to-x>CDS/x")
	c.ask(xds.Cluster)
	c.takes(xds.Cluster, "x=1", "y=1")
	c.ask(xds.Route, "r")
	c.takes(xds.Route, "r=to-x>CDS/x")
	c.commit("CDS", "-x", "RDS", "r=to-y>CDS/y")
	return c
}

func wrong(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the verdict is %v, want %q", err, text)
	}
}

// The judge catches wrong sessions and lets right ones pass.
func TestJudge(t *testing.T) {
	t.Run("ADS-8 leaves while the old route is held", func(t *testing.T) {
		_, err := given(t).try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves while the client may hold RDS r@r=to-x")
	})
	t.Run("ADS-8 leaves before the answer", func(t *testing.T) {
		c := given(t)
		c.told(xds.Route, "r=to-y>CDS/y")
		_, err := c.try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("ADS-8 leaves with the answer, and not later", func(t *testing.T) {
		c := given(t)
		c.takes(xds.Route, "r=to-y>CDS/y")
		if left := c.l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
		c.told(xds.Cluster, "-x")
	})
	t.Run("ADS-3 a refusal keeps what it refers to, through silence", func(t *testing.T) {
		c := given(t)
		c.refuses(xds.Route, "r=to-y>CDS/y")
		c.wait(time.Minute)
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		_, err := c.try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("ADS-8 behind a refusal, what it does not refer to leaves", func(t *testing.T) {
		c := given(t)
		c.refuses(xds.Route, "r=to-y>CDS/y")
		c.commit("CDS", "z=1")
		c.takes(xds.Cluster, "z=1")
		c.commit("CDS", "-z")
		if left := c.l.waiting(); left != "CDS: z is gone" {
			t.Errorf("waiting: %q", left)
		}
		c.told(xds.Cluster, "-z")
	})
	t.Run("DELTA-3 what is asked for does not wait for an answer", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("EDS", "x=1", "y=1", "z=1")
		c.ask(xds.Endpoint, "x")
		c.told(xds.Endpoint, "x=1")
		c.commit("EDS", "x=2")
		if left := c.l.waiting(); left != "" { // the client has asked for nothing
			t.Errorf("waiting: %q", left)
		}
		c.ask(xds.Endpoint, "y")
		if left := c.l.waiting(); left != "EDS: y is owed" && left != "EDS: y differs" {
			t.Errorf("waiting: %q", left)
		}
		c.told(xds.Endpoint, "x=2", "y=1")
	})
	t.Run("DELTA-3 who gives up an alias of what it still asks for has asked for nothing", func(t *testing.T) {
		start := func(dropped string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("VHDS", "r/a|x=1")
			c.ask(xds.VirtualHost, "*", "r/a", "x")
			c.told(xds.VirtualHost, "r/a|x=1")
			c.ask(xds.Route, "n")
			c.told(xds.Route, "-n")
			c.l.receive(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{dropped}}, false)
			return c
		}
		if left := start("x").l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start("r/a").l.waiting(); left != "VHDS: n/* is owed, if only its absence" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-3 what is about to leave stays behind its alias when the wildcard is given up", func(t *testing.T) {
		start := func(names ...string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x|a=1", "RDS", "r=to-x>CDS/x")
			c.ask(xds.Cluster, append(names, "*")...)
			c.takes(xds.Cluster, "x|a=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=to-x>CDS/x")
			c.commit("CDS", "-x", "RDS", "r=2")
			c.l.receive(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"*"}}, false)
			return c
		}
		c := start("a")
		_, err := c.try(xds.Cluster, "-a", "-x")
		wrong(t, err, "ADS-3, ADS-8: x leaves while")
		c.told(xds.Route, "r=2")
		c.ask(xds.Cluster, "a")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if c = start(); c.l.account(xds.Cluster).covers("x") {
			t.Error("x is kept, and nothing asks for it")
		}
	})
	t.Run("DELTA-3 passed responses do not fill the list of those that are unanswered", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("EDS", "a=1", "b=1", "c=1", "d=1", "e=1", "f=1")
		for _, n := range []string{"a", "b", "c", "d"} {
			c.ask(xds.Endpoint, n)
			c.told(xds.Endpoint, n+"=1")
		}
		c.ask(xds.Endpoint, "e")
		if left := c.l.waiting(); left != "" { // four are listed
			t.Errorf("waiting: %q", left)
		}
		c.answer(xds.Endpoint, "4", false)
		c.told(xds.Endpoint, "e=1")
		c.ask(xds.Endpoint, "f")
		if left := c.l.waiting(); left != "EDS: f differs" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("DELTA-7 an absence is kept back for its own time, whatever else is asked for", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		ask := func(name string) {
			c.l.receive(xds.Request{Type: xds.Route, Subscribe: []string{name}, Node: &xds.Node{UserAgentName: "envoy"}}, false)
		}
		ask("r")
		c.wait(15 * time.Second)
		ask("s")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c.wait(5 * time.Second)
		if left := c.l.waiting(); left != "RDS: r is owed, if only its absence" {
			t.Errorf("waiting: %q", left)
		}
		_, err := c.try(xds.Route, "-r", "-s")
		wrong(t, err, "DELTA-7: s was never told")
	})
	t.Run("SOTW-9 of what a client states to have it holds what its names would find", func(t *testing.T) {
		for _, asked := range []string{"xdstp://a/e/g/*", "xdstp://a/e/h/*"} {
			c := newCourt(t, xds.Delta)
			c.commit("LEDS", "xdstp://a/e/g/1=1", "EDS", "x=1>LEDS/xdstp://a/e/g/*")
			c.commit("LEDS", "-xdstp://a/e/g/1")
			c.ask(xds.Endpoint, "x")
			c.told(xds.Endpoint, "x=1>LEDS/xdstp://a/e/g/*")
			c.resume(xds.LbEndpoint, []string{asked}, xds.Version{Name: "xdstp://a/e/g/1", Version: thing("xdstp://a/e/g/1=1").Version})
			_, err := c.try(xds.LbEndpoint, "xdstp://a/e/g/1=1")
			if asked == "xdstp://a/e/g/*" {
				if err != nil && strings.Contains(err.Error(), "SOTW-9") {
					t.Error(err)
				}
			} else {
				wrong(t, err, "SOTW-9: xdstp://a/e/g/1 is not subscribed")
			}
		}
	})
	t.Run("ADS-3 a deadline ends silence", func(t *testing.T) {
		c := given(t)
		c.told(xds.Route, "r=to-y>CDS/y")
		c.wait(15 * time.Second)
		if left := c.l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
		c.told(xds.Cluster, "-x")
	})
	t.Run("ADS-3 what an ACK tells of a response that is not listed any more", func(t *testing.T) {
		start := func() (c *court, late string) {
			c = newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "y=1", "RDS", "q=1", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "q", "r")
			late = c.told(xds.Route, "q=1", "r=to-x>CDS/x")
			for _, said := range []string{"q=2", "q=3", "q=4", "r=to-y>CDS/y"} {
				c.wait(5 * time.Second)
				c.commit("RDS", said)
				c.told(xds.Route, said)
			}
			return c, late
		}
		c, late := start()
		c.l.receive(xds.Request{Type: xds.Route, Nonce: late}, true)
		c.commit("CDS", "-x")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		_, err := c.try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves")
		c, _ = start()
		c.answer(xds.Route, "6", false)
		c.commit("CDS", "-x")
		c.told(xds.Cluster, "-x")
	})
	t.Run("ADS-3 who refuses a response that is not listed any more may have applied it", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "y=1", "RDS", "q=1", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "q", "r")
			late := c.told(xds.Route, "q=1", "r=to-x>CDS/x")
			for _, said := range []string{"r=to-y>CDS/y", "q=2", "q=3", "q=4"} {
				c.wait(5 * time.Second)
				c.commit("RDS", said)
				c.told(xds.Route, said)
			}
			c.answer(xds.Route, "6", false)
			if refused {
				c.l.receive(xds.Request{Type: xds.Route, Nonce: late, Error: &xds.Status{Code: 3}}, true)
			}
			c.commit("CDS", "-x")
			return c
		}
		start(false).told(xds.Cluster, "-x")
		c := start(true)
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		_, err := c.try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("ADS-3 what was stated before it was asked for may be held", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "y=1", "EDS", "e=1")
		c.resume(xds.Cluster, []string{"y"}, xds.Version{Name: "x", Version: "old"})
		first := c.told(xds.Cluster, "y=1", "-x")
		c.ask(xds.Endpoint, "e")
		c.takes(xds.Endpoint, "e=1")
		c.ask(xds.Cluster, "x")
		second := c.told(xds.Cluster, "-x")
		c.commit("EDS", "-e")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c.answer(xds.Cluster, first, false)
		c.answer(xds.Cluster, second, false)
		if left := c.l.waiting(); left != "EDS: e is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("OND-4 a wildcard of virtual hosts that is asked for again is of the stream's routes", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("RDS", "r=1", "VHDS", "r/a=1", "other/b=1")
		c.ask(xds.Route, "r")
		c.takes(xds.Route, "r=1")
		c.ask(xds.VirtualHost)
		c.takes(xds.VirtualHost, "r/a=1")
		c.l.receive(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"*"}}, false)
		c.ask(xds.VirtualHost, "*")
		if left := c.l.waiting(); left != "VHDS: r/a differs" {
			t.Errorf("waiting: %q", left)
		}
		_, err := c.try(xds.VirtualHost, "other/b=1")
		wrong(t, err, "SOTW-9: other/b is not subscribed")
		c.told(xds.VirtualHost, "r/a=1")
	})
	t.Run("DELTA-15 of a route that the stream has given up no change of a host is told, refused or not", func(t *testing.T) {
		held := func(dropped string) int {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1", "s=1", "VHDS", "r/a=1")
			c.ask(xds.Route, "r", "s")
			c.takes(xds.Route, "r=1", "s=1")
			c.ask(xds.VirtualHost)
			c.takes(xds.VirtualHost, "r/a=1")
			if dropped == "" {
				c.commit("VHDS", "r/a=2")
				c.refuses(xds.VirtualHost, "r/a=2")
			} else {
				c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{dropped}}, false)
				c.refuses(xds.VirtualHost, "-r/a")
			}
			return len(c.l.outstanding())
		}
		if held("") != 1 || held("r") != 0 {
			t.Errorf("held back until they change: %d, and of the route that was dropped %d", held(""), held("r"))
		}
	})
	t.Run("DELTA-15 a refused host goes with its route, so the others are told again", func(t *testing.T) {
		start := func(dropped string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1", "s=1", "VHDS", "r/a=1", "s/b=1")
			c.ask(xds.Route, "r", "s")
			c.takes(xds.Route, "r=1", "s=1")
			c.ask(xds.VirtualHost)
			c.refuses(xds.VirtualHost, "r/a=1", "s/b=1")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{dropped}}, false)
			return c
		}
		start("s").told(xds.VirtualHost, "r/a=1", "-s/b")
		_, err := start("phantom").try(xds.VirtualHost, "r/a=1")
		wrong(t, err, "DELTA-12, DELTA-15: r/a was told before")
	})
	t.Run("ADS-3 of three that need not be listed any more what the first and the last told counts", func(t *testing.T) {
		start := func(later ...string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "c=to-w>EDS/w", "EDS", "w=1", "x=1", "y=1")
			c.ask(xds.Endpoint, "w", "x", "y")
			c.takes(xds.Endpoint, "w=1", "x=1", "y=1")
			c.ask(xds.Cluster)
			first := c.told(xds.Cluster, "c=to-w>EDS/w")
			for _, x := range append([]string{"c=to-x>EDS/x", "c=to-y>EDS/y"}, later...) {
				c.wait(5 * time.Second)
				c.commit("CDS", x)
				c.told(xds.Cluster, x)
			}
			c.wait(5 * time.Second)
			c.l.receive(xds.Request{Type: xds.Cluster, Nonce: first}, true)
			c.commit("CDS", "-c", "EDS", "-w", "-x", "-y")
			return c
		}
		start("d=1", "d=2", "d=3").told(xds.Endpoint, "-x")
		for gone, held := range map[string]string{"-w": "c@c=to-w", "-y": "c@c=to-y"} {
			_, err := start("d=1", "d=2", "d=3").try(xds.Endpoint, gone)
			wrong(t, err, "the client may hold CDS "+held)
		}
		_, err := start("d=1").try(xds.Endpoint, "-x")
		wrong(t, err, "the client may hold CDS c@c=to-x")
	})
	t.Run("ADS-3 what was accepted when it had become one with later ones counts until the next that tells of it is one with them, too", func(t *testing.T) {
		start := func(before, after []string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "c=to-w>EDS/w", "EDS", "w=1", "x=1", "y=1")
			c.ask(xds.Endpoint, "w", "x", "y")
			c.takes(xds.Endpoint, "w=1", "x=1", "y=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "c=to-w>EDS/w")
			tell := func(x string) string {
				c.wait(patience)
				c.commit("CDS", x)
				return c.told(xds.Cluster, x)
			}
			first := tell("c=to-x>EDS/x")
			for _, x := range before {
				tell(x)
			}
			c.l.receive(xds.Request{Type: xds.Cluster, Nonce: first}, true)
			for _, x := range after {
				tell(x)
			}
			c.commit("CDS", "-c", "EDS", "-w", "-x", "-y")
			return c
		}
		before := []string{"d=1", "d=2", "c=to-y>EDS/y", "d=3", "d=4"}
		start(before, []string{"d=5"}).told(xds.Endpoint, "-x")
		_, err := start(before, []string{"d=5"}).try(xds.Endpoint, "-y")
		wrong(t, err, "the client may hold CDS c@c=to-y")
		_, err = start(before, nil).try(xds.Endpoint, "-x")
		wrong(t, err, "the client may hold CDS c@c=to-x")
		_, err = start(before[1:], []string{"d=5", "d=6"}).try(xds.Endpoint, "-x")
		wrong(t, err, "the client may hold CDS c@c=to-x")
	})
	t.Run("ADS-3 a response that only says what does not exist is listed like others, and a heartbeat is not", func(t *testing.T) {
		newer := func(later *flight) int {
			a := &account{}
			for i := range listed {
				a.flights = append(a.flights, &flight{seq: i, drain: i, carried: map[string]fact{"r": {seq: i}}})
			}
			later.seq, later.drain = listed, listed
			a.flights = append(a.flights, later)
			return a.newer(a.flights[0])
		}
		if n := newer(&flight{}); n != listed {
			t.Errorf("%d are listed after it, want %d", n, listed)
		}
		if n := newer(&flight{beats: map[string]fact{"r": {}}}); n != listed-1 {
			t.Errorf("%d are listed after it, want %d", n, listed-1)
		}
	})
	t.Run("ADS-3 before what was refused was what it has dealt with since", func(t *testing.T) {
		start := func(later bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "w=1", "x=1", "RDS", "q=1", "r=to-w>CDS/w")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "w=1", "x=1")
			c.ask(xds.Route, "q", "r")
			c.takes(xds.Route, "q=1", "r=to-w>CDS/w")
			c.commit("RDS", "r=to-x>CDS/x")
			c.told(xds.Route, "r=to-x>CDS/x")
			c.wait(5 * time.Second)
			c.commit("RDS", "r=bad")
			c.refuses(xds.Route, "r=bad")
			if later {
				c.commit("RDS", "q=2")
				c.takes(xds.Route, "q=2")
			}
			c.commit("CDS", "-w", "-x")
			return c
		}
		start(true).told(xds.Cluster, "-w")
		_, err := start(true).try(xds.Cluster, "-x")
		wrong(t, err, "the client may hold RDS r@r=to-x")
		_, err = start(false).try(xds.Cluster, "-w")
		wrong(t, err, "the client may hold RDS r@r=to-w")
	})
	t.Run("ADS-6 what is not owed meanwhile waits anew", func(t *testing.T) {
		for between, want := range map[string]string{"r=1": "", "r=2>CDS/x": "RDS: r differs"} {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1")
			c.ask(xds.Cluster)
			c.refuses(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			c.commit("CDS", "x=2")
			c.told(xds.Cluster, "x=2")
			c.wait(15 * time.Second)
			for _, r := range []string{"r=to-x>CDS/x", between, "r=to-x>CDS/x"} {
				c.commit("RDS", r)
				if left := c.l.waiting(); left != "" {
					t.Errorf("%s: waiting: %q", between, left)
				}
				c.wait(7 * time.Second)
			}
			if left := c.l.waiting(); left != want {
				t.Errorf("%s: waiting: %q, want %q", between, left, want)
			}
		}
	})
	t.Run("ADS-9 a route from before of no known version, and there is nothing to tell of it", func(t *testing.T) {
		for _, told := range []bool{false, true} {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1>CDS/x")
			c.l.opts.Refused = func(*xds.Type) bool { return false }
			c.l.receive(xds.Request{Type: xds.Cluster, Version: "of before", Node: &xds.Node{}}, false)
			c.takes(xds.Cluster, "x=1")
			if !told {
				c.commit("RDS", "-r")
			}
			c.ask(xds.Route, "r")
			if told {
				c.takes(xds.Route, "r=1>CDS/x")
				c.commit("RDS", "-r")
			}
			c.wait(silence - time.Second)
			if c.l.forgotten(xds.Route, "r") {
				t.Error("its cluster need not stay")
			}
			c.wait(time.Second)
			if c.l.forgotten(xds.Route, "r") == told {
				t.Errorf("told here: %v, and its cluster has to stay: %v", told, !told)
			}
		}
	})
	t.Run("ADS-6 what is given up and asked for again waits anew", func(t *testing.T) {
		for again, want := range map[bool]string{true: "", false: "RDS: r differs"} {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1")
			c.ask(xds.Cluster)
			c.refuses(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			c.commit("CDS", "x=2")
			c.told(xds.Cluster, "x=2")
			c.wait(silence)
			c.commit("RDS", "r=to-x>CDS/x")
			for range 2 {
				if left := c.l.waiting(); left != "" {
					t.Errorf("%v: waiting: %q", again, left)
				}
				c.wait(8 * time.Second)
				if again {
					c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}, false)
					c.ask(xds.Route, "r")
				}
			}
			if left := c.l.waiting(); left != want {
				t.Errorf("%v: waiting: %q, want %q", again, left, want)
			}
		}
	})
	t.Run("ADS-6 a cluster that was refused, and accepted since in a response that is not listed any more", func(t *testing.T) {
		start := func(stale bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1")
			c.ask(xds.Cluster)
			c.refuses(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			c.commit("CDS", "x=2")
			nonce := c.told(xds.Cluster, "x=2")
			for _, x := range []string{"y=1", "y=2", "y=3", "x=3"} {
				c.wait(5 * time.Second)
				c.commit("CDS", x)
				c.told(xds.Cluster, x)
			}
			c.l.receive(xds.Request{Type: xds.Cluster, Nonce: nonce}, stale)
			c.wait(8 * time.Second)
			c.commit("RDS", "r=to-x>CDS/x")
			if left := c.l.waiting(); left != "" {
				t.Errorf("waiting: %q", left)
			}
			c.wait(7 * time.Second)
			return c
		}
		if left := start(true).l.waiting(); left != "" {
			t.Errorf("it may wait since it is refused: %q", left)
		}
		if left := start(false).l.waiting(); left != "RDS: r differs" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-6 a cluster that has become one with what was refused and is not listed any more", func(t *testing.T) {
		for refused, want := range map[bool]string{true: "", false: "RDS: r differs"} {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "w=1", "RDS", "r=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "w=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			var nonces []string
			for _, x := range []string{"z=1", "x=1", "y=1", "y=2", "y=3", "y=4"} {
				c.commit("CDS", x)
				nonces = append(nonces, c.told(xds.Cluster, x))
				c.wait(5 * time.Second)
			}
			answer := xds.Request{Type: xds.Cluster, Nonce: nonces[0]}
			if refused {
				answer.Error = &xds.Status{Code: 3}
			}
			c.l.receive(answer, true)
			c.l.receive(xds.Request{Type: xds.Cluster, Nonce: nonces[1]}, true)
			c.commit("RDS", "r=to-x>CDS/x")
			if left := c.l.waiting(); left != want {
				t.Errorf("refused %v: waiting: %q", refused, left)
			}
		}
	})
	t.Run("NAME-2 what a client states is found by its collection when another is given up", func(t *testing.T) {
		const g, h = "xdstp://a/e/g/", "xdstp://a/e/h/"
		c := newCourt(t, xds.Delta)
		c.commit("LEDS", h+"1=1")
		had := xds.Version{Name: h + "1", Version: c.view.Table(xds.LbEndpoint).Lookup(h + "1").Version}
		c.commit("LEDS", h+"1=2")
		c.resume(xds.LbEndpoint, []string{g + "*", h + "*"}, had)
		c.commit("LEDS", "-"+h+"1")
		c.takes(xds.LbEndpoint, "-"+g+"*")
		c.l.receive(xds.Request{Type: xds.LbEndpoint, Unsubscribe: []string{g + "*"}}, false)
		if left := c.l.waiting(); left != "" {
			t.Errorf("assignments may refer to it, which are not open yet: %q", left)
		}
		c.wait(15 * time.Second)
		if left := c.l.waiting(); left != "LEDS: "+h+"* is owed, if only its absence" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("DELTA-15 what was refused is told again though it need not be listed any more", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("EDS", "a=1", "b=1", "c=1")
			c.ask(xds.Endpoint, "a", "b", "c")
			c.takes(xds.Endpoint, "a=1", "b=1", "c=1")
			c.commit("EDS", "a=2")
			r := xds.Request{Type: xds.Endpoint, Nonce: c.told(xds.Endpoint, "a=2")}
			for _, x := range []string{"c=2", "b=2", "b=3", "b=4", "b=5"} {
				c.wait(5 * time.Second)
				c.commit("EDS", x)
				c.told(xds.Endpoint, x)
			}
			if refused {
				r.Error = &xds.Status{Code: 3}
			}
			c.l.receive(r, true)
			c.wait(5 * time.Second)
			return c
		}
		start(true).told(xds.Endpoint, "a=2")
		start(true).told(xds.Endpoint, "a=2", "c=2") // who remembers both as one
		_, err := start(false).try(xds.Endpoint, "a=2")
		wrong(t, err, "DELTA-15: a was told before")
		_, err = start(true).try(xds.Endpoint, "b=5")
		wrong(t, err, "DELTA-15: b was told before")
	})
	t.Run("DELTA-15 who refuses by another type's nonce may have refused what need not be listed any more", func(t *testing.T) {
		tell := func(others []string, x string) error {
			c := newCourt(t, xds.Delta)
			c.commit("EDS", "a=1", "b=1", "SDS", "s=1")
			c.ask(xds.Endpoint, "a", "b")
			c.takes(xds.Endpoint, "a=1", "b=1")
			c.ask(xds.Secret, "s")
			r := xds.Request{Type: xds.Endpoint, Nonce: c.told(xds.Secret, "s=1"), Error: &xds.Status{Code: 3}}
			c.commit("EDS", "a=2")
			c.told(xds.Endpoint, "a=2")
			for _, x := range others {
				c.wait(5 * time.Second)
				c.commit("EDS", x)
				c.told(xds.Endpoint, x)
			}
			c.l.receive(r, true)
			c.wait(5 * time.Second)
			_, err := c.try(xds.Endpoint, x)
			return err
		}
		many := []string{"b=2", "b=3", "b=4", "b=5", "b=6"}
		if err := tell(many, "a=2"); err != nil {
			t.Error(err)
		}
		wrong(t, tell(many[:2], "a=2"), "DELTA-15: a was told before")
		wrong(t, tell(many, "b=6"), "DELTA-15: b was told before")
	})
	t.Run("SOTW-3 what is refused late, that is not listed any more and a later response stands for, is not owed", func(t *testing.T) {
		owed := func(v xds.Variant) string {
			c := newCourt(t, v)
			answer := func(nonce string, refused, stale bool) {
				r := xds.Request{Type: xds.Endpoint, Nonce: nonce}
				if v == xds.SotW {
					r.Names = []string{"a", "b"}
				}
				if refused {
					r.Error = &xds.Status{Code: 3}
				}
				c.l.receive(r, stale)
			}
			c.commit("EDS", "a=1", "b=1")
			c.ask(xds.Endpoint, "a", "b")
			first, second := c.told(xds.Endpoint, "a=1", "b=1"), ""
			for _, b := range []string{"b=2", "b=3", "b=4", "b=5"} {
				c.wait(5 * time.Second)
				c.commit("EDS", b)
				if n := c.told(xds.Endpoint, b); second == "" {
					second = n
				}
			}
			answer(second, false, false)
			answer(first, true, true)
			c.wait(5 * time.Second)
			return c.l.waiting()
		}
		if left := owed(xds.SotW); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := owed(xds.Delta); left != "EDS: a is owed" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("DELTA-15 a host that was refused to go is told to be gone again, with all that was refused", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1", "VHDS", "r/a=1", "r/b=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			c.ask(xds.VirtualHost)
			c.takes(xds.VirtualHost, "r/a=1", "r/b=1")
			c.commit("VHDS", "-r/a", "r/b=2")
			c.answer(xds.VirtualHost, c.told(xds.VirtualHost, "-r/a", "r/b=2"), refused)
			c.commit("VHDS", "r/b=3")
			return c
		}
		start(true).told(xds.VirtualHost, "-r/a", "r/b=3")
		_, err := start(false).try(xds.VirtualHost, "-r/a", "r/b=3")
		wrong(t, err, "DELTA-8: removes r/a")
		c := start(true)
		c.told(xds.VirtualHost, "r/b=3")
		c.wait(5 * time.Second)
		if left := c.l.waiting(); left != "VHDS: r/a is gone, which was refused" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-3 who acknowledges a later response has dealt with the one before", func(t *testing.T) {
		start := func(answers bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "y=1", "RDS", "q=1", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "q", "r")
			c.takes(xds.Route, "q=1", "r=to-x>CDS/x")
			c.commit("RDS", "-r")
			c.told(xds.Route, "-r")
			c.wait(5 * time.Second)
			c.commit("RDS", "q=2")
			if nonce := c.told(xds.Route, "q=2"); answers {
				c.answer(xds.Route, nonce, false)
			}
			c.wait(5 * time.Second)
			c.commit("RDS", "r=to-y>CDS/y", "CDS", "-x")
			c.told(xds.Route, "r=to-y>CDS/y")
			return c
		}
		start(true).told(xds.Cluster, "-x")
		_, err := start(false).try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("ADS-3 what was never answered was before what was acknowledged", func(t *testing.T) {
		start := func(answers bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.told(xds.Route, "r=to-x>CDS/x")
			c.wait(5 * time.Second)
			c.commit("RDS", "r=2")
			if nonce := c.told(xds.Route, "r=2"); answers {
				c.answer(xds.Route, nonce, false)
			}
			c.wait(5 * time.Second)
			c.commit("RDS", "-r")
			c.told(xds.Route, "-r")
			c.commit("CDS", "-x")
			return c
		}
		start(true).told(xds.Cluster, "-x")
		_, err := start(false).try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("ADS-8 what was not answered before a response that is refused, however long the client is silent then", func(t *testing.T) {
		start := func(refuses bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "y=1", "RDS", "q=1", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "r")
			c.told(xds.Route, "r=to-x>CDS/x") // which it never answers
			c.wait(5 * time.Second)
			c.commit("RDS", "r=to-y>CDS/y")
			nonce := c.told(xds.Route, "r=to-y>CDS/y")
			c.ask(xds.Route, "q")
			c.told(xds.Route, "q=1") // nor this
			c.answer(xds.Route, nonce, refuses)
			c.commit("CDS", "-x")
			c.wait(20 * time.Second)
			return c
		}
		if left := start(true).l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start(false).l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-8 what was before a response that is not listed any more, until the next is answered", func(t *testing.T) {
		start := func(listed bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "y=1", "RDS", "q=1", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "q", "r")
			c.takes(xds.Route, "q=1", "r=to-x>CDS/x")
			c.commit("RDS", "r=to-y>CDS/y")
			late := c.told(xds.Route, "r=to-y>CDS/y")
			for _, said := range []string{"q=2", "q=3", "q=4", "q=5"} {
				c.wait(5 * time.Second)
				c.commit("RDS", said)
				c.told(xds.Route, said)
			}
			c.l.receive(xds.Request{Type: xds.Route, Nonce: late}, !listed)
			c.commit("CDS", "-x")
			return c
		}
		c := start(false)
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c.answer(xds.Route, "4", false)
		if left := c.l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
		start(false).told(xds.Cluster, "-x")
		if left := start(true).l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-7 what was given up on its way, and is lost, keeps what it refers to", func(t *testing.T) {
		start := func(cluster string) *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", cluster, "EDS", "e=1")
			c.ask(xds.Cluster, "x")
			c.told(xds.Cluster, cluster)
			c.ask(xds.Endpoint, "e")
			c.ask(xds.Cluster, "y")
			c.commit("CDS", "-x", "EDS", "e=2", "-e")
			return c
		}
		start("x=1>EDS/e").told(xds.Endpoint, "e=2")
		_, err := start("x=1>EDS/other").try(xds.Endpoint, "e=2")
		wrong(t, err, "ADS-4: e@")
	})
	t.Run("DELTA-13 a part that is never answered is silence", func(t *testing.T) {
		start := func(all bool) *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "q=1", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "q", "r")
			first := c.told(xds.Route, "q=1")
			last, err := c.say(xds.Route, "r=to-x>CDS/x")
			if err != nil {
				t.Fatal(err)
			}
			c.l.receive(xds.Request{Type: xds.Route, Names: []string{"q", "r"}, Nonce: last}, false)
			if all {
				c.l.receive(xds.Request{Type: xds.Route, Names: []string{"q", "r"}, Nonce: first}, false)
			}
			c.commit("RDS", "-r", "CDS", "-x")
			c.wait(15 * time.Second)
			return c
		}
		start(false).told(xds.Cluster)
		_, err := start(true).try(xds.Cluster)
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("WARM-2 behind a part that is never answered assignments wait for 5 s", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1>EDS/e", "EDS", "e=1", "f=1")
		c.ask(xds.Endpoint, "e", "f")
		c.told(xds.Endpoint, "e=1")
		last, err := c.say(xds.Endpoint, "f=1")
		if err != nil {
			t.Fatal(err)
		}
		c.answer(xds.Endpoint, last, false)
		client := &envoy{warming: map[string]time.Time{"x": epoch}, fresh: map[string]bool{"x": true},
			needs: map[string][]need{"x": {{xds.Endpoint, "e"}}}}
		if what := client.cold(c.l); what != "" {
			t.Error(what)
		}
		c.wait(5 * time.Second)
		if what := client.cold(c.l); what != "WARM-2: x warms, and nobody sends e" {
			t.Errorf("cold: %q", what)
		}
	})
	t.Run("WARM-2 endpoints that were refused are not sent for their collection, others of it are", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("LEDS", "xdstp://a/e/g/1=1", "xdstp://a/e/g/2=1")
		c.ask(xds.LbEndpoint, "xdstp://a/e/g/*")
		client := &envoy{warming: map[string]time.Time{"x": epoch}, fresh: map[string]bool{"x": true},
			needs: map[string][]need{"x": {{xds.LbEndpoint, "xdstp://a/e/g/*"}}}}
		c.refuses(xds.LbEndpoint, "xdstp://a/e/g/1=1", "xdstp://a/e/g/2=1")
		if what := client.cold(c.l); what != "" {
			t.Error(what)
		}
		c.commit("LEDS", "xdstp://a/e/g/2=2")
		if what := client.cold(c.l); what != "WARM-2: x warms, and nobody sends xdstp://a/e/g/*" {
			t.Errorf("cold: %q", what)
		}
	})
	t.Run("DELTA-13 a refused part stays refused when another is acknowledged", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.SotW)
			answer := func(nonce string, refused bool) {
				r := xds.Request{Type: xds.Route, Names: []string{"q", "r"}, Nonce: nonce}
				if refused {
					r.Error = &xds.Status{Code: 3}
				}
				c.l.receive(r, false)
			}
			c.commit("CDS", "x=1", "y=1", "RDS", "q=1", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "q", "r")
			answer(c.told(xds.Route, "q=1", "r=to-x>CDS/x"), false)
			c.commit("RDS", "q=2", "r=to-y>CDS/y")
			first := c.told(xds.Route, "r=to-y>CDS/y")
			last, err := c.say(xds.Route, "q=2")
			if err != nil {
				t.Fatal(err)
			}
			answer(first, refused)
			answer(last, false)
			c.commit("CDS", "-x")
			return c
		}
		start(false).told(xds.Cluster, "y=1")
		c := start(true)
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		_, err := c.try(xds.Cluster, "y=1")
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("ADS-8 who refuses a response need not have accepted the one before", func(t *testing.T) {
		c := newCourt(t, xds.SotW)
		answer := func(nonce string, refused bool) {
			r := xds.Request{Type: xds.Route, Names: []string{"r"}, Nonce: nonce}
			if refused {
				r.Error = &xds.Status{Code: 3}
			}
			c.l.receive(r, false)
		}
		c.commit("CDS", "x=1", "y=1", "z=1", "RDS", "r=to-x>CDS/x")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1", "y=1", "z=1")
		c.ask(xds.Route, "r")
		answer(c.told(xds.Route, "r=to-x>CDS/x"), false)
		c.commit("RDS", "r=to-y>CDS/y")
		before := c.told(xds.Route, "r=to-y>CDS/y")
		c.wait(5 * time.Second)
		c.commit("RDS", "r=to-z>CDS/z")
		answer(c.told(xds.Route, "r=to-z>CDS/z"), true)
		c.commit("CDS", "-x")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		answer(before, false)
		if left := c.l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-8 what was refused, and accepted since in a response that is not listed any more", func(t *testing.T) {
		start := func(stale bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "y=1", "RDS", "r=1>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "r")
			c.refuses(xds.Route, "r=1>CDS/x")
			c.commit("RDS", "r=2>CDS/y")
			nonce := c.told(xds.Route, "r=2>CDS/y")
			for _, other := range []string{"a", "b", "c", "d"} {
				c.ask(xds.Route, other)
				c.told(xds.Route, "-"+other)
			}
			c.l.receive(xds.Request{Type: xds.Route, Nonce: nonce}, stale)
			c.commit("CDS", "-x")
			return c
		}
		if left := start(true).l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start(false).l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
		start(true).told(xds.Cluster, "-x") // who remembers need not keep it
	})
	t.Run("DELTA-13 what was refused together with what warms a cluster comes in another part", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1>EDS/e", "EDS", "e=1", "f=1")
			c.ask(xds.Endpoint, "e", "f")
			c.refuses(xds.Endpoint, "e=1", "f=1")
			c.ask(xds.Cluster)
			c.told(xds.Cluster, "x=1>EDS/e")
			return c
		}
		c := start()
		c.told(xds.Endpoint, "e=1")
		if _, err := c.say(xds.Endpoint, "f=1"); err != nil {
			t.Error(err)
		}
		c = start()
		c.takes(xds.Endpoint, "e=1")
		_, err := c.try(xds.Endpoint, "f=1")
		wrong(t, err, "f was told before")
	})
	t.Run("ADS-8 what was asked for again on its way stays for who walks to it", func(t *testing.T) {
		c := newCourt(t, xds.SotW)
		c.l.opts.ResourceErrors = true
		c.commit("CDS", "x=1")
		c.ask(xds.Cluster, "x")
		nonce := c.told(xds.Cluster, "x=1")
		c.ask(xds.Cluster)
		c.ask(xds.Cluster, "x")
		c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x"}, Nonce: nonce}, false)
		c.commit("CDS", "-x")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c.wait(15 * time.Second)
		if left := c.l.waiting(); left != "CDS: x is owed, if only as an error" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("TTL-3 what has expired and is told anew has to be warm again", func(t *testing.T) {
		breaks := func(dropped bool) (broke bool) {
			defer func() { broke = recover() != nil }()
			w := &world{unjudged: map[Excuse]int{}, trial: newTrial(""), cfg: Config{Variant: xds.Delta}, content: &content{whole: true}, plan: newDice(1, 0), chance: newDice(1, 1)}
			e := newEnvoy(w)
			e.off = true
			for _, s := range e.order {
				s.known, s.opened = true, true
			}
			e.of(xds.Listener).cache["l"] = thing("l=1>RDS/r")
			e.of(xds.Route).cache["r"] = thing("r=to-x>CDS/x")
			n := &lane{world: w, client: e, ledger: newCourt(t, xds.Delta).l, expired: map[[2]string]bool{}}
			if dropped {
				n.expired[[2]string{xds.Cluster.URL, "x"}] = true
			}
			n.down = []*xds.Response{{Type: xds.Cluster, Changes: &xds.Changes{Upserts: []*xds.Resource{thing("x=1>EDS/e")}}}}
			n.deliverDown()
			return false
		}
		if breaks(true) || !breaks(false) {
			t.Error("it breaks when it has dropped it:", breaks(true), "and else:", breaks(false))
		}
	})
	t.Run("DELTA-15 what it has refused it does not have, though the response is not listed any more", func(t *testing.T) {
		lacks := func(refused bool) (failed bool) {
			defer func() { failed = recover() != nil }()
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1")
			c.ask(xds.Route, "r")
			nonce := c.told(xds.Route, "r=1")
			for _, other := range []string{"a", "b", "c", "d"} {
				c.ask(xds.Route, other)
				c.told(xds.Route, "-"+other)
			}
			req := xds.Request{Type: xds.Route, Nonce: nonce}
			if refused {
				req.Error = &xds.Status{Code: 3}
			}
			c.l.receive(req, true)
			n := &lane{world: &world{}, client: empty{}, ledger: c.l, expired: map[[2]string]bool{}}
			n.converged()
			return false
		}
		if lacks(true) || !lacks(false) {
			t.Error("it lacks what it has refused:", lacks(true), "and what it has accepted:", lacks(false))
		}
	})
	t.Run("TTL-5 what a client has not answered for it may have dropped even at rest, or what may not be told anew yet", func(t *testing.T) {
		lacks := func(answered bool, later time.Duration) (failed bool) {
			defer func() { failed = recover() != nil }()
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1!", "y=1")
			c.ask(xds.Cluster, "x")
			if nonce := c.told(xds.Cluster, "x=1!"); answered {
				c.answer(xds.Cluster, nonce, false)
			}
			if later > 0 {
				c.ask(xds.Cluster, "y")
				c.told(xds.Cluster, "y=1")
				c.wait(later)
			}
			n := &lane{world: &world{}, client: empty{}, ledger: c.l, expired: map[[2]string]bool{{xds.Cluster.URL, "x"}: false, {xds.Cluster.URL, "y"}: true}}
			n.converged()
			return false
		}
		if lacks(false, 0) || !lacks(true, 0) {
			t.Error("it has dropped what is unanswered:", lacks(false, 0), "and what it has answered:", lacks(true, 0))
		}
		if lacks(true, time.Second) || !lacks(true, 5*time.Second) {
			t.Error("behind an unanswered one:", lacks(true, time.Second), "and when that holds back nothing more:", lacks(true, 5*time.Second))
		}
	})
	t.Run("DELTA-9 what a client states is not sent again, unless it expires", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("EDS", "a=1", "b=1!")
		at := func(n string) xds.Version {
			return xds.Version{Name: n, Version: c.view.Table(xds.Endpoint).Lookup(n).Version}
		}
		c.resume(xds.Endpoint, []string{"a", "b"}, at("a"), at("b"))
		c.l.ttl = true
		_, err := c.try(xds.Endpoint, "a=1", "b=1!")
		wrong(t, err, "a was told before")
		c = newCourt(t, xds.Delta)
		c.commit("EDS", "a=1", "b=1!")
		c.resume(xds.Endpoint, []string{"a", "b"}, at("a"), at("b"))
		c.l.ttl = true
		c.told(xds.Endpoint, "b=1!")
	})
	t.Run("TTL-5 a heartbeat of what the version has that a client states", func(t *testing.T) {
		try := func(later bool) error {
			c := newCourt(t, xds.SotW)
			c.commit("RDS", "r=1!>CDS/x")
			stated := c.view.Table(xds.Route).Version()
			if later {
				c.commit("RDS", "r=2!>CDS/x")
			}
			c.l.receive(xds.Request{Type: xds.Route, Names: []string{"r"}, Version: stated, Node: &xds.Node{}}, false)
			c.l.ttl = true
			_, err := c.try(xds.Route, "~"+string(c.view.Table(xds.Route).Lookup("r").Body))
			return err
		}
		if err := try(false); err != nil {
			t.Error(err)
		}
		wrong(t, try(true), "TTL-5")
	})
	t.Run("TTL-5 what was never answered has heartbeats when it is not listed any more", func(t *testing.T) {
		start := func(later int) *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "q=1", "r=1!")
			c.ask(xds.Route, "q", "r")
			c.told(xds.Route, "q=1", "r=1!")
			c.wait(5 * time.Second)
			for i := range later {
				said := "q=" + string(rune('2'+i))
				c.commit("RDS", said)
				nonce := c.told(xds.Route, said)
				c.answer(xds.Route, nonce, false)
			}
			return c
		}
		_, err := start(1).try(xds.Route, "~r=1!")
		wrong(t, err, "TTL-5")
		start(3).told(xds.Route, "~r=1!")
	})
	t.Run("TTL-5 the NACK of a heartbeat that is not listed any more says nothing", func(t *testing.T) {
		start := func(stale bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1!")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1!")
			nonce := c.told(xds.Route, "~r=1!")
			c.told(xds.Route, "~r=1!")
			c.l.receive(xds.Request{Type: xds.Route, Nonce: nonce, Error: &xds.Status{Code: 3}}, stale)
			return c
		}
		start(true).told(xds.Route, "~r=1!")
		_, err := start(false).try(xds.Route, "~r=1!")
		wrong(t, err, "TTL-5")
	})
	t.Run("TTL-3 a late heartbeat brings nothing back", func(t *testing.T) {
		start := func(late time.Duration) *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1!")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1!")
			c.wait(late)
			c.takes(xds.Route, "~r=1!")
			return c
		}
		start(20*time.Second).told(xds.Route, "r=1!")
		_, err := start(19*time.Second).try(xds.Route, "r=1!")
		wrong(t, err, "DELTA-12")
	})
	t.Run("DELTA-7 who asks for what nobody knows any more is told that it is lost", func(t *testing.T) {
		start := func(asks bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "y=1")
			c.resume(xds.Cluster, nil, xds.Version{Name: "x", Version: "old"})
			c.takes(xds.Cluster, "y=1")
			c.commit("CDS", "y=2")
			if asks {
				c.ask(xds.Cluster, "x")
			}
			c.told(xds.Cluster, "y=2") // a part, of which the rest comes
			return c
		}
		if _, err := start(true).say(xds.Cluster, "-x"); err != nil {
			t.Error(err)
		}
		_, err := start(false).say(xds.Cluster, "-x")
		wrong(t, err, "is not open yet")
	})
	t.Run("ADS-8 unknown references refer to everything", func(t *testing.T) {
		c := given(t)
		c.view = xds.Tables{}
		c.takes(xds.Route, "r=to-y>CDS/y")
		k := c.l.account(xds.Route).told["r"]
		k.res.Stamp = &xds.Stamp{Name: "r", Sum: xds.Sum{}}
		c.l.account(xds.Route).told["r"] = k
		_, err := c.try(xds.Cluster, "-x")
		wrong(t, err, "ADS-8: x leaves")
	})
	t.Run("ADS-8 a lost assignment is told, since what was refused may refer to it", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1>EDS/e", "EDS", "e=1")
			c.ask(xds.Cluster)
			c.answer(xds.Cluster, c.told(xds.Cluster, "x=1>EDS/e"), refused)
			c.commit("CDS", "x=2>EDS/e", "EDS", "-e")
			n := c.told(xds.Cluster, "x=2>EDS/e")
			if !refused {
				c.answer(xds.Cluster, n, false)
			}
			c.ask(xds.Endpoint, "e")
			return c
		}
		start(true).told(xds.Endpoint, "e=1")
		_, err := start(false).try(xds.Endpoint, "e=1")
		wrong(t, err, "ADS-4: e@e=1 is not what the view has")
	})
	t.Run("ADS-8 a lost assignment is told, since what is no more the client's refers to it", func(t *testing.T) {
		start := func(x string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1>EDS/e", "EDS", "e=1")
			c.ask(xds.Cluster)
			c.told(xds.Cluster, "x=1>EDS/e")
			c.commit("CDS", x, "EDS", "-e")
			c.ask(xds.Endpoint, "e")
			return c
		}
		start("?x=1>EDS/e").told(xds.Endpoint, "e=1")
		_, err := start("x=1>EDS/e").try(xds.Endpoint, "e=1")
		wrong(t, err, "ADS-4: e@e=1 is not what the view has")
	})
	t.Run("ADS-8 a lost assignment is told, since what the client states to have may refer to it", func(t *testing.T) {
		start := func(accepted bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "EDS", "e=1")
			c.resume(xds.Cluster, []string{"*"}, xds.Version{Name: "x", Version: "unheard of"})
			if n := c.told(xds.Cluster, "x=1"); accepted {
				c.answer(xds.Cluster, n, false)
			}
			c.commit("EDS", "-e")
			c.ask(xds.Endpoint, "e")
			return c
		}
		start(false).told(xds.Endpoint, "e=1")
		_, err := start(true).try(xds.Endpoint, "e=1")
		wrong(t, err, "ADS-4: e@e=1 is not what the view has")
	})
	t.Run("ADS-8 a lost assignment is told, since what went with a response that is not listed any more refers to it", func(t *testing.T) {
		start := func(listed bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1>EDS/e", "EDS", "e=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1>EDS/e")
			c.commit("CDS", "-x", "EDS", "-e")
			gone := c.told(xds.Cluster, "-x")
			for _, y := range []string{"y=1", "y=2", "y=3", "y=4"} {
				c.wait(5 * time.Second)
				c.commit("CDS", y)
				c.told(xds.Cluster, y)
			}
			c.l.receive(xds.Request{Type: xds.Cluster, Nonce: gone}, !listed)
			c.ask(xds.Endpoint, "e")
			return c
		}
		start(false).told(xds.Endpoint, "e=1")
		_, err := start(true).try(xds.Endpoint, "e=1")
		wrong(t, err, "ADS-4: e@e=1 is not what the view has")
	})
	t.Run("ADS-8 a lost assignment is told, since what went with a part of a response that is not listed any more refers to it", func(t *testing.T) {
		start := func(listed bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "w=1", "x=1>EDS/e", "EDS", "e=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "w=1", "x=1>EDS/e")
			c.commit("CDS", "w=2", "x=2", "EDS", "-e")
			c.told(xds.Cluster, "w=2")
			if _, err := c.say(xds.Cluster, "x=2"); err != nil {
				t.Fatal(err)
			}
			for _, y := range []string{"y=1", "y=2", "y=3", "y=4"} {
				c.wait(5 * time.Second)
				c.commit("CDS", y)
				c.told(xds.Cluster, y)
			}
			for _, late := range []string{"3", "2"} {
				c.l.receive(xds.Request{Type: xds.Cluster, Nonce: late}, !listed)
			}
			c.ask(xds.Endpoint, "e")
			return c
		}
		start(false).told(xds.Endpoint, "e=1")
		_, err := start(true).try(xds.Endpoint, "e=1")
		wrong(t, err, "ADS-4: e@e=1 is not what the view has")
	})
	t.Run("DELTA-15 what was refused with a name that has found others meanwhile, and lost them", func(t *testing.T) {
		start := func(found bool) *court {
			c := newCourt(t, xds.Delta)
			c.ask(xds.Route, "n", "q")
			nonce := c.told(xds.Route, "-n", "-q")
			if found {
				c.commit("RDS", "r|n=1")
				c.commit("RDS", "-r")
			}
			c.answer(xds.Route, nonce, true)
			c.ask(xds.Route, "other")
			return c
		}
		start(true).told(xds.Route, "-n", "-other", "-q")
		start(false).told(xds.Route, "-other")
		_, err := start(false).try(xds.Route, "-other", "-q")
		wrong(t, err, "DELTA-8: removes q")
	})
	t.Run("DELTA-11 who drops a resource drops the alias by which it has that, though it finds it no more", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("SDS", "xdstp://a/s/x/2|nick=1")
			c.ask(xds.Secret, "nick")
			c.takes(xds.Secret, "xdstp://a/s/x/2|nick=1")
			c.commit("SDS", "xdstp://a/s/x/2=2")
			c.ask(xds.Secret, "xdstp://a/s/x/*")
			c.commit("CDS", "x=1")
			return c
		}
		c := start()
		c.l.receive(xds.Request{Type: xds.Secret, Unsubscribe: []string{"xdstp://a/s/x/2"}}, false)
		c.takes(xds.Secret, "xdstp://a/s/x/2=2")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c = start()
		c.takes(xds.Secret, "xdstp://a/s/x/2=2")
		if left := c.l.waiting(); left != "SDS: nick is owed, if only its absence" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("DELTA-11 who drops a resource drops the alias by which it has that, of which it was told that it is none itself", func(t *testing.T) {
		start := func(dropped ...string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("SDS", "x|nick=1")
			c.l.receive(xds.Request{Type: xds.Secret, Subscribe: []string{"nick"}, Initial: []xds.Version{{Name: "nick", Version: "old"}}}, false)
			c.l.advance(epoch.Add(silence)) // it has no other type
			c.takes(xds.Secret, "x|nick=1", "-nick")
			c.commit("SDS", "x=2")
			c.l.receive(xds.Request{Type: xds.Secret, Unsubscribe: dropped}, false)
			return c
		}
		if left := start("x").l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start("y").l.waiting(); left != "SDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("DELTA-11 with the alias goes what the client has by that alone, and not what its collection finds", func(t *testing.T) {
		for _, collects := range []bool{true, false} {
			c := newCourt(t, xds.Delta)
			c.commit("SDS", "xdstp://a/s/x/2|nick=1")
			c.ask(xds.Secret, "nick")
			c.takes(xds.Secret, "xdstp://a/s/x/2|nick=1")
			c.commit("SDS", "-xdstp://a/s/x/2")
			if collects {
				c.ask(xds.Secret, "xdstp://a/s/x/*")
			}
			c.told(xds.Secret, "-nick")
			if left := c.l.waiting(); strings.Contains(left, "removes nick, an alias of xdstp://a/s/x/2, which stays") == collects {
				t.Errorf("with its collection %v: waiting: %q", collects, left)
			}
		}
	})
	t.Run("DELTA-7, ADS-8 an alias goes before what is about to leave, if it was asked for after that was lost, and something refers to that", func(t *testing.T) {
		for _, tt := range []struct{ found, held bool }{{false, true}, {true, true}, {false, false}} {
			c := newCourt(t, xds.Delta)
			c.commit("SDS", "x|nick=1", "LDS", "l=1>SDS/x")
			c.ask(xds.Listener)
			c.takes(xds.Listener, "l=1>SDS/x")
			c.ask(xds.Secret, "x")
			if tt.found {
				c.ask(xds.Secret, "nick")
			}
			c.takes(xds.Secret, "x|nick=1")
			c.commit("SDS", "-x", "LDS", "l=2")
			if nonce := c.told(xds.Listener, "l=2"); !tt.held {
				c.answer(xds.Listener, nonce, false)
			}
			c.l.receive(xds.Request{Type: xds.Secret, Subscribe: []string{"nick"}, Unsubscribe: []string{"x"}}, false)
			c.told(xds.Secret, "-nick")
			if left := c.l.waiting(); strings.Contains(left, "removes nick, an alias of x, which stays") == (tt.held && !tt.found) {
				t.Errorf("%+v: waiting: %q", tt, left)
			}
		}
	})
	t.Run("DELTA-7, ADS-8 likewise if it was given up and asked for again after that was lost", func(t *testing.T) {
		for _, again := range []bool{false, true} {
			c := newCourt(t, xds.Delta)
			c.commit("SDS", "x|nick=1", "LDS", "l=1>SDS/x")
			c.ask(xds.Listener)
			c.takes(xds.Listener, "l=1>SDS/x")
			c.ask(xds.Secret, "*", "nick")
			c.takes(xds.Secret, "x|nick=1")
			c.commit("SDS", "-x", "LDS", "l=2")
			c.told(xds.Listener, "l=2")
			if again {
				c.l.receive(xds.Request{Type: xds.Secret, Unsubscribe: []string{"nick"}}, false)
			}
			c.l.receive(xds.Request{Type: xds.Secret, Subscribe: []string{"nick"}, Unsubscribe: []string{"*"}}, false)
			c.told(xds.Secret, "-nick")
			if left := c.l.waiting(); strings.Contains(left, "removes nick, an alias of x, which stays") == again {
				t.Errorf("asked for again %v: waiting: %q", again, left)
			}
		}
	})
	t.Run("DELTA-7 what a client has been told of by another name is removed, and what it has not is told absent", func(t *testing.T) {
		start := func(alias string) (*court, error) {
			c := newCourt(t, xds.Delta)
			c.l.opts.Bodyless = true
			c.commit("SDS", "x|"+alias+"=1")
			c.ask(xds.Secret, "x")
			c.takes(xds.Secret, "x|"+alias+"=1")
			c.ask(xds.Secret, "nick")
			c.commit("SDS", "-x")
			_, err := c.try(xds.Secret, "-x", "-nick")
			return c, err
		}
		if _, err := start("nick"); err != nil {
			t.Error(err)
		}
		_, err := start("other")
		wrong(t, err, "DELTA-7: nick is removed, and this client wants it told absent")
		split := func(alias string) error {
			c := newCourt(t, xds.Delta)
			c.l.opts.Bodyless = true
			c.commit("SDS", "x|"+alias+"=1")
			c.ask(xds.Secret, "x")
			c.takes(xds.Secret, "x|"+alias+"=1")
			c.ask(xds.Secret, "nick")
			c.commit("SDS", "x=2")
			c.told(xds.Secret, "x=2")
			_, err := c.say(xds.Secret, "-nick")
			return err
		}
		if err := split("nick"); err != nil {
			t.Error(err)
		}
		wrong(t, split("other"), "DELTA-7: nick is removed, and this client wants it told absent")
	})
	t.Run("DELTA-6 an alias is given up under a wildcard that finds nothing any more, and what the client has by it is told", func(t *testing.T) {
		start := func(asked, now string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x|n=1", "y=1")
			c.ask(xds.Cluster, asked)
			c.told(xds.Cluster, map[string]string{"n": "x|n=1", "y": "y=1"}[asked])
			c.commit("CDS", now)
			c.l.receive(xds.Request{Type: xds.Cluster, Nonce: "1", Subscribe: []string{"*", "n"}, Unsubscribe: []string{"n"}}, false)
			return c
		}
		for _, tt := range []struct{ now, left string }{{"x=2", "CDS: x differs"}, {"-x", "CDS: x is gone"}} {
			c := start("n", tt.now)
			c.takes(xds.Cluster, tt.now, "y=1")
			if left := c.l.waiting(); left != "" {
				t.Errorf("waiting: %q", left)
			}
			c = start("n", tt.now)
			c.takes(xds.Cluster, "y=1", "-n")
			if left := c.l.waiting(); left != tt.left {
				t.Errorf("waiting: %q, want %q", left, tt.left)
			}
		}
		c := start("y", "x=2")
		c.takes(xds.Cluster, "x=2", "y=1")
		if left := c.l.waiting(); left != "CDS: n is owed, if only its absence" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("DELTA-6 an alias is given up under a wildcard that finds nothing any more, which waits for no answer, though what it had found is asked for by itself", func(t *testing.T) {
		give := func(now ...string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x|n=1", "y=1")
			c.ask(xds.Cluster, "*", "x", "n")
			c.takes(xds.Cluster, "x|n=1", "y=1")
			c.commit("CDS", "y=2")
			c.told(xds.Cluster, "y=2")
			c.commit(append([]string{"CDS"}, now...)...)
			c.l.receive(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"n"}}, false)
			return c
		}
		give("y=3", "-x").told(xds.Cluster, "y=3", "-n", "-x")
		_, err := give("y=3").try(xds.Cluster, "y=3") // it finds x still, which the client has
		wrong(t, err, "SOTW-3: nonce 2 is unanswered")
	})
	t.Run("DELTA-7 Envoy must not hear that a route is gone that it has just asked for, if it has said that it is Envoy", func(t *testing.T) {
		envoy := &xds.Node{UserAgentName: "envoy"}
		c := newCourt(t, xds.Delta)
		c.l.receive(xds.Request{Type: xds.Route, Subscribe: []string{"r"}, Node: envoy}, false)
		_, err := c.try(xds.Route, "-r")
		wrong(t, err, "DELTA-7: r was never told")
		c = newCourt(t, xds.Delta)
		c.l.receive(xds.Request{Type: xds.Route, Subscribe: []string{"r"}}, false)
		c.l.receive(xds.Request{Type: xds.Cluster, Subscribe: []string{"x"}, Node: envoy}, false)
		c.told(xds.Route, "-r")
	})
	t.Run("ADS-7 the last assignment there was, of one that the client states and nobody knows", func(t *testing.T) {
		start := func(accepted bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1>EDS/e", "EDS", "e=1")
			c.ask(xds.Cluster)
			c.told(xds.Cluster, "x=1>EDS/e")
			c.commit("EDS", "-e", "CDS", "-x")
			c.resume(xds.Endpoint, []string{"e"}, xds.Version{Name: "e", Version: "unheard of"})
			if accepted {
				c.answer(xds.Cluster, "1", false)
				c.takes(xds.Cluster, "-x")
			}
			c.ask(xds.Endpoint, "e")
			return c
		}
		start(false).told(xds.Endpoint, "e=1")
		_, err := start(true).try(xds.Endpoint, "e=1")
		wrong(t, err, "ADS-4: e@e=1 is not what the view has")
	})
	t.Run("SOTW-9 what was lost when it was told, and returns, may be told again", func(t *testing.T) {
		start := func(lost ...string) *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1>EDS/e", "EDS", "e=1")
			c.ask(xds.Cluster)
			c.told(xds.Cluster, "x=1>EDS/e")
			c.commit(append([]string{"CDS", "-x"}, lost...)...)
			c.ask(xds.Endpoint, "e")
			c.l.receive(xds.Request{Type: xds.Endpoint, Names: []string{"e"}, Nonce: c.told(xds.Endpoint, "e=1")}, false)
			c.commit("EDS", "e=1")
			return c
		}
		start("EDS", "-e").told(xds.Endpoint, "e=1")
		_, err := start().try(xds.Endpoint, "e=1")
		wrong(t, err, "DELTA-12, DELTA-15: e was told before")
	})
	t.Run("ADS-9 what it had by way of \"*\" on an earlier stream may linger when it asks for it by name", func(t *testing.T) {
		waiting := func(stated bool, wait time.Duration) string {
			c := newCourt(t, xds.SotW)
			c.l.opts.ResourceErrors, c.l.opts.Grace = true, time.Second
			c.commit("ECDS", "f=1", "g=1", "-f")
			c.l.past = past{xds.ExtensionConfig.URL: {"f": {thing("f=1")}}}
			first := xds.Request{Type: xds.ExtensionConfig, Names: []string{"*"}, Node: &xds.Node{}}
			if stated {
				first.Version = "before"
			}
			c.l.receive(first, false)
			n := c.told(xds.ExtensionConfig, "g=1")
			c.wait(wait)
			c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"*", "f"}, Nonce: n}, false)
			c.l.begun()
			return c.l.waiting()
		}
		if left := waiting(true, 0); left != "" {
			t.Errorf("waiting: %q", left)
		}
		for _, left := range []string{waiting(false, 0), waiting(true, silence)} {
			if left != "ECDS: f is owed, if only as an error" {
				t.Errorf("waiting: %q", left)
			}
		}
	})
	t.Run("ADS-9 what it had before it accepted a response that is not listed any more may keep what is lost", func(t *testing.T) {
		overdue := func(stale, again bool) bool {
			c := newCourt(t, xds.SotW)
			c.commit("SDS", "s=1", "ECDS", "f=1")
			c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"f"}, Version: "unheard of", Node: &xds.Node{}}, false)
			c.ask(xds.Secret, "s")
			c.l.receive(xds.Request{Type: xds.Secret, Names: []string{"s"}, Nonce: c.told(xds.Secret, "s=1")}, false)
			first := c.told(xds.ExtensionConfig, "f=1")
			c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"f", "g"}}, false)
			c.wait(patience)
			for _, w := range []string{"g=2", "g=3", "g=4", "g=5"} {
				c.commit("ECDS", w)
				c.told(xds.ExtensionConfig, w)
				c.wait(patience)
			}
			c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"f", "g"}, Nonce: first}, stale)
			if again {
				c.commit("ECDS", "f=2")
				c.told(xds.ExtensionConfig, "f=2")
			}
			c.commit("SDS", "-s")
			return c.l.overdue(c.l.account(xds.Secret), "s")
		}
		if overdue(true, true) {
			t.Error("it may have another f, and that may refer to s")
		}
		if !overdue(false, true) || !overdue(true, false) {
			t.Error("it has what it has accepted")
		}
	})
	t.Run("SOTW-13 what is on demand now and lingers counts in the version of a world", func(t *testing.T) {
		tell := func(version func(t *xds.Table, x *xds.Resource) string) error {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.told(xds.Route, "r=to-x>CDS/x")
			c.commit("CDS", "?x=1", "y=1", "RDS", "r=to-y>CDS/y")
			x, table := thing("?x=1"), c.view.Table(xds.Cluster)
			c.l.begun()
			return c.l.sent(&xds.Response{Type: xds.Cluster, Nonce: "3", Version: version(table, x), Changes: &xds.Changes{Upserts: []*xds.Resource{x, thing("y=1")}}})
		}
		if err := tell(func(t *xds.Table, x *xds.Resource) string {
			return t.VersionWith(func(yield func(*xds.Stamp) bool) { yield(x.Stamp) })
		}); err != nil {
			t.Error(err)
		}
		wrong(t, tell(func(t *xds.Table, _ *xds.Resource) string { return t.Version() }), "SOTW-13: version")
	})
	t.Run("ADS-4 what was given up on its way may linger when all is asked for", func(t *testing.T) {
		start := func(answered bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1")
			c.ask(xds.Cluster, "x")
			n := c.told(xds.Cluster, "x=1")
			c.l.receive(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"x"}}, false)
			c.commit("CDS", "-x")
			if answered {
				c.answer(xds.Cluster, n, false)
			}
			c.ask(xds.Cluster, "*", "x")
			return c
		}
		start(false).told(xds.Cluster, "x=1")
		_, err := start(true).try(xds.Cluster, "x=1")
		wrong(t, err, "ADS-4: x@x=1 is not what the view has")
	})
	t.Run("ADS-4 what was given up on its way, and asked for again before it changes and is lost, may linger as it was", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=0")
			c.commit("CDS", "x=1")
			c.ask(xds.Cluster, "x")
			c.told(xds.Cluster, "x=1")
			c.l.receive(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"x"}}, false)
			c.commit("CDS", "x=2")
			c.ask(xds.Cluster, "x")
			c.commit("CDS", "-x")
			return c
		}
		start().told(xds.Cluster, "x=1")
		_, err := start().try(xds.Cluster, "x=0")
		wrong(t, err, "ADS-4: x@x=0 is not what the view has")
	})
	t.Run("ADS-4 so may what is asked for again by its collection", func(t *testing.T) {
		start := func(again bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("LEDS", "xdstp://a/e/g/1=1")
			c.ask(xds.LbEndpoint, "xdstp://a/e/g/*")
			c.told(xds.LbEndpoint, "xdstp://a/e/g/1=1")
			c.l.receive(xds.Request{Type: xds.LbEndpoint, Unsubscribe: []string{"xdstp://a/e/g/*"}}, false)
			c.commit("LEDS", "xdstp://a/e/g/1=2")
			c.ask(xds.LbEndpoint, "xdstp://a/e/h/*")
			if again {
				c.ask(xds.LbEndpoint, "xdstp://a/e/g/*")
			}
			c.commit("LEDS", "-xdstp://a/e/g/1")
			return c
		}
		start(true).told(xds.LbEndpoint, "xdstp://a/e/g/1=1")
		_, err := start(false).try(xds.LbEndpoint, "xdstp://a/e/g/1=1")
		wrong(t, err, "SOTW-9: xdstp://a/e/g/1 is not subscribed")
	})
	t.Run("ADS-8 what was given up on its way may linger when it is asked for again", func(t *testing.T) {
		start := func(again bool) *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1")
			c.ask(xds.Cluster, "x")
			n := c.told(xds.Cluster, "x=1")
			c.ask(xds.Cluster, "y")
			c.commit("CDS", "-x")
			if again {
				c.ask(xds.Cluster, "x")
				c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x"}, Nonce: n}, false)
			} else {
				c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"y"}, Nonce: n}, false)
				c.ask(xds.Cluster, "x")
			}
			return c
		}
		start(true).told(xds.Cluster, "x=1")
		_, err := start(false).try(xds.Cluster, "x=1")
		wrong(t, err, "ADS-4: x@x=1 is not what the view has")
	})
	t.Run("ADS-8 what was given up on its way may linger when its collection is asked for again", func(t *testing.T) {
		holds := func(referred bool) (failed bool) {
			defer func() { failed = recover() != nil }()
			c := newCourt(t, xds.Delta)
			name, all := "xdstp://a/e/1", "xdstp://a/e/*"
			c.commit("EDS", "e=1>LEDS/"+all, "LEDS", name+"=1")
			c.ask(xds.Endpoint, "e")
			c.takes(xds.Endpoint, "e=1>LEDS/"+all)
			c.ask(xds.LbEndpoint, all)
			c.told(xds.LbEndpoint, name+"=1")
			c.l.receive(xds.Request{Type: xds.LbEndpoint, Unsubscribe: []string{all}}, false)
			c.commit("LEDS", "-"+name, "EDS", "e=2")
			if !referred {
				c.takes(xds.Endpoint, "e=2")
			}
			c.ask(xds.LbEndpoint, all)
			c.told(xds.LbEndpoint, "-"+all)
			n := &lane{world: &world{cfg: Config{Variant: xds.Delta}}, client: holder{has: map[string]*xds.Resource{name: thing(name + "=1")}}, ledger: c.l}
			n.converged()
			return false
		}
		if holds(true) || !holds(false) {
			t.Error("what is referred to lingers:", !holds(true), "what is not leaves:", holds(false))
		}
	})
	t.Run("ADS-9 a route before the clusters of a client that resumes", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1", "RDS", "r=to-x>CDS/x", "free=1")
		c.resume(xds.Route, []string{"r", "free"}, xds.Version{Name: "r", Version: "old"})
		_, err := c.try(xds.Route, "r=to-x>CDS/x", "free=1")
		wrong(t, err, "ADS-9")
		c = newCourt(t, xds.Delta)
		c.commit("CDS", "x=1", "RDS", "r=to-x>CDS/x", "free=1")
		c.resume(xds.Route, []string{"r", "free"}, xds.Version{Name: "r", Version: "old"})
		c.takes(xds.Route, "free=1")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c.wait(15 * time.Second)
		if left := c.l.waiting(); left != "RDS: r differs" {
			t.Errorf("waiting: %q", left)
		}
		c.told(xds.Route, "r=to-x>CDS/x")
	})
	t.Run("ADS-3 a NACK keeps what was in force, also if only a later response was acknowledged, and no silence ends that", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1>EDS/x", "EDS", "x=1")
			c.ask(xds.Cluster)
			c.told(xds.Cluster, "x=1>EDS/x")
			c.ask(xds.Endpoint, "x")
			c.takes(xds.Endpoint, "x=1")
			c.wait(patience)
			c.commit("CDS", "y=1")
			c.takes(xds.Cluster, "y=1")
			c.commit("CDS", "x=2", "EDS", "-x")
			c.answer(xds.Cluster, c.told(xds.Cluster, "x=2"), refused)
			c.commit("CDS", "y=2")
			c.told(xds.Cluster, "y=2")
			c.wait(silence)
			return c
		}
		if left := start(true).l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start(false).l.waiting(); left != "EDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-3 ADS-9 a host that a client states is held until it hears that it is gone, if it asks for all", func(t *testing.T) {
		start := func(asks string, says ...string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"q"}}, false)
			c.resume(xds.VirtualHost, []string{"r/b"}, xds.Version{Name: "r/a", Version: "old"})
			c.told(xds.VirtualHost, "-r/a", "-r/b")
			c.ask(xds.VirtualHost, asks)
			c.told(xds.VirtualHost, says...)
			c.wait(silence) // no other type is waited for
			c.commit("CDS", "-x")
			return c
		}
		if left := start(xds.Wildcard).l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start("r/b", "-r/b").l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-3 silence counts from when something came to refer to what was lost, if that could not leave before", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1", "RDS", "r=1>CDS/x")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1")
		c.ask(xds.Route, "r")
		c.told(xds.Route, "r=1>CDS/x")
		c.commit("CDS", "y=1")
		c.told(xds.Cluster, "y=1")
		c.commit("CDS", "-x") // the view's own route refers to it, which counts not
		c.l.begun()
		c.wait(4 * time.Second)
		c.commit("RDS", "r=2")
		c.l.begun()
		c.wait(silence - 4*time.Second)
		if left := c.l.waiting(); left != "RDS: r differs" {
			t.Errorf("waiting: %q", left)
		}
		c.wait(4 * time.Second)
		if left := c.l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("TTL-3 what lingers keeps its heartbeats", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1!", "RDS", "r=to-x>CDS/x")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1!")
		c.ask(xds.Route, "r")
		c.takes(xds.Route, "r=to-x>CDS/x")
		c.l.waiting()
		c.commit("CDS", "-x", "RDS", "r=bad")
		c.refuses(xds.Route, "r=bad")
		c.wait(11 * time.Second)
		if left := c.l.waiting(); !strings.Contains(left, "TTL-3: x@x=1") {
			t.Errorf("waiting: %q", left)
		}
		c.told(xds.Cluster, "~x=1!")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("TTL-3 what is lost while it waits to be changed", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1", "LDS", "l=1>RDS/r", "RDS", "r=1!")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1")
		c.ask(xds.Listener)
		c.refuses(xds.Listener, "l=1>RDS/r")
		c.ask(xds.Route, "r")
		c.takes(xds.Route, "r=1!")
		c.l.waiting()
		c.commit("CDS", "y=1", "RDS", "r=2>CDS/y")
		c.told(xds.Cluster, "y=1")
		c.wait(5 * time.Second)
		c.commit("LDS", "l=2", "RDS", "-r")
		c.refuses(xds.Listener, "l=2")
		c.wait(9 * time.Second)
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c.wait(2 * time.Second)
		if left := c.l.waiting(); !strings.Contains(left, "TTL-3: r@r=1") {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("TTL-4 the heartbeat of a world that waits, and of one that does not", func(t *testing.T) {
		start := func(word string) *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "LDS", "l=1!")
			c.ask(xds.Cluster)
			c.l.ttl = true
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Listener)
			c.takes(xds.Listener, "l=1!")
			c.l.waiting()
			c.commit("CDS", "y=1", "LDS", word)
			c.told(xds.Cluster, "x=1", "y=1")
			c.wait(11 * time.Second)
			return c
		}
		if left := start("m=1>CDS/y").l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start("l=1!").l.waiting(); !strings.Contains(left, "TTL-3: l@l=1") {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("SOTW-12 what a client states is current, or was when it came", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return false }
			c.commit("CDS", "x=1")
			c.l.receive(xds.Request{Type: xds.Cluster, Node: &xds.Node{}, Version: c.view.Table(xds.Cluster).Version()}, false)
			return c
		}
		_, err := start().try(xds.Cluster, "x=1")
		wrong(t, err, "SOTW-6")
		c := start()
		lazy := &xds.Resource{Stamp: &xds.Stamp{Name: "y", Refs: []xds.Ref{}}, Type: xds.Cluster, OnDemand: true}
		lazy.Seal("")
		next := xds.Tables{xds.Cluster.URL: with(c.view.Table(xds.Cluster), []*xds.Resource{lazy})}
		c.view = next
		c.l.change(next)
		c.told(xds.Cluster, "x=1")
		_, err = c.try(xds.Cluster, "x=1")
		wrong(t, err, "SOTW-3")
	})
	t.Run("SOTW-18 what a client states that has refused another before", func(t *testing.T) {
		for refused, want := range map[bool]string{false: "CDS: x is gone", true: ""} {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return refused }
			c.commit("CDS", "x=1", "LDS", "l=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.l.receive(xds.Request{Type: xds.Listener, Version: c.view.Table(xds.Listener).Version()}, false)
			c.l.accounts[1].answer = false
			c.wait(20 * time.Second) // for the types that it does not open
			c.commit("CDS", "-x")
			if left := c.l.waiting(); left != want {
				t.Errorf("refused %v: waiting: %q", refused, left)
			}
		}
	})
	t.Run("ADS-8 what was dropped on its way may be held", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1", "RDS", "r=1>CDS/x")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1")
		c.ask(xds.Route, "r", "s")
		nonce := c.told(xds.Route, "r=1>CDS/x", "-s")
		c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}, false)
		c.commit("CDS", "-x", "RDS", "-r")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		c.answer(xds.Route, nonce, false)
		if left := c.l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("ADS-8 an endpoint leaves while an assignment names its collection", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("EDS", "x=1>LEDS/xdstp://a/e/g/*", "LEDS", "xdstp://a/e/g/1=1")
			c.ask(xds.Endpoint, "x")
			c.takes(xds.Endpoint, "x=1>LEDS/xdstp://a/e/g/*")
			c.ask(xds.LbEndpoint, "xdstp://a/e/g/*")
			c.takes(xds.LbEndpoint, "xdstp://a/e/g/1=1")
			c.commit("EDS", "x=2", "LEDS", "-xdstp://a/e/g/1")
			return c
		}
		_, err := start().try(xds.LbEndpoint, "-xdstp://a/e/g/1")
		wrong(t, err, "ADS-8: xdstp://a/e/g/1 leaves")
		c := start()
		c.takes(xds.Endpoint, "x=2")
		c.told(xds.LbEndpoint, "-xdstp://a/e/g/1", "-xdstp://a/e/g/*")
	})
	t.Run("TTL-3 what is in force while its successor waits keeps its heartbeats", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1", "RDS", "r=1!>CDS/x")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1")
		c.ask(xds.Route, "r")
		c.takes(xds.Route, "r=1!>CDS/x")
		c.l.waiting()
		c.commit("CDS", "y=1", "RDS", "r=2!>CDS/y")
		c.told(xds.Cluster, "y=1")
		c.wait(11 * time.Second)
		if left := c.l.waiting(); !strings.Contains(left, "TTL-3: r@r=1") {
			t.Errorf("waiting: %q", left)
		}
		c.told(xds.Route, "~r=1!>CDS/x")
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("TTL-3 heartbeats do not end while what waits is tied to a refused cluster", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1!>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1!>CDS/x")
			c.commit("CDS", "y=1>EDS/y", "RDS", "r=2>CDS/y", "EDS", "y=1")
			c.answer(xds.Cluster, c.told(xds.Cluster, "y=1>EDS/y"), refused)
			return c
		}
		if !start(true).l.feeds() {
			t.Error("it may fall silent")
		}
		if start(false).l.feeds() {
			t.Error("it need not fall silent")
		}
	})
	t.Run("TTL-3 nor do those of what was given up on its way, and asked for again", func(t *testing.T) {
		start := func(refused bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1!>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			came := c.told(xds.Route, "r=1!>CDS/x")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}, false)
			c.ask(xds.Route, "r")
			c.answer(xds.Route, came, false)
			c.commit("CDS", "y=1>EDS/y", "RDS", "r=2>CDS/y", "EDS", "y=1")
			c.answer(xds.Cluster, c.told(xds.Cluster, "y=1>EDS/y"), refused)
			return c
		}
		if !start(true).l.feeds() {
			t.Error("it may fall silent")
		}
		if start(false).l.feeds() {
			t.Error("it need not fall silent")
		}
	})
	t.Run("TTL-3 heartbeats of what lingers may begin when it is acknowledged", func(t *testing.T) {
		start := func(ttl string) *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1>CDS/x")
			c.ask(xds.Cluster)
			c.l.ttl = true
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.refuses(xds.Route, "r=1>CDS/x")
			c.commit("CDS", "x=2"+ttl)
			c.told(xds.Cluster, "x=2"+ttl)
			c.commit("CDS", "-x")
			return c
		}
		if !start("!").l.feeds() {
			t.Error("it may fall silent")
		}
		if start("").l.feeds() {
			t.Error("it need not fall silent")
		}
	})
	t.Run("TTL-3 a heartbeat of what a client states, and no name finds any more", func(t *testing.T) {
		start := func(refs string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("LEDS", "xdstp://a/e/g/1=1!", "EDS", "x=1>LEDS/"+refs)
			c.ask(xds.Endpoint, "x")
			c.takes(xds.Endpoint, "x=1>LEDS/"+refs)
			c.commit("LEDS", "-xdstp://a/e/g/1", "EDS", "x=2")
			c.resume(xds.LbEndpoint, []string{"xdstp://a/e/g/*"}, xds.Version{Name: "xdstp://a/e/g/1", Version: thing("xdstp://a/e/g/1=1!").Version})
			return c
		}
		start("xdstp://a/e/g/*").told(xds.LbEndpoint, "~xdstp://a/e/g/1=1!")
		_, err := start("xdstp://a/e/h/*").try(xds.LbEndpoint, "~xdstp://a/e/g/1=1!")
		wrong(t, err, "TTL-3: a heartbeat of xdstp://a/e/g/1")
	})
	t.Run("TTL-3 ADS-9 a heartbeat of what a client states, while what a name finds instead waits", func(t *testing.T) {
		start := func(states string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "VHDS", "?r/a|nick=2>CDS/x")
			c.resume(xds.VirtualHost, []string{"r/*"}, xds.Version{Name: "r/a", Version: thing(states).Version})
			c.l.ttl = true
			c.ask(xds.VirtualHost, "nick")
			return c
		}
		start("r/a=1!").told(xds.VirtualHost, "~r/a=1!")
		_, err := start("r/a=0!").try(xds.VirtualHost, "~r/a=1!")
		wrong(t, err, "TTL-3: a heartbeat of r/a")
	})
	t.Run("TTL-3 what has left, and returns as another that waits, was not in force meanwhile", func(t *testing.T) {
		start := func(asked bool) *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1!>CDS/x")
			c.ask(xds.Cluster)
			c.l.ttl = true
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.l.receive(xds.Request{Type: xds.Route, Names: []string{"r"}, Nonce: c.told(xds.Route, "r=1!>CDS/x")}, false)
			c.l.waiting()
			c.commit("RDS", "-r")
			if asked {
				c.l.begun() // nothing keeps it
			}
			c.commit("CDS", "y=1", "RDS", "r=2!>CDS/y")
			c.told(xds.Cluster, "x=1", "y=1")
			c.wait(11 * time.Second)
			return c
		}
		if left := start(true).l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := start(false).l.waiting(); !strings.Contains(left, "TTL-3: r@r=1") {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("TTL-3 a client drops what has left, though something refers to it again", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1>SDS/s", "SDS", "s=1!")
			c.ask(xds.Cluster)
			c.l.ttl = true
			c.takes(xds.Cluster, "x=1>SDS/s")
			c.ask(xds.Secret, "s")
			c.l.receive(xds.Request{Type: xds.Secret, Names: []string{"s"}, Nonce: c.told(xds.Secret, "s=1!")}, false)
			c.l.waiting()
			c.commit("CDS", "x=2", "SDS", "-s")
			return c
		}
		why := func(c *court) []Excuse {
			c.wait(30 * time.Second)
			_, why := c.l.pleas(clock{typ: xds.Secret, res: thing("s=1!"), fed: epoch})
			return why
		}
		c := start()
		c.told(xds.Cluster, "x=2")
		c.l.account(xds.Cluster).quiet = epoch.Add(20 * time.Second) // it has answered something before that
		if got := why(c); len(got) > 0 {
			t.Errorf("excused while the cluster of before may refer to it: %q", got)
		}
		c = start()
		c.takes(xds.Cluster, "x=2")
		c.l.begun() // nothing keeps it
		c.commit("CDS", "x=3>SDS/s")
		c.told(xds.Cluster, "x=3>SDS/s")
		c.commit("CDS", "x=4")
		if got := why(c); !slices.Equal(got, []Excuse{replaced}) {
			t.Errorf("it has left: %q", got)
		}
	})
	t.Run("TTL-3 nothing is due of what has left, though it is back and lost again where something refers to it", func(t *testing.T) {
		starving := func(asked bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1>SDS/s", "SDS", "s=1!")
			c.ask(xds.Cluster)
			c.l.ttl = true
			c.takes(xds.Cluster, "x=1>SDS/s")
			c.ask(xds.Secret, "s")
			c.l.receive(xds.Request{Type: xds.Secret, Names: []string{"s"}, Nonce: c.told(xds.Secret, "s=1!")}, false)
			c.l.waiting()
			c.commit("CDS", "x=2", "SDS", "-s")
			c.takes(xds.Cluster, "x=2")
			if asked {
				c.l.begun() // nothing keeps it
			}
			c.commit("CDS", "x=3>SDS/s", "SDS", "s=2!")
			c.told(xds.Cluster, "x=3>SDS/s")
			c.commit("CDS", "x=4", "SDS", "-s")
			c.wait(11 * time.Second)
			return c.l.starving(c.l.account(xds.Secret))
		}
		if got := starving(true); got != "" {
			t.Errorf("it has left: %q", got)
		}
		if got := starving(false); !strings.Contains(got, "TTL-3: s@s=1") {
			t.Errorf("it was there all the time: %q", got)
		}
	})
	t.Run("ADS-9 who refuses what a later ACK stood for may still have what it had before", func(t *testing.T) {
		held := func(refused bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1", "RDS", "s=1")
			names := []string{"r", "s"}
			c.l.receive(xds.Request{Type: xds.Route, Names: names, Version: "before", Node: &xds.Node{}}, false)
			first := c.told(xds.Route, "r=1")
			second, err := c.say(xds.Route, "s=1")
			if err != nil {
				t.Error(err)
			}
			c.l.receive(xds.Request{Type: xds.Route, Names: names, Nonce: second}, false)
			answer := xds.Request{Type: xds.Route, Names: names, Nonce: first}
			if refused {
				answer.Error = &xds.Status{Code: 3}
			}
			c.l.receive(answer, false)
			return c.keeps("x", possibly)
		}
		if what := held(false); what != "" {
			t.Errorf("it has what it was told: %s", what)
		}
		if held(true) == "" {
			t.Error("it has what it was told, though it has refused it")
		}
	})
	t.Run("ADS-8 of what was given up on its way the newest may linger when it is asked for again", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1")
			c.ask(xds.Cluster, "x")
			c.told(xds.Cluster, "x=1")
			c.commit("CDS", "x=2")
			c.wait(patience)
			c.told(xds.Cluster, "x=2")
			c.ask(xds.Cluster, "y")
			c.commit("CDS", "-x")
			c.ask(xds.Cluster, "x")
			c.wait(patience)
			return c
		}
		start().told(xds.Cluster, "x=2")
		_, err := start().try(xds.Cluster, "x=1")
		wrong(t, err, "ADS-4: x@x=1 is not what the view has")
	})
	t.Run("ADS-3, ADS-9 no silence makes a client let go of what it had before, if it has refused what it was told instead", func(t *testing.T) {
		held := func(refused bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1", "RDS", "s=1")
			names := []string{"r", "s"}
			c.l.receive(xds.Request{Type: xds.Route, Names: names, Version: "before", Node: &xds.Node{}}, false)
			answer := xds.Request{Type: xds.Route, Names: names, Nonce: c.told(xds.Route, "r=1")}
			if refused {
				answer.Error = &xds.Status{Code: 3}
			}
			c.l.receive(answer, false)
			c.told(xds.Route, "s=1")
			c.wait(silence)
			return c.keeps("x", possibly)
		}
		if held(true) == "" {
			t.Error("it lets go of what it had, though it has taken nothing else")
		}
		if what := held(false); what != "" {
			t.Errorf("it is silent: %s", what)
		}
	})
	t.Run("ADS-9 who refuses all that it is told may still have what it had before, though it takes something else", func(t *testing.T) {
		held := func(version string, refused bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1")
			c.l.receive(xds.Request{Type: xds.Route, Names: []string{"*"}, Version: version, Node: &xds.Node{}}, false)
			answer := xds.Request{Type: xds.Route, Names: []string{"*"}, Nonce: c.told(xds.Route, "r=1")}
			if refused {
				answer.Error = &xds.Status{Code: 3}
			}
			c.l.receive(answer, false)
			c.commit("RDS", "s=1")
			c.l.receive(xds.Request{Type: xds.Route, Names: []string{"*"}, Nonce: c.told(xds.Route, "s=1")}, false)
			return c.keeps("x", possibly)
		}
		if held("before", true) == "" {
			t.Error("it has what it was told, though it has refused it")
		}
		for version, refused := range map[string]bool{"before": false, "": true} {
			if what := held(version, refused); what != "" {
				t.Errorf("it has what it was told, or had nothing before: %s", what)
			}
		}
	})
	t.Run("ADS-3 what was in force before a part that is refused after the next one", func(t *testing.T) {
		for _, d := range []doubt{surely, possibly} {
			held := func(refused, next bool) string {
				c := newCourt(t, xds.SotW)
				c.commit("CDS", "x=1", "RDS", "a=1>CDS/x", "b=1")
				c.ask(xds.Cluster)
				c.takes(xds.Cluster, "x=1")
				names := []string{"a", "b"}
				answer := func(nonce string, refused bool) {
					r := xds.Request{Type: xds.Route, Names: names, Nonce: nonce}
					if refused {
						r.Error = &xds.Status{Code: 3}
					}
					c.l.receive(r, false)
				}
				c.ask(xds.Route, names...)
				answer(c.told(xds.Route, "a=1>CDS/x", "b=1"), false)
				c.commit("CDS", "-x", "RDS", "a=2", "b=2")
				first := c.told(xds.Route, "a=2")
				second, err := c.say(xds.Route, "b=2")
				if err != nil {
					t.Error(err)
				}
				answer(second, next)
				answer(first, refused)
				return c.keeps("x", d)
			}
			for _, next := range []bool{true, false} {
				if held(true, next) == "" {
					t.Errorf("it has what it had, for it has refused the other: the next is refused: %v", next)
				}
				if what := held(false, next); what != "" {
					t.Errorf("it has what it was told: %s", what)
				}
			}
		}
	})
	t.Run("ADS-9 what a client has given up on this stream it has not from before when it asks for it again", func(t *testing.T) {
		has := func(asked ...[]string) bool {
			c := newCourt(t, xds.SotW)
			c.l.past = past{xds.Route.URL: {"r": {thing("r=to-x>CDS/x")}}}
			for _, names := range asked {
				c.l.receive(xds.Request{Type: xds.Route, Names: names, Version: "before", Node: &xds.Node{}}, false)
			}
			return len(earlier(c.l).of(xds.Route, "r")) > 0
		}
		if has([]string{"q", "r"}, []string{"q"}, []string{"q", "r"}) {
			t.Error("it has given it up")
		}
		if !has([]string{"q", "r"}, []string{"r"}) {
			t.Error("nothing has told it otherwise")
		}
	})
	t.Run("ADS-9 what a client had by way of the wildcard it has still if it goes on to ask for that by its name", func(t *testing.T) {
		for name, want := range map[string]bool{"r": true, "q": false} {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=2")
			c.l.past = past{xds.Route.URL: {"r": {thing("r=to-x>CDS/x")}}}
			for _, asked := range []string{"*", name} {
				c.l.receive(xds.Request{Type: xds.Route, Names: []string{asked}, Version: "before", Node: &xds.Node{}}, false)
			}
			if why := c.keeps("x", surely); (why != "") != want {
				t.Errorf("it asks for %s then: %q", name, why)
			}
		}
	})
	t.Run("ADS-8 ADS-9 a virtual host that the client states may linger when it asks for the route again, as one that it was told", func(t *testing.T) {
		for _, stated := range []bool{true, false} {
			for _, held := range []bool{true, false} {
				c := newCourt(t, xds.Delta)
				c.commit("VHDS", "r/a=1", "RDS", "q=1>VHDS/*", "r=1")
				c.ask(xds.Route, "q", "r")
				c.takes(xds.Route, "q=1>VHDS/*", "r=1")
				if stated {
					c.commit("VHDS", "r/a=2")
					c.resume(xds.VirtualHost, nil, xds.Version{Name: "r/a", Version: c.past[len(c.past)-1].Lookup("r/a").Version})
				} else {
					c.ask(xds.VirtualHost)
					c.takes(xds.VirtualHost, "r/a=1", "-q/*")
				}
				c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}, false)
				if c.commit("VHDS", "-r/a"); held {
					c.commit("RDS", "q=2") // of which it was not told
				}
				c.ask(xds.Route, "r")
				if got := c.l.lingering(c.l.account(xds.VirtualHost), "r/a"); got != held {
					t.Errorf("stated: %v, a route that it may hold refers to it: %v, and it may linger: %v", stated, held, got)
				}
			}
		}
	})
	t.Run("ADS-9 what it had before a response that it did not answer may keep what is lost when it refuses a later one", func(t *testing.T) {
		overdue := func(refused bool) bool {
			c := newCourt(t, xds.SotW)
			c.commit("SDS", "s=1", "ECDS", "f=1")
			c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"f"}, Version: "unheard of", Node: &xds.Node{}}, false)
			c.ask(xds.Secret, "s")
			c.l.receive(xds.Request{Type: xds.Secret, Names: []string{"s"}, Nonce: c.told(xds.Secret, "s=1")}, false)
			c.told(xds.ExtensionConfig, "f=1")
			c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"f", "g"}}, false)
			c.wait(silence)
			c.commit("ECDS", "g=2")
			answer := xds.Request{Type: xds.ExtensionConfig, Names: []string{"f", "g"}, Nonce: c.told(xds.ExtensionConfig, "g=2")}
			if refused {
				answer.Error = &xds.Status{Code: 3}
			}
			c.l.receive(answer, false)
			c.commit("SDS", "-s")
			return c.l.overdue(c.l.account(xds.Secret), "s")
		}
		if overdue(true) {
			t.Error("it has not said that it has accepted f")
		}
		if !overdue(false) {
			t.Error("the last that it accepts stands for all before")
		}
	})
	t.Run("ADS-9 what it had before a response that it accepts when that is not listed any more may keep what is lost, while it is to be told anew", func(t *testing.T) {
		overdue := func(anew bool) bool {
			c := newCourt(t, xds.SotW)
			c.commit("SDS", "s=1", "ECDS", "f=1")
			c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"f", "g"}, Version: "unheard of", Node: &xds.Node{}}, false)
			c.ask(xds.Secret, "s")
			c.l.receive(xds.Request{Type: xds.Secret, Names: []string{"s"}, Nonce: c.told(xds.Secret, "s=1")}, false)
			nonces := []string{c.told(xds.ExtensionConfig, "f=1")}
			for _, g := range []string{"g=1", "g=2", "g=3", "g=4"} {
				c.wait(patience)
				c.commit("ECDS", g)
				nonces = append(nonces, c.told(xds.ExtensionConfig, g))
			}
			for i, n := range nonces {
				c.l.receive(xds.Request{Type: xds.ExtensionConfig, Names: []string{"f", "g"}, Nonce: n}, i == 0)
			}
			if anew {
				c.commit("ECDS", "f=2")
			}
			c.commit("SDS", "-s")
			return c.l.overdue(c.l.account(xds.Secret), "s")
		}
		if overdue(true) {
			t.Error("of f a session need not know what it has until it is told that anew")
		}
		if !overdue(false) {
			t.Error("there is nothing to tell it of f")
		}
	})
	t.Run("ADS-3 what was in force, and what was refused, before a part that is refused after the next one was acknowledged", func(t *testing.T) {
		held := func(d doubt, cluster string, refused bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "y=1", "RDS", "a=1>CDS/x", "b=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1", "y=1")
			names := []string{"a", "b"}
			answer := func(nonce string, refused bool) {
				r := xds.Request{Type: xds.Route, Names: names, Nonce: nonce}
				if refused {
					r.Error = &xds.Status{Code: 3}
				}
				c.l.receive(r, false)
			}
			c.ask(xds.Route, names...)
			answer(c.told(xds.Route, "a=1>CDS/x", "b=1"), false)
			c.commit("RDS", "a=2>CDS/y", "b=2")
			answer(c.told(xds.Route, "a=2>CDS/y", "b=2"), true)
			c.commit("RDS", "a=3", "b=3")
			first := c.told(xds.Route, "a=3")
			second, err := c.say(xds.Route, "b=3")
			if err != nil {
				t.Error(err)
			}
			answer(second, false)
			answer(first, refused)
			return c.keeps(cluster, d)
		}
		for _, d := range []doubt{surely, possibly} {
			if held(d, "x", true) == "" {
				t.Error("it has what was in force, for it has refused all since")
			}
			for _, cluster := range []string{"x", "y"} {
				if what := held(d, cluster, false); what != "" {
					t.Errorf("it has what it was told: %s", what)
				}
			}
		}
		if held(possibly, "y", true) == "" {
			t.Error("it may have what it has refused before")
		}
		if what := held(surely, "y", true); what != "" {
			t.Errorf("who takes the ACK for that of both parts need not remember what was refused before: %s", what)
		}
	})
	t.Run("ADS-6 a route waits for a name that the client has stated, refused and been told again", func(t *testing.T) {
		waits := func(refused bool) bool {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return false }
			c.commit("CDS", "x=1", "RDS", "r=1>CDS/x")
			c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x"}, Version: c.view.Table(xds.Cluster).Version(), Node: &xds.Node{}}, false)
			answer := xds.Request{Type: xds.Cluster, Names: []string{"x"}, Nonce: c.told(xds.Cluster, "x=1")}
			if refused {
				answer.Error = &xds.Status{Code: 3}
			}
			c.l.receive(answer, false)
			c.commit("CDS", "y=1")
			c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x", "y"}}, false)
			c.told(xds.Cluster, "x=1", "y=1")
			c.ask(xds.Route, "r")
			return c.l.waiting() == ""
		}
		if !waits(true) {
			t.Error("it may not have had x")
		}
		if waits(false) {
			t.Error("it has x")
		}
	})
	t.Run("ADS-6 a route waits for a refused cluster until it is mended, or the client silent", func(t *testing.T) {
		left := func(refs string) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1"+refs, "EDS", "e=1", "RDS", "r=1>CDS/x")
			c.ask(xds.Cluster)
			c.refuses(xds.Cluster, "x=1"+refs)
			c.commit("CDS", "x=2"+refs)
			nonce := c.told(xds.Cluster, "x=2"+refs)
			c.ask(xds.Route, "r")
			c.wait(time.Second)
			c.l.waiting()
			c.commit("CDS", "x=3"+refs)
			c.wait(patience)
			c.told(xds.Cluster, "x=3"+refs)
			c.wait(2 * time.Second)
			c.answer(xds.Cluster, nonce, true)
			c.wait(silence - time.Second)
			return c.l.waiting()
		}
		if left := left(">EDS/e"); left != "" {
			t.Errorf("the client is not silent: %q", left)
		}
		if left := left(""); left != "RDS: r differs" {
			t.Errorf("it has waited for 15 s: %q", left)
		}
	})
	t.Run("ADS-6 who leaves a part of a response unanswered is silent, though it has answered the others", func(t *testing.T) {
		tardy := func(all bool) bool {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "a=1", "b=1")
			c.ask(xds.Route, "a", "b")
			first := c.told(xds.Route, "a=1")
			second, err := c.say(xds.Route, "b=1")
			if err != nil {
				t.Error(err)
			}
			c.answer(xds.Route, second, false)
			if all {
				c.answer(xds.Route, first, false)
			}
			c.wait(silence)
			return c.l.tardy
		}
		if !tardy(false) || tardy(true) {
			t.Error("order is given up for who leaves a part unanswered:", tardy(false), "for who answers all:", tardy(true))
		}
	})
	t.Run("ADS-9 a client that says late that it resumes has not opened its clusters in time", func(t *testing.T) {
		late := func(after time.Duration) bool {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return false }
			c.ask(xds.Runtime, "t")
			c.wait(after)
			c.ask(xds.Route, "r")
			c.l.receive(xds.Request{Type: xds.Listener, Version: "before"}, false)
			return c.l.tardy
		}
		if !late(silence) {
			t.Error("what it has need not wait for them any more")
		}
		if late(time.Second) {
			t.Error("it may still open them")
		}
	})
	t.Run("ADS-9 a session need not know what a client had of a world before the one that it states", func(t *testing.T) {
		leaves := func(has bool) error {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return !has }
			c.commit("CDS", "x=1", "CDS", "y=1", "RDS", "r=to-y>CDS/y")
			c.l.past = past{xds.Cluster.URL: {"y": {thing("y=1")}}}
			version := c.view.Table(xds.Cluster).Version()
			if !has {
				version = c.past[0].Version() // of x alone
			}
			c.l.receive(xds.Request{Type: xds.Cluster, Version: version, Node: &xds.Node{}}, false)
			c.ask(xds.Route, "r")
			c.l.account(xds.Route).told["r"] = fact{res: thing("r=to-y>CDS/y")}
			c.commit("CDS", "-y", "CDS", "z=1", "RDS", "r=to-z>CDS/z")
			_, err := c.try(xds.Cluster, "x=1", "z=1")
			return err
		}
		if err := leaves(false); err != nil {
			t.Error(err)
		}
		wrong(t, leaves(true), "ADS-3, ADS-8: y leaves while the client may hold RDS r@r=to-y")
	})
	t.Run("ADS-9 who was told otherwise since the version that it states is told the same again", func(t *testing.T) {
		resumes := func(since ...string) *court {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return false }
			c.commit("CDS", "x=1")
			version := c.view.Table(xds.Cluster).Version()
			for _, v := range append([]string{version}, since...) {
				c.l.sends[xds.Cluster.URL] = append(c.l.sends[xds.Cluster.URL], sending{v, []*xds.Resource{thing("x=1"), thing("y=1")}})
			}
			c.l.past = past{xds.Cluster.URL: {"y": {thing("y=1")}}}
			c.l.receive(xds.Request{Type: xds.Cluster, Version: version, Node: &xds.Node{}}, false)
			return c
		}
		_, err := resumes().try(xds.Cluster, "x=1")
		wrong(t, err, "SOTW-6")
		resumes("later").told(xds.Cluster, "x=1")
	})
	t.Run("ADS-9 what lingers may be told as it was told on an earlier stream", func(t *testing.T) {
		c := newCourt(t, xds.SotW)
		c.l.receive(xds.Request{Type: xds.Endpoint, Names: []string{"e"}, Version: "before", Node: &xds.Node{}}, false)
		a := c.l.account(xds.Endpoint)
		a.leaving["e"] = leaver{res: thing("e=last"), at: c.l.now}
		c.l.sends[xds.Endpoint.URL] = []sending{{"before", []*xds.Resource{thing("e=told")}}}
		for body, may := range map[string]bool{"last": true, "told": true, "never": false} {
			for _, has := range []fact{{}, {res: thing("e=another"), loose: true}} {
				a.told["e"] = has
				if got := c.l.stale(a, thing("e="+body)); got != may {
					t.Errorf("%s may be told: %v", body, got)
				}
			}
			a.told["e"] = fact{res: thing("e=another")}
			if c.l.stale(a, thing("e="+body)) {
				t.Errorf("%s may be told, though it is known what it has", body)
			}
		}
	})
	t.Run("ADS-8 what a collection found is given up on its way and asked for again, so that it keeps what it refers to", func(t *testing.T) {
		for _, again := range []bool{true, false} {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "VHDS", "r/a=1>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.VirtualHost, "r/*")
			nonce := c.told(xds.VirtualHost, "r/a=1>CDS/x")
			c.l.receive(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"r/*"}}, false)
			if again {
				c.ask(xds.VirtualHost, "r/*")
			}
			c.commit("VHDS", "-r/a", "CDS", "-x")
			c.answer(xds.VirtualHost, nonce, false)
			want := "CDS: x is gone"
			if again {
				c.told(xds.VirtualHost, "-r/a", "-r/*")
				want = ""
			}
			if left := c.l.waiting(); left != want {
				t.Errorf("waiting: %q, want %q", left, want)
			}
		}
	})
	t.Run("ADS-8 a host of a route that is given up, asked for again, and given up for good leaves, if it is not lost", func(t *testing.T) {
		leaves := func(lost bool) error {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1", "s=1>VHDS/*", "VHDS", "r/a=1")
			c.ask(xds.Route, "r", "s")
			c.takes(xds.Route, "r=1", "s=1>VHDS/*")
			c.ask(xds.VirtualHost)
			c.told(xds.VirtualHost, "r/a=1", "-s/*")
			c.commit("RDS", "s=2")
			c.told(xds.Route, "s=2") // it may hold the one that refers to the host, still
			if lost {
				c.commit("VHDS", "-r/a")
			}
			drop := xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}
			c.l.receive(drop, false)
			c.ask(xds.Route, "r")
			c.told(xds.Route, "r=1")
			c.l.receive(drop, false)
			_, err := c.try(xds.VirtualHost, "-r/a")
			return err
		}
		if err := leaves(false); err != nil {
			t.Error(err)
		}
		wrong(t, leaves(true), "ADS-3, ADS-8: r/a leaves while the client may hold RDS s@s=1")
	})
	t.Run("ADS-8 a host that the stream's routes have found, and that is refused after it was told to be gone, keeps what it refers to", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1", "RDS", "r=1", "VHDS", "r/a=1>CDS/x")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1")
		c.ask(xds.Route, "r")
		c.takes(xds.Route, "r=1")
		c.ask(xds.VirtualHost)
		first := c.told(xds.VirtualHost, "r/a=1>CDS/x")
		c.wait(patience)
		c.commit("VHDS", "-r/a", "CDS", "-x")
		second := c.told(xds.VirtualHost, "-r/a", "-r/*")
		c.answer(xds.VirtualHost, first, true)
		if left := c.l.waiting(); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if !c.l.held(c.l.account(xds.Cluster), "x", surely) {
			t.Error("it may have applied what it has refused, and has not answered for what it was told since")
		}
		c.answer(xds.VirtualHost, second, false)
		if left := c.l.waiting(); left != "CDS: x is gone" {
			t.Errorf("waiting: %q", left)
		}
	})
	t.Run("DELTA-6 a host that was lost, and is given up, leaves at once if no route of the wildcard has it", func(t *testing.T) {
		try := func(routes ...string) error {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1>VHDS/*", "s=1", "VHDS", "s/a=1")
			c.ask(xds.Route, "r", "s")
			c.takes(xds.Route, "r=1>VHDS/*", "s=1")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: routes}, false)
			c.ask(xds.VirtualHost, "*", "s/a")
			c.takes(xds.VirtualHost, "s/a=1", "-r/*")
			c.commit("RDS", "r=2", "VHDS", "-s/a")
			c.l.receive(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"s/a"}}, false)
			_, err := c.try(xds.VirtualHost, "-s/a")
			return err
		}
		if err := try("s"); err != nil {
			t.Error(err)
		}
		wrong(t, try(), "ADS-8: s/a leaves while the client may hold RDS r")
	})
	t.Run("DELTA-6 a host that a route given up has found lingers, also if the client asks for it by its name and gives that up", func(t *testing.T) {
		start := func(again bool) (*court, string) {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1>VHDS/*", "s=1", "VHDS", "s/a=1>CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r", "s")
			c.takes(xds.Route, "r=1>VHDS/*", "s=1")
			c.ask(xds.VirtualHost)
			c.takes(xds.VirtualHost, "s/a=1>CDS/x", "-r/*")
			c.commit("CDS", "x=2", "RDS", "r=2", "VHDS", "-s/a")
			first := c.told(xds.Cluster, "x=2")
			second := c.told(xds.Route, "r=2")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"s"}}, false)
			c.ask(xds.VirtualHost, "s/a")
			if again {
				c.answer(xds.Cluster, first, false)
				c.takes(xds.VirtualHost, "s/a=1>CDS/x")
			}
			c.l.receive(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"s/a"}}, false)
			if left := c.l.waiting(); (left == "VHDS: s/a is gone") != again {
				t.Errorf("told by its name %v: waiting: %q", again, left)
			}
			return c, second
		}
		c, _ := start(true)
		c.told(xds.VirtualHost, "-s/a")
		c, _ = start(false)
		_, err := c.try(xds.VirtualHost, "-s/a")
		wrong(t, err, "ADS-8: s/a leaves while the client may hold RDS r")
		c, routes := start(false)
		c.answer(xds.Route, routes, false)
		if left := c.l.waiting(); left != "VHDS: s/a is gone" {
			t.Errorf("nothing refers to it: waiting: %q", left)
		}
	})
	t.Run("ADS-8 a host that is lost while its route is given up lingers when the route is asked for again", func(t *testing.T) {
		start := func(again bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1", "s=1>VHDS/*", "VHDS", "r/a=1")
			c.ask(xds.Route, "r", "s")
			c.takes(xds.Route, "r=1", "s=1>VHDS/*")
			c.ask(xds.VirtualHost)
			c.takes(xds.VirtualHost, "r/a=1")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}, false)
			c.commit("RDS", "s=2", "VHDS", "-r/a")
			if again {
				c.ask(xds.Route, "r")
			}
			return c
		}
		_, err := start(true).try(xds.VirtualHost, "-r/a", "-r/*")
		wrong(t, err, "ADS-3, ADS-8: r/a leaves while the client may hold RDS s")
		start(false).told(xds.VirtualHost, "-r/a")
	})
	t.Run("SOTW-14 a heartbeat tells of a name once", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.l.ttl = true
		c.commit("CDS", "x=1!", "y=1!")
		c.ask(xds.Cluster)
		c.takes(xds.Cluster, "x=1!", "y=1!")
		c.takes(xds.Cluster, "~x=1!", "~y=1!")
		_, err := c.try(xds.Cluster, "~x=1!", "~x=1!")
		wrong(t, err, "SOTW-14: x twice in one response")
	})
	t.Run("ADS-9 the answer to a wildcard waits for clusters with what lingers, also if the client has stated that", func(t *testing.T) {
		for _, tt := range []struct{ refers, left string }{{"CDS/x", ""}, {"", "VHDS: an answer, if need be empty"}} {
			c := newCourt(t, xds.Delta)
			c.commit("VHDS", "r/b=1>"+tt.refers)
			was := c.view.Table(xds.VirtualHost).Lookup("r/b").Version
			c.commit("VHDS", "r/b=2>"+tt.refers)
			c.resume(xds.VirtualHost, []string{"r/b"}, xds.Version{Name: "r/b", Version: was})
			c.ask(xds.VirtualHost, "*")
			c.commit("VHDS", "-r/b")
			if left := c.l.waiting(); left != tt.left {
				t.Errorf("waiting: %q, want %q", left, tt.left)
			}
		}
	})
	t.Run("ADS-9 what a client has of a world that it has refused may be told as long as it lingers", func(t *testing.T) {
		lies := func(refused bool) bool {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return refused }
			c.commit("CDS", "x=1")
			c.l.past = past{xds.Cluster.URL: {"y": {thing("y=1")}}}
			c.l.receive(xds.Request{Type: xds.Cluster, Version: c.view.Table(xds.Cluster).Version(), Node: &xds.Node{}}, false)
			_, err := c.try(xds.Cluster, "x=1", "y=1")
			return err != nil && strings.Contains(err.Error(), "ADS-4: y")
		}
		if lies(true) {
			t.Error("y may be told, for it may have that")
		}
		if !lies(false) {
			t.Error("y may be told, though it cannot have that")
		}
	})
	t.Run("ADS-9 a client that states none of its clusters is as good as new until it has accepted some", func(t *testing.T) {
		c := newCourt(t, xds.SotW)
		c.commit("CDS", "x=1")
		c.l.receive(xds.Request{Type: xds.Route, Names: []string{"r"}, Version: "before", Node: &xds.Node{}}, false)
		if c.l.secretive() {
			t.Error("it has not opened its clusters")
		}
		c.ask(xds.Cluster)
		if !c.l.secretive() {
			t.Error("it has stated none")
		}
		c.takes(xds.Cluster, "x=1")
		if c.l.secretive() {
			t.Error("it has accepted what there is")
		}
	})
	t.Run("SOTW-8 a world waits for what the view looks for, and so do routes to its clusters", func(t *testing.T) {
		start := func(unknown ...string) (c *court, waits bool) {
			c = newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1>CDS/x")
			c.l.change(searching{c.view, xds.Names{xds.Cluster.URL: unknown}})
			c.ask(xds.Cluster, "x", "y")
			c.ask(xds.Route, "r")
			return c, c.l.waitsForView(c.l.account(xds.Cluster), "x", thing("x=1")) && c.l.waitsForView(c.l.account(xds.Route), "r", thing("r=1>CDS/x"))
		}
		if _, waits := start("y"); !waits {
			t.Error("it has to be told at once")
		}
		if _, waits := start(); waits {
			t.Error("it may wait though all is decided")
		}
		if c, _ := start("y"); c.l.waitsForView(c.l.account(xds.Route), "r", thing("r=2>SDS/x")) {
			t.Error("it may wait though it refers to no cluster")
		}
	})
	t.Run("DELTA-7 what is not decided may stay with the client, and what is gone may not", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("RDS", "r=1")
		c.l.change(searching{xds.Tables{}, xds.Names{xds.Route.URL: {"r"}}})
		c.ask(xds.Route, "r", "s")
		if a := c.l.account(xds.Route); !c.l.waitsForView(a, "r", nil) || c.l.waitsForView(a, "s", nil) {
			t.Error("r is not decided, and s is gone")
		}
	})
	t.Run("DELTA-6, OND-4 of what is given up under its route and not decided nothing is owed", func(t *testing.T) {
		start := func(unknown ...string) *court {
			c := newCourt(t, xds.Delta)
			c.ask(xds.VirtualHost, "*", "r/a")
			c.takes(xds.VirtualHost, "-r/a")
			c.ask(xds.Route, "s")
			c.l.change(searching{c.view, xds.Names{xds.VirtualHost.URL: unknown}})
			c.l.receive(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"r/a"}}, false)
			c.takes(xds.Route, "-s")
			c.takes(xds.VirtualHost, "-s/*")
			c.l.change(c.view)
			c.ask(xds.Route, "*")
			return c
		}
		owed := func(c *court) bool {
			a := c.l.account(xds.VirtualHost)
			return c.l.missing(a, "r/a") != ""
		}
		if owed(start("r/a")) {
			t.Error("it was not decided: if it exists its route finds it")
		}
		if !owed(start()) {
			t.Error("it is decided, and was not answered")
		}
	})
	t.Run("TTL-3 a client drops what it should have, by effect", func(t *testing.T) {
		start := func() (*court, clock) {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1!")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1!")
			c.l.waiting()
			return c, clock{typ: xds.Route, res: thing("r=1!"), fed: epoch}
		}
		c, k := start()
		c.wait(30 * time.Second)
		if lost, why := c.l.pleas(k); lost || len(why) > 0 {
			t.Errorf("excused: %v, %q", lost, why)
		}
		c, k = start()
		c.wait(10 * time.Second)
		c.told(xds.Route, "~r=1!")
		c.wait(20 * time.Second)
		if lost, _ := c.l.pleas(k); !lost {
			t.Error("a heartbeat that was under way is not seen")
		}
	})
	t.Run("ADS-6 what refers to a cluster that was refused waits for the world by which that is told again", func(t *testing.T) {
		waiting := func(refused bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			c.answer(xds.Cluster, c.told(xds.Cluster, "x=1"), refused)
			c.ask(xds.Route, "r")
			c.l.begun()
			c.l.waiting() // it waits from now on
			c.wait(silence)
			c.commit("CDS", "y=1")
			c.told(xds.Cluster, "x=1", "y=1")
			return c.l.waiting()
		}
		if left := waiting(true); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if waiting(false) != "RDS: r differs" {
			t.Error("it waits for what the client has accepted")
		}
	})
	t.Run("ADS-6 what refers to a cluster that came back waits for it, if the client has refused to let go of it", func(t *testing.T) {
		waiting := func(refused bool) string {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RDS", "r=1>-")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1>-")
			if refused {
				c.commit("CDS", "-x")
				c.refuses(xds.Cluster, "-x")
			}
			c.commit("CDS", "x=2")
			c.refuses(xds.Cluster, "x=2")
			c.commit("CDS", "x=3")
			c.told(xds.Cluster, "x=3")
			c.wait(time.Second)
			c.commit("RDS", "r=to-x>CDS/x")
			c.l.begun()
			c.l.waiting() // it waits from now on
			c.wait(silence - time.Second)
			return c.l.waiting()
		}
		if left := waiting(true); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := waiting(false); left != "RDS: r differs" {
			t.Errorf("waiting for what it has all the same: %q", left)
		}
	})
	t.Run("ADS-6 what refers to a cluster that is refused waits, if the client need not have it from before", func(t *testing.T) {
		waiting := func(loose bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=to-x>CDS/x")
			c.ask(xds.Cluster)
			a := c.l.account(xds.Cluster)
			a.told["x"] = fact{res: thing("x=1"), loose: loose}
			a.acked["x"] = a.told["x"]
			c.refuses(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.commit("CDS", "x=2")
			c.told(xds.Cluster, "x=2")
			c.l.begun()
			c.l.waiting() // it waits from now on
			c.wait(silence - time.Second)
			a.flights[0].at = epoch.Add(-time.Minute)
			return c.l.waiting()
		}
		if left := waiting(true); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := waiting(false); left != "RDS: r differs" {
			t.Errorf("waiting for what it has all the same: %q", left)
		}
	})
	t.Run("ADS-6 what refers to a cluster of which a client refuses the newer state waits, unless it has accepted the older", func(t *testing.T) {
		waiting := func(accepts bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=1>CDS/x")
			c.ask(xds.Cluster)
			c.refuses(xds.Cluster, "x=1")
			c.commit("CDS", "x=2")
			older := c.told(xds.Cluster, "x=2")
			c.wait(patience)
			c.commit("CDS", "x=3")
			newer := c.told(xds.Cluster, "x=3")
			c.wait(patience)
			c.commit("CDS", "y=1")
			c.told(xds.Cluster, "x=3", "y=1")
			c.wait(patience)
			c.ask(xds.Route, "r")
			if accepts {
				c.answer(xds.Cluster, older, false)
			}
			c.answer(xds.Cluster, newer, true)
			return c.l.waiting()
		}
		if left := waiting(false); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := waiting(true); left != "RDS: r differs" {
			t.Errorf("waiting for what it has all the same: %q", left)
		}
	})
	t.Run("ADS-9 who refuses a world has accepted none before it, and may have what it had", func(t *testing.T) {
		waiting := func(refused bool) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "LDS", "l=1")
			c.ask(xds.Cluster)
			c.l.resumes = true
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Listener)
			first := c.told(xds.Listener, "l=1")
			c.wait(patience)
			c.commit("LDS", "l=2")
			c.answer(xds.Listener, c.told(xds.Listener, "l=2"), refused)
			c.answer(xds.Listener, first, true)
			c.wait(time.Minute)
			c.commit("LDS", "l=3", "CDS", "-x")
			c.told(xds.Listener, "l=3")
			return c.l.waiting()
		}
		if left := waiting(true); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := waiting(false); left != "CDS: x is gone" {
			t.Errorf("waiting for nothing: %q", left)
		}
	})
	t.Run("ADS-3 a world waits for what it tells again of what has expired, and for nothing that has not", func(t *testing.T) {
		waiting := func(expires string) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "LDS", "l="+expires+">CDS/x")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Listener)
			c.l.ttl = true
			c.takes(xds.Listener, "l="+expires+">CDS/x")
			c.wait(20 * time.Second)
			c.commit("CDS", "x=2")
			c.told(xds.Cluster, "x=2")
			c.commit("LDS", "m=1>-")
			return c.l.waiting()
		}
		if left := waiting("1!"); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := waiting("1"); left != "LDS: m differs" {
			t.Errorf("waiting for nothing: %q", left)
		}
	})
	t.Run("ADS-9 what a SotW client has by way of the wildcard, and nothing tells to be gone, keeps what it refers to", func(t *testing.T) {
		waiting := func(refs string) string {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Listener)
			c.takes(xds.Listener)
			c.l.past = past{xds.Route.URL: {"r": {thing("r=1>" + refs)}}}
			c.l.receive(xds.Request{Type: xds.Route, Names: []string{xds.Wildcard}, Version: "before", Node: &xds.Node{}}, false)
			c.l.receive(xds.Request{Type: xds.Route, Names: []string{xds.Wildcard}, Nonce: c.told(xds.Route)}, false)
			c.wait(time.Minute)
			c.commit("CDS", "-x")
			c.l.begun()
			return c.l.waiting()
		}
		if left := waiting("CDS/x"); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := waiting("CDS/y"); left != "CDS: x is gone" {
			t.Errorf("waiting for nothing: %q", left)
		}
	})
	t.Run("SOTW-8 a client may have what is gone as long as the world waits for what the view looks for", func(t *testing.T) {
		lacks := func(unknown ...string) (failed bool) {
			defer func() { failed = recover() != nil }()
			c := newCourt(t, xds.SotW)
			c.l.change(searching{c.view, xds.Names{xds.Cluster.URL: unknown}})
			c.ask(xds.Cluster, "x", xds.Wildcard)
			n := &lane{world: &world{}, client: owner{has: []string{"y=1"}}, ledger: c.l, expired: map[[2]string]bool{}}
			n.converged()
			return false
		}
		if lacks("x") || !lacks() {
			t.Error("it fails while x is looked for:", lacks("x"), "and when all is decided:", lacks())
		}
	})
	t.Run("ADS-3, SUB-6 what is on demand and given up for the wildcard lingers", func(t *testing.T) {
		tell := func(had bool, words ...string) error {
			c := newCourt(t, xds.SotW)
			c.l.only, c.l.opts.Grace = xds.Cluster, time.Second
			c.commit("CDS", "?x=1", "y=1")
			if had {
				c.ask(xds.Cluster, "x")
				c.told(xds.Cluster, "?x=1")
			} else {
				c.ask(xds.Cluster, "y")
				c.told(xds.Cluster, "y=1")
			}
			c.ask(xds.Cluster, "*")
			c.l.account(xds.Cluster).newest.excused = true
			var lingering []*xds.Stamp
			r := &xds.Response{Type: xds.Cluster, Nonce: "9", Changes: &xds.Changes{}}
			for _, w := range words {
				x := thing(w)
				if r.Upserts = append(r.Upserts, x); x.OnDemand {
					lingering = append(lingering, x.Stamp)
				}
			}
			r.Version = c.view.Table(xds.Cluster).VersionWith(slices.Values(lingering))
			c.l.begun()
			return c.l.sent(r)
		}
		if err := tell(true, "?x=1", "y=1"); err != nil {
			t.Error(err)
		}
		wrong(t, tell(true, "?x=2", "y=1"), "ADS-4: x@")
		wrong(t, tell(false, "?x=1", "y=1"), "ADS-4: x@")

		c := newCourt(t, xds.SotW)
		c.commit("CDS", "?x=1", "y=1", "RDS", "r=to-x>CDS/x")
		c.ask(xds.Cluster, "x")
		c.told(xds.Cluster, "?x=1")
		c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x"}, Nonce: "1"}, false)
		c.ask(xds.Route, "r")
		c.told(xds.Route, "r=to-x>CDS/x")
		c.commit("RDS", "r=to-y>CDS/y")
		c.ask(xds.Cluster, "*")
		_, err := c.try(xds.Cluster, "y=1")
		wrong(t, err, "ADS-3, ADS-8: x leaves while the client may hold RDS r@r=to-x")
	})
	t.Run("ADS-2 a version does not say that a client has what is on demand", func(t *testing.T) {
		tells := func(x string) error {
			c := newCourt(t, xds.SotW)
			c.l.opts.Refused = func(*xds.Type) bool { return false }
			c.commit("CDS", "y=1", "CDS", x)
			version := c.view.Table(xds.Cluster).Version()
			c.commit("CDS", "-x", "LDS", "l=1")
			c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x"}, Version: version, Node: &xds.Node{}}, false)
			c.ask(xds.Listener)
			c.wait(silence)
			c.told(xds.Cluster)
			_, err := c.say(xds.Listener, "l=1")
			return err
		}
		if err := tells("?x=1"); err != nil {
			t.Error(err)
		}
		wrong(t, tells("x=1"), "ADS-2")
	})
	t.Run("TTL-3 what was given up on its way, and asked for again before the answer, is kept alive", func(t *testing.T) {
		beat := func(again bool) error {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1!")
			c.ask(xds.Route, "r")
			n := c.told(xds.Route, "r=1!")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}, false)
			if again {
				c.ask(xds.Route, "r")
			}
			c.answer(xds.Route, n, false)
			c.ask(xds.Route, "r")
			c.commit("RDS", "r=2>CDS/x") // which may have to wait
			_, err := c.try(xds.Route, "~r=1!")
			return err
		}
		if err := beat(true); err != nil {
			t.Error(err)
		}
		wrong(t, beat(false), "TTL-3: a heartbeat of r@r=1")
	})
	t.Run("TTL-3 what was given up on its way, and asked for again by its collection, is kept alive until that is dropped", func(t *testing.T) {
		g, h := "xdstp://a/e/g/*", "xdstp://a/e/h/*"
		beat := func(drops string) error {
			c := newCourt(t, xds.Delta)
			c.commit("EDS", "e=1>LEDS/"+h, "LEDS", "xdstp://a/e/h/1=1!")
			c.ask(xds.Endpoint, "e")
			c.takes(xds.Endpoint, "e=1>LEDS/"+h)
			c.ask(xds.LbEndpoint, h)
			n := c.told(xds.LbEndpoint, "xdstp://a/e/h/1=1!")
			c.commit("EDS", "-e", "LEDS", "-xdstp://a/e/h/1")
			c.l.receive(xds.Request{Type: xds.LbEndpoint, Subscribe: []string{g}, Unsubscribe: []string{h}}, false)
			c.takes(xds.LbEndpoint, "-"+g)
			c.ask(xds.LbEndpoint, h)
			c.takes(xds.LbEndpoint, "-"+h)
			c.answer(xds.LbEndpoint, n, false)
			c.l.receive(xds.Request{Type: xds.LbEndpoint, Unsubscribe: []string{drops}}, false)
			_, err := c.try(xds.LbEndpoint, "~xdstp://a/e/h/1=1!")
			return err
		}
		if err := beat(g); err != nil {
			t.Error(err)
		}
		wrong(t, beat(h), "TTL-3: a heartbeat of xdstp://a/e/h/1")
	})
	t.Run("TTL-3 a session that was not asked since an answer came says nothing", func(t *testing.T) {
		why := func(asked bool) []Excuse {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1!", "RDS", "s=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1!")
			c.ask(xds.Route, "s")
			c.takes(xds.Route, "s=1")
			if asked {
				c.l.waiting()
			}
			c.wait(30 * time.Second)
			_, why := c.l.pleas(clock{typ: xds.Route, res: thing("r=1!"), fed: epoch})
			return why
		}
		if what := why(true); len(what) > 0 {
			t.Errorf("excused: %q", what)
		}
		if len(why(false)) == 0 {
			t.Error("nobody asked it")
		}
	})
	t.Run("OND-4 a host of a route that the stream does not subscribe to lingers", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1>VHDS/*", "VHDS", "r/a=1", "other/b=1")
			v := func(n string) xds.Version {
				return xds.Version{Name: n, Version: c.l.view.Table(xds.VirtualHost).Lookup(n).Version}
			}
			a, b := v("r/a"), v("other/b")
			c.resume(xds.Route, []string{"r"}, xds.Version{Name: "r", Version: "of old"})
			c.told(xds.Route, "r=1>VHDS/*") // which is not answered
			c.commit("VHDS", "-r/a", "-other/b")
			c.resume(xds.VirtualHost, nil, a, b)
			return c
		}
		c := start()
		_, err := c.try(xds.VirtualHost, "-other/b", "-r/a")
		wrong(t, err, "ADS-8: r/a leaves while the client has RDS r@of old")
		c = start()
		if left := c.l.waiting(); left != "VHDS: other/b is gone" {
			t.Errorf("what no route of the stream has is owed: %q", left)
		}
		c.told(xds.VirtualHost, "-other/b")
	})
	t.Run("OND-4 a host that was never told is found as long as another of its route lingers", func(t *testing.T) {
		interested := func(refused bool) bool {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1>VHDS/*", "VHDS", "r/a=1")
			c.ask(xds.Route, "r")
			nonce := c.told(xds.Route, "r=1>VHDS/*")
			c.ask(xds.VirtualHost)
			c.takes(xds.VirtualHost, "r/a=1")
			c.commit("VHDS", "r/b=1")
			c.commit("RDS", "r=2", "VHDS", "-r/a", "-r/b")
			c.answer(xds.Route, nonce, refused)
			a := c.l.account(xds.VirtualHost)
			a.interest = map[string]bool{"r/*": true, "r/a": true, "r/b": true}
			if !refused {
				c.takes(xds.Route, "r=2")
			}
			return c.l.interested(a)
		}
		if !interested(true) {
			t.Error("the one that lingers is found by their collection, and with it the other")
		}
		if interested(false) {
			t.Error("nothing lingers, and it is interested in what is gone")
		}
	})
	t.Run("OND-4 a host is acknowledged after its route was dropped", func(t *testing.T) {
		start := func() (*court, string) {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "c=1", "RDS", "r=1", "VHDS", "r/a=1>CDS/c")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "c=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			c.ask(xds.VirtualHost)
			late := c.told(xds.VirtualHost, "r/a=1>CDS/c")
			c.l.receive(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}}, false)
			c.wait(5 * time.Second)
			gone := c.told(xds.VirtualHost, "-r/a")
			c.answer(xds.VirtualHost, late, false)
			c.commit("CDS", "-c")
			return c, gone
		}
		c, _ := start()
		if left := c.l.waiting(); left != "" {
			t.Errorf("the client has a host until it hears that it is gone: %q", left)
		}
		_, err := c.try(xds.Cluster, "-c")
		wrong(t, err, "ADS-8: c leaves while the client may hold VHDS r/a@")
		c, gone := start()
		c.answer(xds.VirtualHost, gone, false)
		if left := c.l.waiting(); left != "CDS: c is gone" {
			t.Errorf("and no longer: %q", left)
		}
		c.told(xds.Cluster, "-c")
	})
	t.Run("ADS-2 a removal that another has made possible follows it", func(t *testing.T) {
		start := func(refs string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "EDS", "e=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Endpoint, "e")
			c.takes(xds.Endpoint, "e=1")
			c.commit("CDS", "x=2"+refs)
			c.refuses(xds.Cluster, "x=2"+refs)
			c.commit("CDS", "y=1")
			c.told(xds.Cluster, "y=1")
			c.wait(20 * time.Second) // which is not answered
			c.commit("CDS", "-x", "EDS", "-e")
			c.told(xds.Cluster, "-x")
			return c
		}
		_, err := start("").say(xds.Endpoint, "-e")
		wrong(t, err, "ADS-2: EDS follows a removal")
		if _, err := start(">EDS/e").say(xds.Endpoint, "-e"); err != nil { // what was refused is no more
			t.Error(err)
		}
	})
	t.Run("ADS-3 each type waits by itself for a client that never answers again, and others are silent in a minute", func(t *testing.T) {
		settles := func(forever bool, types, waits int) (silent bool) {
			defer func() { silent = recover() == nil }()
			w := &world{cfg: Config{Variant: xds.Delta}, content: &content{view: xds.Tables{}}, now: epoch}
			n := &lane{world: w, client: &still{}, ledger: newCourt(t, xds.Delta).l, forever: forever, mute: true}
			for _, typ := range []*xds.Type{xds.Listener, xds.ScopedRoute, xds.Route, xds.VirtualHost, xds.Cluster, xds.Endpoint}[:types] {
				n.ledger.open(typ)
			}
			s := &waiter{now: epoch, until: epoch.Add(time.Duration(waits) * 15 * time.Second)}
			n.session = &twins{Session: s, other: s}
			w.lanes = []*lane{n}
			w.settle()
			return true
		}
		for _, c := range []struct {
			forever      bool
			types, waits int
			silent       bool
		}{{true, 6, 7, true}, {true, 6, 8, false}, {true, 2, 5, false}, {false, 6, 4, true}, {false, 6, 5, false}} {
			if got := settles(c.forever, c.types, c.waits); got != c.silent {
				t.Errorf("%+v: silent in time: %v", c, got)
			}
		}
	})
	t.Run("ADS-3 a client that repeats an answer is not silent", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.commit("CDS", "x=1>EDS/e", "EDS", "e=1")
		c.ask(xds.Endpoint, "e")
		c.takes(xds.Endpoint, "e=1")
		c.ask(xds.Cluster)
		first := c.told(xds.Cluster, "x=1>EDS/e")
		c.answer(xds.Cluster, first, false)
		c.commit("CDS", "x=2", "EDS", "-e")
		c.told(xds.Cluster, "x=2")
		c.wait(10 * time.Second)
		c.answer(xds.Cluster, first, false)
		c.wait(5 * time.Second)
		if left := c.l.waiting(); left != "" {
			t.Errorf("it has been silent for 5 s: %q", left)
		}
		c.wait(10 * time.Second)
		if left := c.l.waiting(); left != "EDS: e is gone" {
			t.Errorf("it has been silent for 15 s: %q", left)
		}
		c.told(xds.Endpoint, "-e")
	})
	t.Run("DELTA-15 one is given up, and asked for again as another", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("EDS", "a=bad", "b=1")
			c.ask(xds.Endpoint, "a", "b")
			c.refuses(xds.Endpoint, "a=bad", "b=1")
			return c
		}
		c := start()
		c.l.receive(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a"}}, false)
		c.commit("EDS", "a=1")
		c.ask(xds.Endpoint, "a")
		c.told(xds.Endpoint, "a=1")
		if left := c.l.waiting(); left != "" {
			t.Errorf("nothing has changed of what was refused and is wanted: %q", left)
		}
		c = start()
		c.commit("EDS", "a=1")
		c.told(xds.Endpoint, "a=1")
		c.wait(5 * time.Second)
		if left := c.l.waiting(); left != "EDS: b is owed" {
			t.Errorf("what was refused with it is not sent again: %q", left)
		}
	})
	t.Run("ADS-2 what a session need not know that a client has it may leave out before it tells something new", func(t *testing.T) {
		after := func(loose bool) error {
			c := newCourt(t, xds.SotW)
			c.commit("LDS", "l=1")
			c.ask(xds.Cluster, "x")
			c.l.account(xds.Cluster).told["x"] = fact{res: thing("x=1"), loose: loose}
			c.ask(xds.Listener)
			c.told(xds.Cluster)
			_, err := c.say(xds.Listener, "l=1")
			return err
		}
		if err := after(true); err != nil {
			t.Error(err)
		}
		wrong(t, after(false), "ADS-2: LDS tells something new after a removal")
	})
	t.Run("ADS-3 who acknowledges a response before it refuses an earlier one says that it has dealt with both", func(t *testing.T) {
		n := &lane{world: &world{}}
		ack, nack := func(nonce string) xds.Request { return xds.Request{Type: xds.Listener, Nonce: nonce} }, func(typ *xds.Type, nonce string) xds.Request {
			return xds.Request{Type: typ, Nonce: nonce, Error: &xds.Status{Code: 3}}
		}
		for _, c := range []struct {
			out  []xds.Request
			late []xds.Request
			want bool
		}{
			{[]xds.Request{ack("10"), nack(xds.Listener, "9")}, nil, true},
			{[]xds.Request{ack("10")}, []xds.Request{nack(xds.Listener, "9")}, true},
			{[]xds.Request{ack("9"), nack(xds.Listener, "10")}, nil, false},
			{[]xds.Request{ack("10"), nack(xds.Route, "9")}, nil, false},
			{[]xds.Request{nack(xds.Listener, "9"), ack("10"), nack(xds.Listener, "9")}, nil, false}, // it comes twice
		} {
			n.late = c.late
			got := false
			for i := range c.out {
				got = got || n.contradicts(c.out, i)
			}
			if got != c.want {
				t.Errorf("%v, and later %v: %v", c.out, c.late, got)
			}
		}
	})
	t.Run("ADS-2 removals last, in reverse", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "SDS", "s=1", "RDS", "r=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Secret, "s")
			c.takes(xds.Secret, "s=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			c.commit("CDS", "-x", "SDS", "-s", "RDS", "r=2")
			return c
		}
		c := start()
		c.told(xds.Cluster, "-x")
		_, err := c.say(xds.Secret, "-s")
		wrong(t, err, "ADS-2: SDS follows a removal")
		c = start()
		c.told(xds.Secret, "-s")
		_, err = c.say(xds.Route, "r=2")
		wrong(t, err, "ADS-2: RDS tells something new after a removal")
		c = start()
		c.told(xds.Route, "r=2")
		if _, err = c.say(xds.Secret, "-s"); err == nil {
			_, err = c.say(xds.Cluster, "-x")
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("ADS-2 what refers to any cluster follows what is said of the last of them", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1", "RTDS", "t=1", "RDS", "r=1>CDS/*")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "x=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1>CDS/*")
			c.ask(xds.Runtime, "t")
			c.takes(xds.Runtime, "t=1")
			c.commit("RTDS", "t=2", "RDS", "r=2>CDS/*")
			c.ask(xds.Cluster, "z")
			return c
		}
		c := start()
		c.told(xds.Runtime, "t=2")
		_, err := c.say(xds.Route, "r=2>CDS/*")
		wrong(t, err, "ADS-2: RDS follows a type")
		c = start()
		c.told(xds.Runtime, "t=2")
		if _, err = c.say(xds.Cluster, "-z"); err == nil {
			_, err = c.say(xds.Route, "r=2>CDS/*")
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("ADS-3 what refers to any cluster waits for what is on its way, unless that is lost", func(t *testing.T) {
		start := func(words ...string) error {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "x=1")
			c.ask(xds.Cluster)
			c.told(xds.Cluster, "x=1")
			c.commit(append(words, "RDS", "r=1>CDS/*")...)
			c.ask(xds.Route, "r")
			_, err := c.try(xds.Route, "r=1>CDS/*")
			return err
		}
		wrong(t, start(), "may refer to x, which nonce 1 brought")
		if err := start("CDS", "-x"); err != nil {
			t.Error(err)
		}
	})
	t.Run("ADS-8 what it stated refers to what is lost, until it answers that it is gone", func(t *testing.T) {
		for _, answers := range []bool{false, true} {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "y=1", "SDS", "s=1")
			c.resume(xds.Cluster, nil, xds.Version{Name: "x", Version: "old"})
			c.wait(silence) // nothing else is from before
			nonce := c.told(xds.Cluster, "y=1", "-x")
			c.ask(xds.Secret, "s")
			c.takes(xds.Secret, "s=1")
			c.commit("CDS", "y|x=2", "SDS", "-s")
			if answers {
				c.answer(xds.Cluster, nonce, false)
			}
			c.wait(patience)
			c.told(xds.Cluster, "y|x=2") // by an alias that is the name of what is gone
			if what := c.l.waiting(); (what != "") != answers {
				t.Errorf("it has answered (%v), and should leave: %q", answers, what)
			}
		}
	})
	t.Run("DELTA-13 a part above the limit", func(t *testing.T) {
		c := newCourt(t, xds.Delta)
		c.l.opts.MaxResponse = 30
		c.commit("EDS", "a=1", "b=1")
		c.ask(xds.Endpoint, "a", "b")
		_, err := c.try(xds.Endpoint, "a=1", "b=1")
		wrong(t, err, "DELTA-13")
		c = newCourt(t, xds.Delta)
		c.l.opts.MaxResponse = 30
		c.commit("EDS", "a=1", "b=1")
		c.ask(xds.Endpoint, "a", "b")
		c.told(xds.Endpoint, "a=1")
		if _, err := c.say(xds.Endpoint, "b=1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("DELTA-13 removals above the limit, and in parts of their own", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.Delta)
			c.commit("CDS", "cluster-1=1", "cluster-2=1", "RDS", "r=1")
			c.ask(xds.Cluster)
			c.takes(xds.Cluster, "cluster-1=1", "cluster-2=1")
			c.ask(xds.Route, "r")
			c.takes(xds.Route, "r=1")
			c.commit("CDS", "-cluster-1", "-cluster-2", "cluster-3=1", "RDS", "r=2")
			c.l.opts.MaxResponse = 15
			return c
		}
		c := start()
		_, err := c.say(xds.Cluster, "-cluster-1", "-cluster-2")
		wrong(t, err, "DELTA-13")
		c = start()
		c.told(xds.Cluster, "cluster-3=1")
		for _, said := range []string{"-cluster-1", "-cluster-2"} {
			if _, err := c.say(xds.Cluster, said); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.say(xds.Route, "r=2"); err != nil {
			t.Error(err)
		}
	})
	t.Run("ADS-6 an event that a wait has ended, and it has not", func(t *testing.T) {
		n := &lane{}
		waived := protocol.Event{Kind: protocol.Waived, Type: xds.Cluster, By: xds.Route, Name: "x"}
		gone := protocol.Event{Kind: protocol.Departed, Type: xds.Cluster, Name: "x"}
		wrong(t, n.judge([]protocol.Event{waived}, nil), "and it goes on")
		wrong(t, n.judge([]protocol.Event{waived, waived, gone}, nil), "ends twice")
		if err := n.judge([]protocol.Event{waived, gone}, nil); err != nil {
			t.Error(err)
		}
	})
}

// What a world lacks that left before the client asked for it is no loss that the server
// could have spared it.
func TestJudgeCrossed(t *testing.T) {
	crossed := func(asked ...string) bool {
		c := newCourt(t, xds.SotW)
		c.commit("CDS", "x=1", "y=1")
		c.ask(xds.Cluster, "x", "y")
		c.takes(xds.Cluster, "x=1", "y=1")
		c.l.receive(xds.Request{Type: xds.Cluster, Names: asked}, false)
		c.commit("CDS", "x=2", "-y")
		nonce := c.told(xds.Cluster, "x=2")
		c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x", "y"}}, false)
		return c.l.account(xds.Cluster).crossed(nonce, "y")
	}
	if !crossed("x") {
		t.Error("ADS-3 the server did not know that it is asked for")
	}
	if crossed("x", "y") {
		t.Error("ADS-3 the server took it away")
	}
}

// A gRPC client whose cluster is taken away while its route is in use is broken,
// and one that gives the cluster up itself is not.
func TestJudgeGRPC(t *testing.T) {
	start := func() *grpc {
		g := &grpc{world: &world{}, taste: taste{off: true}, targets: map[string]bool{"l": true}, lost: map[string]bool{}}
		for i, typ := range []*xds.Type{xds.Listener, xds.Route, xds.Cluster, xds.Endpoint} {
			g.steps[i] = &step{typ: typ, cache: map[string]*xds.Resource{}}
		}
		g.walk()
		say(g, xds.Listener, "l=1>RDS/r")
		say(g, xds.Route, "r=to-x>CDS/x")
		say(g, xds.Cluster, "x=1")
		return g
	}
	none := func(string) bool { return false }
	g := start()
	if what := g.broken(none, nil); what != "" {
		t.Errorf("ADS-3 broken at first: %s", what)
	}
	say(g, xds.Cluster)
	if g.broken(none, nil) == "" {
		t.Error("ADS-3 a cluster taken from a route in use breaks nothing")
	}
	g = start()
	say(g, xds.Route, "r=to-y>CDS/y")
	say(g, xds.Cluster, "y=1")
	say(g, xds.Route, "r=to-x>CDS/x") // it asks for x anew, and waits
	if what := g.broken(none, nil); what != "" {
		t.Errorf("ADS-3 it waits for a cluster, and that is called broken: %s", what)
	}
}

// An empty client holds nothing.
// A holder is a client that holds endpoints.
type holder struct {
	empty
	has map[string]*xds.Resource
}

func (h holder) held(t *xds.Type) map[string]*xds.Resource {
	if t.Is(xds.LbEndpoint) {
		return maps.Clone(h.has)
	}
	return nil
}

// A still is a client that says nothing.
type still struct{ empty }

func (still) calm()                   {}
func (still) requests() []xds.Request { return nil }
func (still) advance(time.Time)       {}
func (still) deadline() time.Time     { return time.Time{} }
func (still) idle(*ledger) error      { return nil }

// A waiter is a session that says nothing, and waits 15 s, and again, until a time.
type waiter struct {
	Session
	now, until time.Time
}

func (s *waiter) Advance(now time.Time)              { s.now = now }
func (s *waiter) Events() iter.Seq[protocol.Event]   { return func(func(protocol.Event) bool) {} }
func (s *waiter) Responses() iter.Seq[*xds.Response] { return func(func(*xds.Response) bool) {} }

func (s *waiter) Deadline() time.Time {
	if !s.now.Before(s.until) {
		return time.Time{}
	}
	return s.now.Add(15 * time.Second)
}

type empty struct{ client }

func (empty) held(*xds.Type) map[string]*xds.Resource { return map[string]*xds.Resource{} }

// An owner has clusters.
type owner struct {
	client
	has []string
}

func (o owner) held(*xds.Type) map[string]*xds.Resource {
	held := map[string]*xds.Resource{}
	for _, s := range o.has {
		held[thing(s).Name] = thing(s)
	}
	return held
}

func say(c client, typ *xds.Type, words ...string) {
	r := &xds.Response{Type: typ, Nonce: "n", Changes: &xds.Changes{}}
	for _, w := range words {
		r.Upserts = append(r.Upserts, thing(w))
	}
	c.receive(r)
}
