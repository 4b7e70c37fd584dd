package quarantine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

type dialer = func(t xdstest.T, conn grpc.ClientConnInterface, opts ...xdstest.Option) *xdstest.Client

var variants = map[string]dialer{"delta": xdstest.Delta, "SotW": xdstest.SotW}

// join opens a stream of another node, whose client asks for all clusters.
func (r *fixture) join(dial dialer, conn grpc.ClientConnInterface, id, agent string) *xdstest.Client {
	r.Helper()
	n := xds.Node{ID: id, UserAgentName: agent}
	c := dial(r, conn, xdstest.WithNode(n))
	r.nodes[c] = id
	c.Subscribe(xds.Cluster, "*")
	return c
}

// accepts returns a client that accepts the current clusters.
func (r *fixture) accepts(dial dialer, conn grpc.ClientConnInterface, id, agent string) *xdstest.Client {
	r.Helper()
	c := r.join(dial, conn, id, agent)
	r.answer(c, "no", bad())
	return c
}

// gets refuses responses with one of the texts for b, and checks the b and a that the client then has.
func (r *fixture) gets(c *xdstest.Client, b, a string, refused ...string) {
	r.Helper()
	var last *xdstest.Response
	for r.due(c) {
		got, refuses := r.next(c), false
		for _, text := range refused {
			refuses = refuses || says(got, "b", text)
		}
		if refuses {
			c.NACK(got, "no")
			continue
		}
		c.ACK(got)
		last = got
	}
	switch {
	case last == nil:
		r.Errorf("the client accepts no response")
	case b == "" && last.Resource("b") != nil, b != "" && !says(last, "b", b), a != "" && !says(last, "a", a):
		r.Errorf("the client has %v, want b %q, a %q", last, b, a)
	}
}

