package protocoltest

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// The cases of this file set fields of the ledger, or need a lane or a client, so they cannot be text cases.

func wantVerdict(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the verdict is %v, want %q", err, text)
	}
}

func wantOwed(t *testing.T, c *textCase, want string) {
	t.Helper()
	if owed := c.ledger.waiting(); owed != want {
		t.Errorf("the session owes %q, want %q", owed, want)
	}
}

// panics reports whether f fails a world.
func panics(f func()) (failed bool) {
	defer func() { failed = recover() != nil }()
	f()
	return false
}

func TestTrackedResponses(t *testing.T) {
	t.Run("ADS-3 a response that only removes is tracked like others, a heartbeat is not", func(t *testing.T) {
		newer := func(later *flight) int {
			a := &account{}
			for i := range maxTracked {
				a.flights = append(a.flights, &flight{seq: i, batch: i, carried: map[string]fact{"r": {seq: i}}})
			}
			later.seq, later.batch = maxTracked, maxTracked
			a.flights = append(a.flights, later)
			return a.newerResponses(a.flights[0])
		}
		if n := newer(&flight{}); n != maxTracked {
			t.Errorf("%d responses are tracked after it, want %d", n, maxTracked)
		}
		if n := newer(&flight{beats: map[string]fact{"r": {}}}); n != maxTracked-1 {
			t.Errorf("%d responses are tracked after it, want %d", n, maxTracked-1)
		}
	})
}

func TestRefusedVersionIsNotHeld(t *testing.T) {
	for refused, want := range map[bool]string{false: "CDS: x must be removed", true: ""} {
		t.Run(fmt.Sprintf("SOTW-18 a client holds the version that it states: it refused one before: %v", refused), func(t *testing.T) {
			c := playCase(t, `stream sotw
				option refused=`+fmt.Sprint(refused)+`
				commit CDS x=1 LDS l=1
				> CDS
				< CDS nonce=1 x=1
				> CDS nonce=1
				> LDS version={l=1}`)
			c.account("LDS").answer = false
			c.play("wait 20s\ncommit CDS -x")
			wantOwed(t, c, want)
		})
	}
}

func TestExpiredClusterWarmsAgain(t *testing.T) {
	breaks := func(dropped bool) bool {
		w := &world{unjudged: map[Excuse]int{}, trial: newTrial(""), cfg: Config{Variant: xds.Delta}, content: &content{whole: true}, plan: newDice(1, 0), chance: newDice(1, 1)}
		e := newEnvoy(w)
		e.off = true
		for _, s := range e.order {
			s.known, s.opened = true, true
		}
		e.of(xds.Listener).cache["l"] = parseResource("l=1>RDS/r")
		e.of(xds.Route).cache["r"] = parseResource("r=to-x>CDS/x")
		n := &lane{world: w, client: e, ledger: playCase(t, "stream delta").ledger, expired: map[[2]string]bool{}}
		if dropped {
			n.expired[[2]string{xds.Cluster.URL, "x"}] = true
		}
		n.down = []*xds.Response{{Type: xds.Cluster, Changes: &xds.Changes{Upserts: parseResources([]string{"x=1>EDS/e"})}}}
		return panics(func() { n.deliverDown() })
	}
	t.Run("TTL-3 an expired cluster that is sent again must warm again", func(t *testing.T) {
		if breaks(true) {
			t.Error("a client that dropped its expired cluster counts as broken")
		}
		if !breaks(false) {
			t.Error("a client without the cluster of its route does not count as broken")
		}
	})
}

func TestRemovedSecretMayBeDropped(t *testing.T) {
	const removed = `stream sotw
		commit CDS x=1>SDS/s SDS s=1!
		> CDS
		option ttl
		< CDS nonce=1 x=1>SDS/s
		> CDS nonce=1
		> SDS names=s
		< SDS nonce=2 s=1!
		> SDS names=s nonce=2
		owes nothing
		commit CDS x=2 SDS -s
		`
	excuses := func(c *textCase) []Excuse {
		c.play("wait 30s")
		_, why := c.ledger.ttlExcuses(clock{typ: xds.Secret, res: parseResource("s=1!"), fed: epoch})
		return why
	}
	t.Run("TTL-3 a client must not drop a secret that the cluster in force may refer to", func(t *testing.T) {
		c := playCase(t, removed+"< CDS nonce=3 x=2")
		c.account("CDS").unansweredSince = epoch.Add(20 * time.Second) // the client answered something before that
		if why := excuses(c); len(why) > 0 {
			t.Errorf("excused by %q", why)
		}
	})
	t.Run("TTL-3 a client may drop a secret that has left, although a cluster refers to it again", func(t *testing.T) {
		c := playCase(t, removed+`< CDS nonce=3 x=2
			> CDS nonce=3
			idle
			commit CDS x=3>SDS/s
			< CDS nonce=4 x=3>SDS/s
			commit CDS x=4`)
		if why := excuses(c); !slices.Equal(why, []Excuse{replaced}) {
			t.Errorf("excused by %q", why)
		}
	})
}

