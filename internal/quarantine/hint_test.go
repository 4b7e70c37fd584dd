package quarantine

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// body returns the version of a cluster that a client has.
func body(has map[string]string, name string) string {
	for _, text := range []string{"1", "2", "3", "bad"} {
		if has[name] == string(message(name, text)) {
			return text
		}
	}
	return has[name]
}

// take answers the responses of a client and notes its resources.
func (r *fixture) take(c *xdstest.Client, has map[string]string, refuses func(*xdstest.Response) bool) {
	r.Helper()
	r.answer(c, "no", func(got *xdstest.Response) bool {
		if refuses(got) {
			return true
		}
		for _, res := range got.Resources {
			has[res.Name] = string(res.Body)
		}
		for _, name := range got.Removed {
			delete(has, name)
		}
		return false
	})
}

// idle checks that no stream is searched or waits for a search.
func (r *fixture) idle() {
	r.Helper()
	ss := &r.source.searches
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.running)+len(ss.waits)+len(ss.waiting) != 0 {
		r.Errorf("%d searches, %d wait, %d are noted", len(ss.running), len(ss.waits), len(ss.waiting))
	}
}

func anything(got *xdstest.Response) bool { return len(got.Resources) > 0 }

// The first client refuses every resource alone, and is searched first. A second client of the same kind
// refuses one resource. The second client gets all other resources, independent of the result of the
// first search, and the one resource when it is fixed.
func TestLyingClientDoesNotAffectOthers(t *testing.T) {
	for _, also := range []string{"", "c0004"} {
		within(t, func(r *fixture) {
			conn := xdstest.Serve(r, r.server)
			all := names(6)
			r.fill(all, "1")
			liar, honest := r.open(conn, xds.Node{ID: "liar"}), r.open(conn, xds.Node{ID: "honest"})
			has := map[string]string{}
			for _, name := range all {
				has[name] = string(message(name, "1"))
			}
			r.fill(all, "2", "c0000", also)
			r.answer(liar, "no", anything)
			r.take(honest, has, bad("c0000", also))
			check := func(want string, wrong ...string) {
				t.Helper()
				for _, name := range all {
					is := want
					if slices.Contains(wrong, name) {
						is = "1"
					}
					if got := body(has, name); got != is {
						t.Errorf("%s is %s, want %s", name, got, is)
					}
				}
			}
			check("2", "c0000", also)
			liar.Close()
			r.fill(all, "2")
			r.take(honest, has, bad(all...))
			check("2")
			r.holds(0)
		})
	}
}

// The same for a new client without resources: no resource is removed from it.
func TestLyingClientLosesNothing(t *testing.T) {
	within(t, func(r *fixture) {
		conn := xdstest.Serve(r, r.server)
		r.fill(names(6), "2", "c0003")
		for id, refuses := range map[string]func(*xdstest.Response) bool{"liar": anything, "honest": bad("c0003")} {
			c := xdstest.Delta(r, conn, xdstest.WithNode(xds.Node{ID: id}))
			r.nodes[c] = id
			c.Subscribe(xds.Cluster, "*")
			r.answer(c, "no", func(got *xdstest.Response) bool {
				if len(got.Removed) > 0 {
					t.Errorf("%s: removed %v", id, got.Removed)
				}
				return refuses(got)
			})
		}
		r.holds(0)
	})
}

// If a search finds several faulty resources, other streams search only among these.
func TestSearchWithTwoFaultyResources(t *testing.T) {
	within(t, func(r *fixture) {
		conn := xdstest.Serve(r, r.server)
		r.fill(names(100), "1")
		var all []*xdstest.Client
		for i := range 5 {
			all = append(all, r.open(conn, xds.Node{ID: fmt.Sprint(i)}))
		}
		r.fill(names(100), "2", "c0042", "c0077")
		for range 6 {
			for i, c := range all {
				before := r.nacks
				r.answer(c, "no", bad("c0042", "c0077"))
				if n := r.nacks - before; i > 0 && n > 4 {
					t.Errorf("client %d has refused %d times", i, n)
				}
			}
			time.Sleep(2 * time.Second)
		}
		r.holds(2 * len(all))
	})
}