// HEAL-3
func TestFleetLastGood(t *testing.T) {
	for name, dial := range variants {
		for _, by := range []struct {
			name   string
			guilty []string
		}{{"named", []string{"b"}}, {"unnamed", nil}} {
			run := func(what string, f func(r *fixture, conn grpc.ClientConnInterface)) {
				t.Run("HEAL-3 "+name+" "+by.name+": "+what, func(t *testing.T) {
					within(t, func(r *fixture) {
						r.guilty = by.guilty
						f(r, xdstest.Serve(r, r.server))
					})
				})
			}
			run("a new client gets the version that others accepted", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				r.set("b", "bad")
				r.answer(old, "no", bad("b"))
				r.set("a", "2")
				r.answer(old, "no", bad("b"))
				time.Sleep(23 * time.Hour)
				c := r.join(dial, conn, "new", "envoy")
				r.gets(c, "1", "2", "bad")
				if last := r.acks[len(r.acks)-1]; !last.Refuses {
					r.Error("the client does not count as refusing")
				}
				early := r.source.Earlier(10)
				if len(early) != 1 || early[0].Name != "b" || early[0].Clients != 1 || early[0].Instead == early[0].Refused || r.source.Early() != 1 {
					r.Errorf("%+v, %d", early, r.source.Early())
				}
				if told := r.told(); !told[len(told)-1].Others || told[0].Others {
					r.Errorf("told %+v", told)
				}
				r.holds(2)
				r.set("b", "2")
				r.answer(c, "no", bad())
				r.answer(old, "no", bad())
				r.holds(0)
				if n := r.source.Early(); n != 0 || len(r.source.Earlier(10)) > 0 {
					r.Errorf("%d earlier versions", n)
				}
			})
			run("the revisions of both versions are known", func(r *fixture, conn grpc.ClientConnInterface) {
				revision := func(groups string, _ *xds.Type, _ string, sum xds.Sum) string {
					is := r.st.Snapshot().View("default").Table(xds.Cluster).Lookup("b")
					if groups != "default" || is == nil || is.Sum != sum {
						return ""
					}
					return "r-bad"
				}
				r.source.opts.Revision = revision
				r.source.evidence.Revision = func(groups string, _ *xds.Type, name string, _ xds.Sum) string { return "r-old " + groups + " " + name }
				r.set("a", "1", "b", "1")
				r.accepts(dial, conn, "old", "envoy")
				r.set("b", "bad")
				r.gets(r.join(dial, conn, "new", "envoy"), "1", "1", "bad")
				if e := r.source.Earlier(10); len(e) != 1 || e[0].InsteadSince != "r-old default b" || e[0].RefusedSince != "r-bad" {
					r.Errorf("%+v", e)
				}
			})
			run("the version of a restarted client counts", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				c := r.accepts(dial, conn, "n", "envoy")
				c.Close()
				synctest.Wait()
				r.sent["n"], r.answered["n"] = 0, 0
				r.set("b", "bad")
				r.gets(r.join(dial, conn, "n", "envoy"), "1", "1", "bad")
			})
			run("a version that is too old does not count", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				r.accepts(dial, conn, "old", "envoy")
				r.set("b", "2")
				synctest.Wait()
				time.Sleep(25 * time.Hour)
				r.set("b", "bad")
				c := r.join(dial, conn, "new", "envoy")
				r.gets(c, "", "1", "bad", "2")
			})
			run("at most three versions back", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				for _, text := range []string{"2", "3", "4"} {
					r.set("b", text)
					r.answer(old, "no", bad())
				}
				r.set("b", "bad")
				r.gets(r.join(dial, conn, "new", "envoy"), "2", "1", "bad", "4", "3")
				r.gets(r.join(dial, conn, "picky", "envoy"), "", "1", "bad", "4", "3", "2")
			})
			run("the same user agent comes first", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				r.accepts(dial, conn, "old", "envoy").Close()
				synctest.Wait()
				r.set("b", "2")
				r.accepts(dial, conn, "other", "grpc")
				r.set("b", "bad")
				r.gets(r.join(dial, conn, "new", "envoy"), "1", "1", "bad")
				r.gets(r.join(dial, conn, "new2", "grpc"), "2", "1", "bad")
			})
			run("a version that was rolled back does not count", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				for _, text := range []string{"2", "3", "1", "bad"} {
					r.set("b", text)
					r.answer(old, "no", bad("b"))
				}
				r.gets(r.join(dial, conn, "new", "envoy"), "1", "1", "bad")
				if by.guilty == nil {
					return // the clients accepted everything: the refusal stays
				}
				r.set("b", "1") // a rollback that this client refuses: nothing was served before
				c := r.join(dial, conn, "odd", "envoy")
				r.gets(c, "", "", "1")
			})
			run("a version from before the removal does not count", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				for _, text := range []string{"", "bad"} {
					r.set("b", text)
					r.answer(old, "no", bad("b"))
				}
				r.gets(r.join(dial, conn, "new", "envoy"), "", "1", "bad")
			})
			run("a liar changes only its own view", func(r *fixture, conn grpc.ClientConnInterface) {
				r.set("a", "1", "b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				liar := r.join(dial, conn, "liar", "liar")
				all := func(*xdstest.Response) bool { return true }
				r.answer(liar, "no", all)
				r.accepts(dial, conn, "yes", "yes")
				r.gets(r.join(dial, conn, "well", "envoy"), "1", "1")
				r.set("b", "bad")
				r.answer(old, "no", bad("b"))
				r.answer(liar, "no", all)
				r.accepts(dial, conn, "yes2", "yes")
				r.gets(r.join(dial, conn, "new", "envoy"), "1", "1", "bad")
			})
		}
		t.Run("HEAL-3 "+name+": without evidence an unnamed refusal stays", func(t *testing.T) {
			within(t, func(r *fixture) {
				r.set("a", "1", "b", "bad")
				c := r.join(dial, xdstest.Serve(r, r.server), "new", "envoy")
				c.NACK(r.next(c), "no")
				c.ExpectNothing()
				r.holds(0)
			})
		})
		t.Run("HEAL-3 "+name+": a version that others accepted is blamed for its conflict with one that nobody accepted", func(t *testing.T) {
			within(t, func(r *fixture) {
				conn := xdstest.Serve(r, r.server)
				r.set("a", "1", "b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				r.guilty = []string{"aa"}
				r.set("aa", "bad")
				r.answer(old, "no", func(got *xdstest.Response) bool { return says(got, "aa", "bad") })
				r.guilty = []string{"b"}
				c := r.join(dial, conn, "new", "envoy")
				c.NACK(r.next(c), "b has the address of aa")
				synctest.Wait()
				r.guilty = nil
				r.answer(c, "no", func(got *xdstest.Response) bool { return says(got, "aa", "bad") })
				if held := c.Held(xds.Cluster); len(held) != 2 || held[0] != "a" || held[1] != "b" {
					t.Errorf("the client has %q", held)
				}
				r.guilty = []string{"b"} // a client that refuses b all the same does not get it
				odd := r.join(dial, conn, "odd", "envoy")
				r.gets(odd, "", "1", "1")
			})
		})
		t.Run("HEAL-3 "+name+": a listener is retried when the client has accepted the replaced cluster", func(t *testing.T) {
			within(t, func(r *fixture) {
				conn := xdstest.Serve(r, r.server)
				listener := xds.NewResource(xds.Listener, "l", message("l", "1"))
				listener.Refs = []xds.Ref{{Type: xds.Cluster, Name: "b"}}
				if _, err := r.st.Update(func(tx *store.Tx) error { tx.Set(listener); return nil }); err != nil {
					t.Fatal(err)
				}
				r.set("b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				r.guilty = []string{"b"}
				r.set("b", "bad")
				r.answer(old, "no", bad("b"))
				for _, early := range []bool{true, false} { // the listener is refused before, or after, the cluster is accepted
					c := dial(r, conn, xdstest.WithNode(xds.Node{ID: fmt.Sprint("new", early)}))
					c.Subscribe(xds.Cluster, "*")
					c.Subscribe(xds.Listener, "*")
					c.NACK(c.Next(xds.Cluster), "no")
					cluster := c.Next(xds.Cluster)
					if early {
						time.Sleep(16 * time.Second) // if it was not sent before the cluster, the listener waits 15 s for the ACK
					} else {
						c.ACK(cluster)
						synctest.Wait()
					}
					r.guilty = []string{"l"}
					c.NACK(c.Next(xds.Listener), "unknown cluster")
					synctest.Wait()
					if early {
						c.ACK(cluster)
						synctest.Wait()
					}
					r.guilty = []string{"b"}
					got := c.Next(xds.Listener)
					if got.Resource("l") == nil { // without the listener
						c.ACK(got)
						got = c.Next(xds.Listener)
					}
					if got.Resource("l") == nil {
						t.Errorf("early %v: the client gets %v", early, got)
					}
					c.NACK(got, "still no")
					synctest.Wait()
					r.set(fmt.Sprint("other", early), "1")
					c.ACK(c.Next(xds.Cluster))
					c.ExpectNothing() // the listener is shown again once
					c.Close()
				}
			})
		})
		t.Run("HEAL-3 "+name+": named subscriptions", func(t *testing.T) {
			for _, typ := range []*xds.Type{xds.Listener, xds.Route, xds.Cluster, xds.Endpoint, xds.VirtualHost, xds.ScopedRoute, xds.ExtensionConfig, xds.Secret} {
				within(t, func(r *fixture) {
					conn := xdstest.Serve(r, r.server)
					set := func(text string) {
						if _, err := r.st.Update(func(tx *store.Tx) error {
							tx.Set(xds.NewResource(typ, "b", message("b", text)))
							return nil
						}); err != nil {
							t.Fatal(err)
						}
					}
					join := func(id string) *xdstest.Client {
						c := dial(r, conn, xdstest.WithNode(xds.Node{ID: id}))
						c.Subscribe(typ, "b")
						return c
					}
					set("1")
					old := join("old")
					old.ACK(old.Next(typ))
					set("bad")
					old.NACK(old.Next(typ), "no")
					synctest.Wait()
					c := join("new")
					got := c.Next(typ)
					c.NACK(got, "no")
					if again := c.Next(typ); !says(again, "b", "1") {
						t.Errorf("%s: the client gets %v", typ, again)
					} else {
						c.ACK(again)
					}
					set("worse") // of a secret the direct predecessor only: nobody accepted it
					c.NACK(c.Next(typ), "no")
					synctest.Wait()
					late := join("late")
					late.NACK(late.Next(typ), "no")
					synctest.Wait()
					var now *Watch
					r.source.watches.Range(func(n, w any) bool {
						if n.(*xds.Node).ID == "late" {
							now = w.(*Watch)
						}
						return true
					})
					if h := now.held(typ); len(h) != 1 || (h[0].Instead == "") != (typ == xds.Secret) {
						t.Errorf("%s: %+v", typ, h)
					}
				})
			}
		})
	}
}