func TestKeptResourceMayBeSentAsBefore(t *testing.T) {
	c := playCase(t, `stream sotw
		> EDS names=e version=before
		earlier-response EDS version=before e=sent`)
	a := c.account("EDS")
	a.removed["e"] = removal{res: parseResource("e=last"), at: c.ledger.now}
	for content, may := range map[string]bool{"last": true, "sent": true, "never": false} {
		t.Run("ADS-9 a kept resource may be sent as an earlier stream sent it: "+content, func(t *testing.T) {
			sent := parseResource("e=" + content)
			for _, held := range []fact{{}, {res: parseResource("e=another"), loose: true}} {
				a.lastSent["e"] = held
				if got := c.ledger.maySendStale(a, sent); got != may {
					t.Errorf("may be sent: %v", got)
				}
			}
			a.lastSent["e"] = fact{res: parseResource("e=another")}
			if c.ledger.maySendStale(a, sent) {
				t.Error("may be sent although the session knows what the client has")
			}
		})
	}
}

func TestRouteWaitsForClusterOfUncertainPast(t *testing.T) {
	for _, uncertain := range []bool{true, false} {
		t.Run(fmt.Sprintf("ADS-6 a route waits for a refused cluster that the client may not hold: uncertain %v", uncertain), func(t *testing.T) {
			c := playCase(t, `stream sotw
				commit CDS x=1 RDS r=to-x>CDS/x
				> CDS`)
			a := c.account("CDS")
			a.lastSent["x"] = fact{res: parseResource("x=1"), loose: uncertain}
			a.acked["x"] = a.lastSent["x"]
			c.play(`< CDS nonce=1 x=1
				> CDS nonce=1 error
				> RDS names=r
				commit CDS x=2
				< CDS nonce=2 x=2
				idle`)
			c.ledger.waiting() // the wait begins
			c.play("wait 14s")
			a.flights[0].at = epoch.Add(-time.Minute)
			want := "RDS: r must be sent"
			if uncertain {
				want = ""
			}
			wantOwed(t, c, want)
		})
	}
}

func TestOnDemandClusterIsKeptUnderTheWildcard(t *testing.T) {
	send := func(held bool, words string) error {
		c := playCase(t, "stream sotw\noption only=CDS grace=1s\ncommit CDS ?x=1 y=1")
		if held {
			c.play("> CDS names=x\n< CDS nonce=1 ?x=1")
		} else {
			c.play("> CDS names=y\n< CDS nonce=1 y=1")
		}
		c.play("> CDS names=*")
		c.account("CDS").newest.excused = true
		c.ledger.beginBatch()
		return c.ledger.judgeResponse(c.response(xds.Cluster, strings.Fields("nonce=9 counting=x "+words)))
	}
	t.Run("ADS-3 SUB-6 an on-demand cluster is kept when its name is replaced by the wildcard", func(t *testing.T) {
		if err := send(true, "?x=1 y=1"); err != nil {
			t.Error(err)
		}
		wantVerdict(t, send(true, "?x=2 y=1"), "ADS-4: x@")
		wantVerdict(t, send(false, "?x=1 y=1"), "ADS-4: x@")
	})
	t.Run("ADS-3 SUB-6 an on-demand cluster is kept while a route refers to it", func(t *testing.T) {
		playCase(t, `stream sotw
			commit CDS ?x=1 y=1 RDS r=to-x>CDS/x
			> CDS names=x
			< CDS nonce=1 ?x=1
			> CDS names=x nonce=1
			> RDS names=r
			< RDS nonce=2 r=to-x>CDS/x
			commit RDS r=to-y>CDS/y
			> CDS names=*
			< CDS nonce=3 y=1
			! ADS-3, ADS-8: x is removed while the client may hold RDS r@r=to-x`)
	})
}

func TestSettlesWithSilentClient(t *testing.T) {
	settles := func(forever bool, types, waits int) bool {
		w := &world{cfg: Config{Variant: xds.Delta}, content: &content{view: xds.Tables{}}, now: epoch}
		n := &lane{world: w, client: &silentClient{}, ledger: playCase(t, "stream delta").ledger, forever: forever, mute: true}
		for _, typ := range []*xds.Type{xds.Listener, xds.ScopedRoute, xds.Route, xds.VirtualHost, xds.Cluster, xds.Endpoint}[:types] {
			n.ledger.open(typ)
		}
		s := &waitingSession{now: epoch, until: epoch.Add(time.Duration(waits) * silentAfter)}
		n.session = &twins{Session: s, other: s}
		w.lanes = []*lane{n}
		return !panics(w.settle)
	}
	t.Run("ADS-3 each type waits once for a client that never answers, and all are silent in a minute for others", func(t *testing.T) {
		for _, c := range []struct {
			forever      bool
			types, waits int
			settles      bool
		}{{true, 6, 7, true}, {true, 6, 8, false}, {true, 2, 5, false}, {false, 6, 4, true}, {false, 6, 5, false}} {
			if got := settles(c.forever, c.types, c.waits); got != c.settles {
				t.Errorf("%+v: settles: %v", c, got)
			}
		}
	})
}