// A new resource that comes during a search and is refused ends the search: the client may have applied it.
func TestNewResourceEndsSearch(t *testing.T) {
	within(t, func(r *fixture) {
		all := names(8)
		c := xdstest.Delta(r, xdstest.Serve(r, r.server), node)
		r.fill(all, "1")
		c.Subscribe(xds.Cluster, "*")
		r.answer(c, "no", bad())
		r.fill(all, "2", "c0003")
		n := 0
		r.answer(c, "no", func(got *xdstest.Response) bool {
			if n++; n == 2 {
				r.set("late", "bad")
			}
			if len(got.Removed) > 0 {
				t.Errorf("removed %v", got.Removed)
			}
			return bad("c0003", "late")(got)
		})
		r.idle()
		r.set("late", "1", "c0003", "3")
		r.answer(c, "no", bad("c0003", "late"))
		r.holds(0)
		if n := len(c.Held(xds.Cluster)); n != 9 {
			t.Errorf("the client has %d", n)
		}
	})
}

// If a stream does not use its turn, the next stream gets the turn, so that no stream waits forever.
func TestUnusedTurnIsPassedOn(t *testing.T) {
	within(t, func(r *fixture) {
		conn := xdstest.Serve(r, r.server)
		r.fill(names(8), "1")
		var liars []*xdstest.Client
		for i := range 20 {
			liars = append(liars, r.open(conn, xds.Node{ID: fmt.Sprint(i), UserAgentName: fmt.Sprint(i)}))
		}
		honest := r.open(conn, xds.Node{ID: "honest"})
		r.fill(names(8), "2", "c0003")
		for _, c := range append(slices.Clone(liars), honest) {
			c.NACK(r.next(c), "no")
			synctest.Wait()
		}
		for _, c := range liars[maxOfPeer:] {
			c.Unsubscribe(xds.Cluster, "*")
		}
		time.Sleep(stepTime + 2*time.Second) // the other clients do not answer
		r.answer(honest, "no", bad("c0003"))
		r.holds(1)
		r.idle()
	})
}

// An ACK does not prove a hint while the client still refuses a resource, because the ACK may be for an
// earlier response. An ACK before the hint is applied does not prove it, either.
func TestHintNeedsProof(t *testing.T) {
	w := &Watch{holds: []held{{typ: xds.Cluster, name: "a", by: Found}}, pending: []order{{typ: xds.Cluster}}}
	w.accepted(xds.Cluster, false, protocol.Acceptance{})
	if !w.Withholds(xds.Cluster) || !w.unprovenIn(xds.Cluster) {
		t.Error("proven before it is shown")
	}
	w.pending = nil
	if w.accepted(xds.Cluster, true, protocol.Acceptance{}); !w.unprovenIn(xds.Cluster) {
		t.Error("proven while a shown resource is refused")
	}
	if w.accepted(xds.Cluster, false, protocol.Acceptance{}); !w.Withholds(xds.Cluster) || w.unprovenIn(xds.Cluster) {
		t.Error("not proven")
	}
}

// A proven hint stays when the client refuses another resource.
func TestProvenHintStays(t *testing.T) {
	within(t, func(r *fixture) {
		conn := xdstest.Serve(r, r.server)
		r.fill(names(8), "1")
		first, second := r.open(conn, xds.Node{ID: "first"}), r.open(conn, xds.Node{ID: "second"})
		r.fill(names(8), "2", "c0003")
		r.answer(first, "no", bad("c0003"))
		r.answer(second, "no", bad("c0003"))
		nacks := r.nacks
		r.set("c0005", "bad")
		r.answer(second, "no", bad("c0003", "c0005"))
		r.holds(3)
		if r.nacks != nacks+1 {
			t.Errorf("%d refusals", r.nacks-nacks)
		}
	})
}

// The streams of one peer cannot take all turns, and each stream waits at most once.
func TestSearchesPerPeerAreLimited(t *testing.T) {
	var ss searches
	stream := func(id uint64) (*search, *Watch, answer) {
		st := &server.Stream{ID: id, Peer: &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(id/100)), Port: int(id)}}
		return &search{typ: xds.Cluster, st: st, key: searchKey{own: id}}, &Watch{}, answer{st: st, typ: xds.Cluster}
	}
	var began []*search
	for id := uint64(100); id < 110; id++ {
		x, w, a := stream(id)
		if _, begins := ss.begin(x, w, a); begins {
			began = append(began, x)
		} else if ss.begin(x, w, a); len(ss.waits) != int(id)-100-maxOfPeer+1 {
			t.Errorf("%d wait", len(ss.waits))
		}
	}
	if len(began) != maxOfPeer || len(ss.turns()) != 0 {
		t.Errorf("%d searches of one peer", len(began))
	}
	if _, begins := ss.begin(stream(200)); !begins {
		t.Error("another peer waits")
	}
	if turn := ss.end(began[0], false); len(turn) != 1 || turn[0].key.own != 102 || len(ss.waits) != 7 {
		t.Errorf("%d turns", len(turn))
	}
}