// A mistake in many resources, which the client and the server find one at a time or a few at a time.
func TestFleetLastGoodOfMany(t *testing.T) {
	const all = 300
	one := func(_, refused []string) Blame { return Blame{Names: refused[:1], Named: true} }
	first := func(got *xdstest.Response, n int) (bad []string) {
		for i := range all {
			if name := fmt.Sprint("c", i); says(got, name, "bad") && len(bad) < n {
				bad = append(bad, name)
			}
		}
		return bad
	}
	for name, dial := range variants {
		for what, by := range map[string]struct {
			nacks int
			liar  string
			blame func(loaded, refused []string) Blame
		}{
			"the text names one":                          {maxNamed + 1, "", one},
			"the text names one, one kind accepts all":    {2*maxNamed + 1, "liar", one},
			"the text names one, a neighbour accepts all": {3*maxNamed + 1, "envoy", one},
			"the text names all, and the search some":     {1, "", func(_, refused []string) Blame { return Blame{Names: refused, Named: true, More: true} }},
			"the text names none, and the search some":    {1, "", func(loaded, _ []string) Blame { return Blame{Names: loaded, More: true} }},
			"the text names none, and the search one":     {1, "", func(loaded, _ []string) Blame { return Blame{Names: loaded[:1]} }},
			"the text names none, and the search nothing": {1, "", func(loaded, _ []string) Blame { return Blame{} }},
		} {
			t.Run("HEAL-3 "+name+": "+what, func(t *testing.T) {
				within(t, func(r *fixture) {
					conn := xdstest.Serve(r, r.server)
					set := func(text string) {
						var pairs []string
						for i := range all {
							pairs = append(pairs, fmt.Sprint("c", i), text)
						}
						r.set(pairs...)
					}
					r.blame = func(string) Blame { return Blame{} }
					set("1")
					r.accepts(dial, conn, "old", "envoy")
					set("bad")
					if by.liar != "" {
						r.accepts(dial, conn, "liar", by.liar)
					}
					c := r.join(dial, conn, "new", "envoy")
					nacks, has := 0, map[string]bool{}
					for r.due(c) {
						got := r.next(c)
						bad := first(got, 5)
						if len(bad) == 0 {
							for i := range all {
								if name := fmt.Sprint("c", i); says(got, name, "1") {
									has[name] = true
								}
							}
							c.ACK(got)
							continue
						}
						b := by.blame([]string{"c0", "c1", "c2", "c3", "c4"}, bad)
						r.blame = func(string) Blame { return b }
						c.NACK(got, fmt.Sprint("no ", nacks))
						nacks++
					}
					if nacks > by.nacks || len(has) != all {
						t.Errorf("after %d refusals the client has %d of %d resources", nacks, len(has), all)
					}
					if n := r.source.Early(); n != all {
						t.Errorf("%d earlier versions", n)
					}
				})
			})
		}
	}
}