func TestContradictingAnswers(t *testing.T) {
	ack := func(nonce string) xds.Request { return xds.Request{Type: xds.Listener, Nonce: nonce} }
	nack := func(typ *xds.Type, nonce string) xds.Request {
		return xds.Request{Type: typ, Nonce: nonce, Error: &xds.Status{Code: 3}}
	}
	for _, c := range []struct {
		name string
		out  []xds.Request
		late []xds.Request
		want bool
	}{
		{"NACK of an earlier response", []xds.Request{ack("10"), nack(xds.Listener, "9")}, nil, true},
		{"NACK that comes late", []xds.Request{ack("10")}, []xds.Request{nack(xds.Listener, "9")}, true},
		{"NACK of a later response", []xds.Request{ack("9"), nack(xds.Listener, "10")}, nil, false},
		{"NACK of another type", []xds.Request{ack("10"), nack(xds.Route, "9")}, nil, false},
		{"NACK that comes twice", []xds.Request{nack(xds.Listener, "9"), ack("10"), nack(xds.Listener, "9")}, nil, false},
	} {
		t.Run("ADS-3 an ACK before a "+c.name, func(t *testing.T) {
			n, got := &lane{world: &world{}, late: c.late}, false
			for i := range c.out {
				got = got || n.contradicts(c.out, i)
			}
			if got != c.want {
				t.Errorf("contradicts: %v", got)
			}
		})
	}
}

func TestWaivedWaitEnds(t *testing.T) {
	waived := protocol.Event{Kind: protocol.Waived, Type: xds.Cluster, By: xds.Route, Name: "x"}
	removed := protocol.Event{Kind: protocol.Departed, Type: xds.Cluster, Name: "x"}
	n := &lane{}
	t.Run("ADS-6 an event ends a wait once, and the wait is over then", func(t *testing.T) {
		wantVerdict(t, n.judge([]protocol.Event{waived}, nil), "but the wait goes on")
		wantVerdict(t, n.judge([]protocol.Event{waived, waived, removed}, nil), "ends twice")
		if err := n.judge([]protocol.Event{waived, removed}, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestJudgeOfGRPC(t *testing.T) {
	start := func() *grpc {
		g := &grpc{world: &world{}, taste: taste{off: true}, targets: map[string]bool{"l": true}, lost: map[string]bool{}}
		for i, typ := range []*xds.Type{xds.Listener, xds.Route, xds.Cluster, xds.Endpoint} {
			g.steps[i] = &step{typ: typ, cache: map[string]*xds.Resource{}}
		}
		g.walk()
		send(g, xds.Listener, "l=1>RDS/r")
		send(g, xds.Route, "r=to-x>CDS/x")
		send(g, xds.Cluster, "x=1")
		return g
	}
	broken := func(g *grpc) string { return g.broken(func(string) bool { return false }, nil) }
	t.Run("ADS-3 a client is broken if the cluster of its route is taken away", func(t *testing.T) {
		g := start()
		if what := broken(g); what != "" {
			t.Errorf("broken at first: %s", what)
		}
		send(g, xds.Cluster)
		if broken(g) == "" {
			t.Error("not broken without the cluster of its route")
		}
	})
	t.Run("ADS-3 a client is not broken if it unsubscribes the cluster itself", func(t *testing.T) {
		g := start()
		send(g, xds.Route, "r=to-y>CDS/y")
		send(g, xds.Cluster, "y=1")
		send(g, xds.Route, "r=to-x>CDS/x") // subscribes to x again, and waits
		if what := broken(g); what != "" {
			t.Errorf("broken while it waits for a cluster: %s", what)
		}
	})
}

func send(c client, typ *xds.Type, words ...string) {
	c.receive(&xds.Response{Type: typ, Nonce: "n", Changes: &xds.Changes{Upserts: parseResources(words)}})
}

// A silentClient holds nothing and sends nothing.
type silentClient struct{ client }

func (silentClient) held(*xds.Type) map[string]*xds.Resource { return map[string]*xds.Resource{} }
func (silentClient) calm()                                   {}
func (silentClient) requests() []xds.Request                 { return nil }
func (silentClient) advance(time.Time)                       {}
func (silentClient) deadline() time.Time                     { return time.Time{} }
func (silentClient) idle(*ledger) error                      { return nil }

// A waitingSession sends nothing, and has a deadline in 15 s, again and again, until a time.
type waitingSession struct {
	Session
	now, until time.Time
}

func (s *waitingSession) Advance(now time.Time)            { s.now = now }
func (s *waitingSession) Events() iter.Seq[protocol.Event] { return func(func(protocol.Event) bool) {} }
func (s *waitingSession) Responses() iter.Seq[*xds.Response] {
	return func(func(*xds.Response) bool) {}
}

func (s *waitingSession) Deadline() time.Time {
	if !s.now.Before(s.until) {
		return time.Time{}
	}
	return s.now.Add(silentAfter)
}
