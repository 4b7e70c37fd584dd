package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Subscriptions and notifications.
func TestSubscriptions(t *testing.T) {
	both(t, "behaviour 12: the first watch of a name sends a request, a second watch sends none", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.want("CDS node=n names=[a]", "CDS node=n sub=[a]")
		watch(t, c, xds.Cluster, "a")
		s.want("", "")
		watch(t, c, xds.Cluster, "b")
		s.want("CDS names=[a b]", "CDS sub=[b]")
	})

	both(t, "behaviour 13: when one of two watches of a name ends, the other continues", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a, b := watch(t, c, xds.Cluster, "a"), watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
		b.want("a updated=1")
		s.skip()
		a.cancel()
		a.want("end: context canceled")
		s.want("", "")
		s.respond(xds.Cluster, "v2", "a=2")
		a.want()
		b.want("a updated=2")
	})

	both(t, "behaviour 14: without watches a name is dropped, and without names the stream", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a, b := watch(t, c, xds.Cluster, "a"), watch(t, c, xds.Cluster, "b")
		s := f.stream()
		s.skip()
		a.cancel()
		s.want("CDS names=[b]", "CDS unsub=[a]")
		b.cancel()
		synctest.Wait()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d streams are open", n)
		}
		time.Sleep(time.Hour)
		f.idle()
	})

	both(t, "behaviour 15: a watch after the last is like the first", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Cluster, "a")
		f.stream().respond(xds.Cluster, "v1", "a=1")
		a.cancel()
		synctest.Wait()
		a = watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.want("CDS node=n names=[a]", "CDS node=n sub=[a]")
		a.want()
		s.respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
	})

	both(t, "behaviour 15: the same for one of several types", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Endpoint, "e")
		a := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1")
		a.cancel()
		s.skip()
		a = watch(t, c, xds.Cluster, "a")
		a.want()
		s.want("CDS version=v1 nonce=n1 names=[a]", "CDS sub=[a]")
	})

	both(t, "behaviour 16: a watch gets events of its names only, of all its names in one response", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a, b, ab := watch(t, c, xds.Cluster, "a"), watch(t, c, xds.Cluster, "b"), watch(t, c, xds.Cluster, "a", "b")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		a.want("a updated=1")
		b.want("b updated=1")
		ab.want("a updated=1", "b updated=1")
		s.respond(xds.Cluster, "v2", "a=1", "b=2")
		a.want()
		b.want("b updated=2")
		ab.want("b updated=2")
	})

	both(t, "behaviour 17: repeated content is not an event, except after a NACK", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
		s.respond(xds.Cluster, "v2", "a=1")
		a.want()
		s.respond(xds.Cluster, "v3", "a=bad")
		a.want("a refused=1: bad")
		s.respond(xds.Cluster, "v4", "a=1")
		a.want("a updated=1")
	})

	both(t, "behaviour 18: watches begin and end in the body of a watch", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		done := make(chan string, 3)
		go func() {
			for ev := range c.Watch(t.Context(), xds.Cluster, "a") {
				for inner := range c.Watch(t.Context(), xds.Endpoint, "e") {
					for again := range c.Watch(t.Context(), xds.Cluster, "a") {
						done <- ev.Name + inner.Name + again.Name
						break
					}
					break
				}
				break
			}
			done <- "out"
		}()
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1")
		s.respond(xds.Endpoint, "v1", "e=1")
		synctest.Wait()
		if got := <-done; got != "aea" {
			t.Error(got)
		}
		<-done
		synctest.Wait()
		if f.open.Load() != 0 {
			t.Error("the stream is open")
		}
	})

	both(t, "behaviour 19: unlisted types can be watched, a nil type cannot", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		typ := xds.TypeOf("type.googleapis.com/example.Thing")
		w := watch(t, c, typ, "a")
		s := f.stream()
		s.want("Thing node=n names=[a]", "Thing node=n sub=[a]")
		s.respond(typ, "v1", "a=1")
		w.want("a updated=1")
		watch(t, c, nil, "a").want("end: watch: no type")
		watch(t, c, typ).want("end: watch Thing: no names")
		watch(t, c, typ, "b", "").want(`end: watch Thing "": the name is empty`)
		s.skip()
	})

	both(t, "behaviour 20: xdstp names are watched like old names", func(t *testing.T, v xds.Variant) {
		const name = "xdstp:///envoy.config.cluster.v3.Cluster/a"
		c, f := one(t, v)
		a, b := watch(t, c, xds.Cluster, name), watch(t, c, xds.Cluster, name, "old")
		s := f.stream()
		s.respond(xds.Cluster, "v1", name+"=1", "old=1")
		a.want(name + " updated=1")
		b.want(name+" updated=1", "old updated=1")
		s.respond(xds.Cluster, "v2", name+"=bad", "old=1")
		a.want(name + " refused=1: bad")
		s.respond(xds.Cluster, "v3", name+"=1", "old=1")
		a.want(name + " updated=1")
		s.skip()
		a.cancel()
		s.want("", "")
		b.cancel()
		synctest.Wait()
		if f.open.Load() != 0 {
			t.Error("the stream is open")
		}
	})
}