// If check finds a fault and the text names nothing, a new resource that no client accepted is not withheld.
// If another new one has the fault, the client keeps the earlier versions.
func TestUnnamedRefusalKeepsEarlierVersions(t *testing.T) {
	for name, dial := range variants {
		t.Run("HEAL-3 "+name, func(t *testing.T) {
			within(t, func(r *fixture) {
				conn := xdstest.Serve(r, r.server)
				r.set("a", "1", "b", "1")
				r.accepts(dial, conn, "old", "envoy").Close()
				synctest.Wait()
				r.set("a", "2", "b", "bad", "new", "1", "newer", "bad")
				c := r.join(dial, conn, "new", "envoy")
				r.blame = func(string) Blame { return Blame{Names: []string{"b"}} }
				got := r.next(c)
				c.NACK(got, "no")
				got = r.next(c)
				if !says(got, "a", "1") || !says(got, "b", "1") || !says(got, "new", "1") {
					t.Errorf("the client gets %v", got)
				}
				c.NACK(got, "no")
				r.gets(c, "1", "1")
				if held := c.Held(xds.Cluster); len(held) != 2 {
					t.Errorf("the client has %q", held)
				}
			})
		})
	}
}

// An earlier version of endpoints must not lead to the addresses of others.
func TestEarlierEndpointsOfOthers(t *testing.T) {
	field := func(n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), v)
	}
	assignment := func(name string, addresses ...string) *xds.Resource {
		body := field(1, []byte(name))
		for _, a := range addresses {
			body = append(body, field(2, field(2, field(1, field(1, []byte(a)))))...)
		}
		return xds.NewResource(xds.Endpoint, name, body)
	}
	for _, c := range []struct {
		what    string
		other   []string
		earlier bool
	}{
		{"an address is free", []string{"10.0.0.3"}, true},
		{"an address has another owner", []string{"10.0.0.3", "10.0.0.1"}, false},
		{"a kept address is shared", []string{"10.0.0.2"}, true},
	} {
		t.Run("HEAL-3 "+c.what, func(t *testing.T) {
			within(t, func(r *fixture) {
				conn := xdstest.Serve(r, r.server)
				set := func(all ...*xds.Resource) {
					if _, err := r.st.Update(func(tx *store.Tx) error { tx.Set(all...); return nil }); err != nil {
						t.Fatal(err)
					}
				}
				set(assignment("a", "10.0.0.1", "10.0.0.2"))
				old := xdstest.Delta(r, conn, xdstest.WithNode(xds.Node{ID: "old"}))
				old.Subscribe(xds.Endpoint, "a")
				old.ACK(old.Next(xds.Endpoint))
				set(assignment("a", "10.0.0.2", "bad"), assignment("other", c.other...))
				old.NACK(old.Next(xds.Endpoint), "no")
				n := xdstest.Delta(r, conn, xdstest.WithNode(xds.Node{ID: "new"}))
				n.Subscribe(xds.Endpoint, "a")
				n.NACK(n.Next(xds.Endpoint), "no")
				synctest.Wait()
				if got := r.source.Early() == 1; got != c.earlier {
					t.Errorf("the client gets an earlier version: %v", got)
				}
			})
		})
	}
}
