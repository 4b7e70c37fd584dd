package quarantine

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// route sets a route that refers to a cluster.
func (r *fixture) route(text, to string, clusters func(tx *store.Tx)) {
	r.Helper()
	if _, err := r.st.Update(func(tx *store.Tx) error {
		res := xds.NewResource(xds.Route, "r", message("r", text))
		res.Refs = []xds.Ref{{Type: xds.Cluster, Name: to}}
		tx.Set(res)
		clusters(tx)
		return nil
	}); err != nil {
		r.Fatal(err)
	}
}

func cluster(name, text string) *xds.Resource {
	return xds.NewResource(xds.Cluster, name, message(name, text))
}

func (r *fixture) routed() *xdstest.Client {
	r.Helper()
	c := xdstest.Delta(r, xdstest.Serve(r, r.server), node)
	r.route("1", "old", func(tx *store.Tx) { tx.Set(cluster("old", "1")) })
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Next(xds.Cluster))
	c.Subscribe(xds.Route, "r")
	c.ACK(c.Next(xds.Route))
	return c
}

// The old version of a refused route refers to a cluster that the same change removes. The cluster stays,
// too, until the route is fixed.
func TestReplacementKeepsItsReferences(t *testing.T) {
	within(t, func(r *fixture) {
		c := r.routed()
		r.guilty = []string{"r"}
		r.route("bad", "new", func(tx *store.Tx) { tx.Delete(xds.Cluster, "old"); tx.Set(cluster("new", "1")) })
		c.ACK(c.Next(xds.Cluster))
		c.NACK(c.Next(xds.Route), "r is bad")
		if again := c.Next(xds.Route); !says(again, "r", "1") {
			t.Errorf("told %v", again)
		} else {
			c.ACK(again)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		c.ExpectNothing()
		if held := c.Held(xds.Cluster); !slices.Contains(held, "old") {
			t.Errorf("the client has %v, and a route to old", held)
		}
		r.keeps("old: RDS r")
		r.route("2", "new", func(*store.Tx) {})
		c.ACK(c.Next(xds.Route))
		c.ACK(c.Next(xds.Cluster))
		if held := c.Held(xds.Cluster); slices.Contains(held, "old") {
			t.Errorf("the client has %v", held)
		}
		r.holds(0)
		r.keeps()
	})
}

// keeps checks which removed resources the streams are shown, each with the resource that refers to it.
func (r *fixture) keeps(want ...string) {
	r.Helper()
	var got []string
	r.source.watches.Range(func(_, v any) bool {
		for _, k := range v.(*Watch).kept {
			got = append(got, fmt.Sprintf("%s: %s %s", k.Name, k.By.Type, k.By.Name))
		}
		return true
	})
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.Errorf("kept: %q, want %q", got, want)
	}
}

// With a stream for each type, the stream of clusters keeps a removed cluster to which the old version of a
// refused route refers. Streams of other nodes do not keep it.
func TestReplacementKeepsItsReferencesOnSiblings(t *testing.T) {
	for name, dial := range variants {
		run := func(t *testing.T, ends bool) {
			within(t, func(r *fixture) {
				conn := xdstest.Serve(r, r.server)
				stream := func(id string, typ *xds.Type, name string) *xdstest.Client {
					c := dial(r, conn, xdstest.WithNode(xds.Node{ID: id}), xdstest.WithType(typ))
					c.Subscribe(typ, name)
					c.ACK(c.Next(typ))
					return c
				}
				has := func(c *xdstest.Client, want bool) {
					t.Helper()
					if got := slices.Contains(c.Held(xds.Cluster), "old"); got != want {
						t.Errorf("the client has the old cluster: %v", got)
					}
				}
				r.route("1", "old", func(tx *store.Tx) { tx.Set(cluster("old", "1")) })
				clusters, routes, other := stream("n", xds.Cluster, "*"), stream("n", xds.Route, "r"), stream("other", xds.Cluster, "*")
				r.guilty = []string{"r"}
				r.route("bad", "new", func(tx *store.Tx) { tx.Delete(xds.Cluster, "old"); tx.Set(cluster("new", "1")) })
				clusters.ACK(clusters.Next(xds.Cluster))
				other.ACK(other.Next(xds.Cluster))
				routes.NACK(routes.Next(xds.Route), "r is bad")
				routes.ACK(routes.Next(xds.Route))
				synctest.Wait()
				time.Sleep(time.Minute) // longer than the delay of removals
				other.ACK(other.Next(xds.Cluster))
				has(other, false)
				clusters.ExpectNothing()
				has(clusters, true)
				r.keeps("old: RDS r", "old: RDS r") // the stream of routes, which lends it to that of clusters

				if ends {
					routes.Close()
				} else {
					r.route("2", "new", func(*store.Tx) {})
					routes.ACK(routes.Next(xds.Route))
				}
				clusters.ACK(clusters.Next(xds.Cluster))
				has(clusters, false)
				r.holds(0)
				r.keeps()
				for _, c := range []*xdstest.Client{clusters, routes, other} {
					c.Close()
				}
				synctest.Wait()
				if n := len(r.source.siblings.all); n > 0 {
					t.Errorf("%d clients after their streams have ended", n)
				}
			})
		}
		t.Run("HEAL-1 "+name+" until the route changes", func(t *testing.T) { run(t, false) })
		t.Run("HEAL-1 "+name+" until the stream of routes ends", func(t *testing.T) { run(t, true) })
	}
}