// How watches end, and that no event comes afterwards.
func TestWatchEnds(t *testing.T) {
	both(t, "with the context, and its cause", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() {
			var last error
			for ev, err := range c.Watch(ctx, xds.Cluster, "a") {
				if last != nil {
					t.Error("an event after the error")
				}
				if last = err; ev.Kind != 0 {
					cancel(errors.New("enough"))
				}
			}
			ended <- last
		}()
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1")
		if err := <-ended; err == nil || err.Error() != "enough" {
			t.Error(err)
		}
		for _, err := range c.Watch(ctx, xds.Cluster, "a") {
			if err == nil || err.Error() != "enough" {
				t.Error(err)
			}
		}
	})

	both(t, "with Close, also from the body, and later watches at once", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		other := watch(t, c, xds.Cluster, "b")
		ended := make(chan string, 5)
		go func() {
			for ev, err := range c.Watch(t.Context(), xds.Cluster, "a") {
				ended <- tellEvent(ev, err)
				_ = c.Close()
			}
			close(ended)
		}()
		f.stream().respond(xds.Cluster, "v1", "a=1")
		if got := <-ended; got != "a updated=1" {
			t.Error(got)
		}
		if got := <-ended; got != "end: the client is closed" {
			t.Error(got)
		}
		<-ended
		other.want("end: the client is closed")
		if f.closed.Load() != 1 || f.open.Load() != 0 {
			t.Error("the transport is open")
		}
		watch(t, c, xds.Cluster, "a").want("end: the client is closed")
		if c.Dump() != nil {
			t.Error("a closed client has something")
		}
	})
}

// Aliases, wildcards and collections match resources with other names.
func TestAliasesWildcardsCollections(t *testing.T) {
	both(t, "a wildcard gets events of all resources, and Complete", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "*")
		s := f.stream()
		s.want("CDS node=n", "CDS node=n")
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		w.want("a updated=1", "b updated=1", "* complete")
		late := watch(t, c, xds.Cluster, "*")
		late.want("a updated=1", "b updated=1", "* complete")
		named := watch(t, c, xds.Cluster, "b", "c")
		named.want("b updated=1")
		if v == xds.SotW {
			s.respond(xds.Cluster, "v2", "b=2", "c=1")
		} else {
			s.respond(xds.Cluster, "v2", "b=2", "c=1", "-a")
		}
		for _, w := range []*taker{w, late} {
			got := w.take()
			if len(got) != 3 {
				t.Fatalf("%q", got)
			}
		}
		named.want("b updated=2", "c updated=1")
		w.cancel()
		late.cancel()
		synctest.Wait()
		if n := len(c.Dump()); n != 2 {
			t.Errorf("%d names are known: %v", n, c.Dump())
		}
		s.respond(xds.Cluster, "v3", "b=3", "c=1", "d=1")
		named.want("b updated=3")
		if n := len(c.Dump()); n != 2 {
			t.Errorf("%d names are known", n)
		}
	})

	both(t, "a wildcard without resources gets Complete, too", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "*")
		f.stream().respond(xds.Cluster, "v1")
		w.want("* complete")
	})

	for _, second := range []struct {
		name  string
		do    func(s *fakeStream)
		alias string // events of c, which is only an alias
	}{
		{"is removed", func(s *fakeStream) { s.respond(xds.Cluster, "v2", "-a") }, "c removed"},
		{"loses the alias", func(s *fakeStream) { s.respond(xds.Cluster, "v2", "a=2") }, "c removed"},
		{"is refused", func(s *fakeStream) {
			s.send(&xds.Response{Type: xds.Cluster, Nonce: "x", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("a", "bad", "b", "c")}}})
		}, "c refused=1: bad"},
	} {
		for _, order := range []string{"a b", "b a"} {
			t.Run("CLI-12 a resource stays in use when another resource, which has its name as an alias, "+second.name+", after "+order, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, f := one(t, xds.Delta)
					b, alias, wild := watch(t, c, xds.Cluster, "b"), watch(t, c, xds.Cluster, "c"), watch(t, c, xds.Cluster, "*")
					s := f.stream()
					list := []*xds.Resource{aliased("a", "1", "b", "c"), resource(xds.Cluster, "b", "own")}
					if order == "b a" {
						slices.Reverse(list)
					}
					s.send(&xds.Response{Type: xds.Cluster, Nonce: "n", Changes: &xds.Changes{Upserts: list}})
					if got := b.take(); len(got) == 0 || got[len(got)-1] != "b updated=own" {
						t.Errorf("b: %q", got)
					}
					alias.want("c updated=1")
					wild.take()
					second.do(s)
					b.want()
					alias.want(second.alias)
					watch(t, c, xds.Cluster, "b").want("b updated=own")
				})
			})
		}
	}

	// A refused resource with an alias is removed.
	refused := func(name, watched string, is client.State, want []string, rs ...*xds.Resource) {
		t.Run("CLI-12 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, f := one(t, xds.Delta)
				w := watch(t, c, xds.Cluster, watched)
				watch(t, c, xds.Cluster, "*")
				s := f.stream()
				for _, r := range rs {
					if r.Body == nil {
						s.respond(xds.Cluster, "v", "-"+r.Name)
					} else {
						s.send(&xds.Response{Type: xds.Cluster, Nonce: "n", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
					}
					synctest.Wait()
				}
				w.want(want...)
				for _, st := range c.Dump() {
					if st.Name == watched && st.State != is {
						t.Errorf("%s: %s, not %s", st.Name, st.State, is)
					}
				}
			})
		})
	}
	gone := &xds.Resource{Stamp: &xds.Stamp{Name: "x"}}
	refused("the resource of an alias stays in use when a refused resource with the same alias is removed", "s", client.Acked, []string{"s updated=1", "s refused=1: bad", "s updated=1"},
		aliased("z", "1", "s"), aliased("x", "bad", "s"), gone)
	refused("the resource found by an alias stays in use when a refused resource with that name is removed", "x", client.Acked, []string{"x updated=1", "x refused=1: bad", "x updated=1"},
		aliased("z", "1", "x"), aliased("x", "bad"), gone)
	refused("the end of one refusal does not end the refusal of another resource", "s", client.Nacked, []string{"s refused: bad x", "s refused: bad y"},
		aliased("x", "bad x", "s"), aliased("y", "bad y", "s"), gone)
	refused("when both refused resources are removed, the name is absent", "s", client.DoesNotExist, []string{"s refused: bad x", "s refused: bad y", "s absent"},
		aliased("x", "bad x", "s"), aliased("y", "bad y", "s"), gone, &xds.Resource{Stamp: &xds.Stamp{Name: "y"}})

	t.Run("CLI-12 other aliases are a change", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, f := one(t, xds.Delta)
			w := watch(t, c, xds.Cluster, "a")
			s := f.stream()
			for _, aliases := range [][]string{nil, {"b"}, {"c"}} {
				s.send(&xds.Response{Type: xds.Cluster, Nonce: "n", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("a", "1", aliases...)}}})
				w.want("a updated=1")
			}
		})
	})

	t.Run("CLI-12 a watch of an alias gets events under that alias", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, f := one(t, xds.Delta)
			w := watch(t, c, xds.VirtualHost, "r/alias")
			both := watch(t, c, xds.VirtualHost, "r/alias", "r/name")
			r := resource(xds.VirtualHost, "r/name", "1")
			r.Aliases = []string{"r/alias"}
			r.Seal("1")
			f.stream().send(&xds.Response{Type: xds.VirtualHost, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
			w.want("r/alias updated=1")
			if got := both.take(); len(got) != 2 {
				t.Errorf("%q", got)
			}
		})
	})

	t.Run("CLI-11 a collection finds its members", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const glob, name = "xdstp:///envoy.config.cluster.v3.Cluster/x/*", "xdstp:///envoy.config.cluster.v3.Cluster/x/a"
			c, f := one(t, xds.Delta)
			w := watch(t, c, xds.Cluster, glob)
			s := f.stream()
			s.want("", "CDS node=n sub=["+glob+"]")
			s.respond(xds.Cluster, "v1", name+"=1")
			w.want(name+" updated=1", glob+" complete")
			watch(t, c, xds.Cluster, glob).want(name+" updated=1", glob+" complete")
			s.respond(xds.Cluster, "v2", "-"+name)
			w.want(name + " removed")
		})
	})
}

// aliased is a resource with aliases.
func aliased(name, body string, aliases ...string) *xds.Resource {
	r := xds.NewResource(xds.Cluster, name, []byte(body))
	r.Aliases = aliases
	r.Seal(body)
	return r
}