// A route to a refused new cluster is not sent before the cluster is accepted.
func TestDependentWaits(t *testing.T) {
	within(t, func(r *fixture) {
		c := r.routed()
		r.guilty = []string{"new"}
		r.route("2", "new", func(tx *store.Tx) { tx.Set(cluster("new", "bad"), cluster("other", "1")) })
		c.NACK(c.Next(xds.Cluster), "new is bad")
		c.ACK(c.Next(xds.Cluster))
		synctest.Wait()
		time.Sleep(time.Minute) // longer than a route waits without quarantine
		synctest.Wait()
		if _, st := r.watch(); len(st) != 1 || st[0].Name != "r" || st[0].By != Dependent || st[0].RefersTo.Name != "new" {
			t.Errorf("kept back: %+v", st)
		}
		if all := r.source.Refused(100); len(all) != 1 || all[0].Name != "new" {
			t.Errorf("at fault: %+v", all)
		}
		r.route("3", "new", func(*store.Tx) {}) // a later version does not come either
		c.ExpectNothing()
		r.set("new", "good")
		c.ACK(c.Next(xds.Cluster))
		if got := c.Next(xds.Route); !says(got, "r", "3") {
			t.Errorf("told %v", got)
		}
		r.holds(0)
	})
}

// watch returns the watch of the only stream, and the routes that the watch holds back.
func (r *fixture) watch() (w *Watch, all []Held) {
	r.source.watches.Range(func(_, v any) bool { w = v.(*Watch); return true })
	return w, w.held(xds.Route)
}

// Replacements are cached for clients that reconnect, with a limit.
func TestReplacementCache(t *testing.T) {
	var k replacements
	all := names(3 * maxIdle)
	for i := range 3 * maxIdle {
		r := cluster(all[i], "x")
		k.hold("s", r)
		k.release("s", r)
	}
	if len(k.all) != maxIdle || k.idle.Len() != maxIdle {
		t.Errorf("%d are kept", len(k.all))
	}
	last := all[len(all)-1]
	if k.find("s", xds.Cluster, last) == nil || k.find("other", xds.Cluster, last) != nil {
		t.Error("it is not for those that see the same")
	}
	big := xds.NewResource(xds.Cluster, "big", make([]byte, maxIdleBytes+1))
	k.hold("s", big)
	if k.find("s", xds.Cluster, "big") == nil {
		t.Error("what is shown is not remembered")
	}
	if k.release("s", big); k.bytes > maxIdleBytes {
		t.Errorf("%d bytes", k.bytes)
	}
}

// Verdicts are limited, and expire.
func TestVerdicts(t *testing.T) {
	var vs verdicts
	texts := names(3 * maxVerdicts)
	now := time.Now()
	for i := range 3 * maxVerdicts {
		vs.add(verdictOf(answer{typ: xds.Cluster, text: texts[i]}, nil), Blame{Names: []string{"a"}}, now)
		if len(vs.all) > maxVerdicts || len(vs.added) != len(vs.all) {
			t.Fatalf("%d verdicts", len(vs.all))
		}
		// many others replace only the oldest
		if before := verdictOf(answer{typ: xds.Cluster, text: texts[max(i-maxVerdicts+1, 0)]}, nil); vs.find(before, now).Names == nil {
			t.Fatalf("after %d texts one of the newest %d is forgotten", i+1, maxVerdicts)
		}
	}
	k := verdictOf(answer{typ: xds.Cluster, text: "x"}, nil)
	vs.add(k, Blame{Names: []string{"a"}}, now)
	if vs.find(k, now).Names == nil || vs.find(k, now.Add(verdictTime)).Names != nil {
		t.Error("a verdict is not for ten seconds")
	}
}

// A stream that has ended gets no order and no examination.
func TestEndedStream(t *testing.T) {
	within(t, func(r *fixture) {
		c := r.routed()
		w, _ := r.watch()
		c.Close()
		synctest.Wait()
		w.order(order{typ: xds.Cluster, add: []held{{typ: xds.Cluster, name: "old"}}})
		if w.moving() || w.addAnswer(answer{typ: xds.Cluster, refused: true}) {
			t.Error("what has ended is given something")
		}
	})
}

// A refused cluster is removed, and a replaced listener still refers to it. The client keeps the version of the
// cluster that it accepted, and is not sent the refused one.
func TestRemovedResourceIsKeptAsAccepted(t *testing.T) {
	for name, dial := range variants {
		t.Run("HEAL-2 "+name, func(t *testing.T) {
			within(t, func(r *fixture) {
				listener := func(text string, refs ...xds.Ref) {
					l := xds.NewResource(xds.Listener, "l", message("l", text))
					l.Refs = append([]xds.Ref{}, refs...)
					if _, err := r.st.Update(func(tx *store.Tx) error { tx.Set(l); return nil }); err != nil {
						t.Fatal(err)
					}
				}
				c := dial(r, xdstest.Serve(r, r.server), node)
				r.set("a", "1", "b", "1")
				listener("1", xds.Ref{Type: xds.Cluster, Name: "b"})
				c.Subscribe(xds.Cluster, "*")
				c.ACK(c.Next(xds.Cluster))
				c.Subscribe(xds.Listener, "*")
				c.ACK(c.Next(xds.Listener))
				r.guilty = []string{"b"}
				r.set("b", "bad")
				c.NACK(c.Next(xds.Cluster), "no")
				c.ACK(c.Next(xds.Cluster))
				r.guilty = []string{"l"}
				listener("bad")
				c.NACK(c.Next(xds.Listener), "no")
				c.ACK(c.Next(xds.Listener))
				r.holds(2)
				r.set("b", "")
				r.holds(1)
				r.set("a", "2")
				for got := c.Next(xds.Cluster); ; got = c.Next(xds.Cluster) {
					if says(got, "b", "bad") || slices.Contains(got.Removed, "b") {
						r.Fatalf("sent %v", got)
					}
					c.ACK(got)
					if says(got, "a", "2") {
						break
					}
				}
			})
		})
	}
}
