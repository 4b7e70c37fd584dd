package client_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// several is a client of servers that back up each other.
func several(t *testing.T, v xds.Variant, n int) (*client.Client, []*fake) {
	var fakes []*fake
	for i := range n {
		fakes = append(fakes, newFake(t, "xds://"+string(rune('a'+i)), v))
	}
	return begin(t, client.Config{}, fakes...), fakes
}

// Fallback servers (gRFC A71).
func TestFallback(t *testing.T) {
	both(t, "CLI-10 behaviour 44: watches get no event until all servers have failed", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 3)
		f[0].fail(errDown)
		f[1].fail(errDown)
		a := watch(t, c, xds.Cluster, "a")
		s := f[2].stream()
		s.want("CDS node=n names=[a]", "CDS node=n sub=[a]")
		a.want()
		s.end(errDown)
		a.want(`a unavailable: xds://c cannot be reached by node "n": connection refused`)
		time.Sleep(10 * time.Minute)
		a.take()
		f[1].fail(nil)
		(<-f[1].opened).respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
	})

	both(t, "CLI-10 behaviour 44: then resources in use are stale, and others unavailable", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		a := watch(t, c, xds.Cluster, "a", "b")
		s := f[0].stream()
		s.respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
		f[0].fail(errDown)
		f[1].fail(errDown)
		s.end(errDown)
		a.want("a stale=1: xds://b cannot be…", "b unavailable: xds://b cannot be…")
	})

	both(t, "CLI-10 equal states from two servers are one event", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		a := watch(t, c, xds.Endpoint, "a", "b")
		s := f[0].stream()
		s.respond(xds.Endpoint, "v1", "a=bad")
		time.Sleep(16 * time.Second)
		a.want("a refused: bad", "b absent")
		watch(t, c, xds.Endpoint, "c")
		f[0].fail(errDown)
		s.end(io.EOF)
		s = f[1].stream()
		s.respond(xds.Endpoint, "w1", "a=bad", "c=1")
		time.Sleep(16 * time.Second)
		a.want()
		s.respond(xds.Endpoint, "w2", "a=1", "b=1")
		a.want("a updated=1", "b updated=1")
	})

	both(t, "CLI-10 behaviour 45: fallback only if a watched resource is missing", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		a := watch(t, c, xds.Cluster, "a")
		s := f[0].stream()
		s.respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
		f[0].fail(errDown)
		s.end(io.EOF)
		time.Sleep(time.Minute)
		f[1].idle()
		a.want("a stale=1: xds://a…")
		b := watch(t, c, xds.Cluster, "b") // b is not in use, so its watch causes the fallback
		s = f[1].stream()
		s.want("CDS node=n names=[a b]", "CDS node=n sub=[a b] initial=[{a }]")
		s.respond(xds.Cluster, "w1", "a=1", "b=1")
		b.want("b updated=1")
		a.want("a updated=1") // a is not stale any more
	})

	both(t, "CLI-10 behaviour 46: the client subscribes to all names on the next server, and resources in use stay until they are replaced", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		a, b := watch(t, c, xds.Endpoint, "a", "b"), watch(t, c, xds.Endpoint, "c")
		s := f[0].stream()
		s.respond(xds.Endpoint, "v1", "a=1", "b=1")
		a.want("a updated=1", "b updated=1")
		f[0].fail(errDown)
		s.end(io.EOF)
		s = f[1].stream()
		s.want("EDS node=n names=[a b c]", "EDS node=n sub=[a b c] initial=[{a } {b }]") // the versions of the first server are not stated
		a.want()
		s.respond(xds.Endpoint, "w1", "a=2", "c=2")
		a.want("a updated=2")
		b.want("c updated=2")
		s.respond(xds.Endpoint, "w2", "b=1")
		a.want() // the content is the same
		time.Sleep(time.Hour)
		a.want()
		b.want()
		watch(t, c, xds.Endpoint, "b").want("b updated=1")
		for _, st := range c.Dump() {
			if st.Server != "xds://b" {
				t.Errorf("%s has the server %s", st.Name, st.Server)
			}
		}
	})

	both(t, "CLI-10 behaviour 46: the next server also removes resources of the previous server", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		a := watch(t, c, xds.Cluster, "a", "b", "c")
		s := f[0].stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		a.want("a updated=1", "b updated=1")
		f[0].fail(errDown)
		s.end(io.EOF)
		s = f[1].stream()
		if v == xds.SotW {
			s.respond(xds.Cluster, "w1", "b=1", "c=1")
		} else {
			s.respond(xds.Cluster, "w1", "b=1", "c=1", "-a")
		}
		got := a.take()
		if len(got) != 2 || got[0]+got[1] != "c updated=1a removed" && got[1]+got[0] != "c updated=1a removed" {
			t.Errorf("%q", got)
		}
	})

	both(t, "CLI-10 CLI-8 a resource with a TTL stays in use when the next server sends it with a longer TTL", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		a := watch(t, c, xds.Endpoint, "a", "b")
		s := f[0].stream()
		send := func(s *fakeStream, ttl time.Duration) {
			r := resource(xds.Endpoint, "a", "1")
			r.TTL = ttl
			s.send(&xds.Response{Type: xds.Endpoint, Version: "v", Nonce: "x", TTL: true, Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
		}
		send(s, 10*time.Second)
		a.want("a updated=1")
		f[0].fail(errDown)
		s.end(io.EOF)
		send(f[1].stream(), 12*time.Second)
		time.Sleep(11 * time.Second)
		a.want()
		time.Sleep(2 * time.Second)
		a.want("a removed")
	})

	both(t, "CLI-10 behaviour 47: a failure in the middle of the start also causes the fallback", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		lds := watch(t, c, xds.Listener, "l")
		s := f[0].stream()
		s.respond(xds.Listener, "v1", "l=1")
		lds.want("l updated=1")
		cds := watch(t, c, xds.Cluster, "c")
		s.skip()
		f[0].fail(errDown)
		s.end(errDown)
		s = f[1].stream()
		s.want("CDS node=n names=[c]\nLDS names=[l]", "CDS node=n sub=[c]\nLDS sub=[l] initial=[{l }]")
		s.respond(xds.Listener, "w1", "l=2")
		s.respond(xds.Cluster, "w1", "c=2")
		lds.want("l updated=2")
		cds.want("c updated=2")
	})

	both(t, "CLI-10 behaviour 48: the first response of a preferred server ends the other streams, and their late responses are ignored", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		f[0].fail(errDown)
		a := watch(t, c, xds.Cluster, "a", "b")
		low := f[1].stream()
		low.respond(xds.Cluster, "w1", "a=low")
		a.want("a updated=low")
		f[0].fail(nil)
		high := <-f[0].opened
		high.want("CDS node=n names=[a b]", "CDS node=n sub=[a b]")
		low.respond(xds.Cluster, "w2", "a=low 2")
		a.want("a updated=low 2") // the client uses this server until the preferred server answers
		high.respond(xds.Cluster, "v1", "b=high")
		a.want("b updated=high")
		if f[1].open.Load() != 0 {
			t.Error("the stream to the fallback is open")
		}
		high.respond(xds.Cluster, "v2", "a=high", "b=high")
		a.want("a updated=high")
		time.Sleep(time.Hour)
		f[1].idle()
		a.want()
	})

	both(t, "CLI-10 behaviour 49: three servers, one after the other and back", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 3)
		f[0].fail(errDown)
		f[1].fail(errDown)
		a := watch(t, c, xds.Cluster, "a")
		third := f[2].stream()
		third.respond(xds.Cluster, "x1", "a=3")
		a.want("a updated=3")
		f[1].fail(nil)
		second := <-f[1].opened
		second.respond(xds.Cluster, "w1", "a=2")
		a.want("a updated=2")
		if f[2].open.Load() != 0 {
			t.Error("the third is connected")
		}
		f[0].fail(nil)
		first := <-f[0].opened
		first.respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
		if f[1].open.Load() != 0 {
			t.Error("the second is connected")
		}
		f[0].fail(errDown)
		f[1].fail(errDown)
		first.end(io.EOF)
		time.Sleep(time.Minute)
		a.want("a stale=1: xds://a…")
		watch(t, c, xds.Cluster, "b")
		third = f[2].stream()
		third.respond(xds.Cluster, "x2", "a=3", "b=3")
		a.want("a updated=3")
		if n := f[2].opens.Load(); n != 2 {
			t.Errorf("%d streams to the third", n)
		}
		a.cancel()
	})

	both(t, "CLI-10 when the first server returns, the client stops to try all later servers", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 3)
		f[0].fail(errDown)
		f[1].fail(errDown)
		a := watch(t, c, xds.Cluster, "a")
		f[2].stream().respond(xds.Cluster, "x1", "a=3")
		a.want("a updated=3")
		f[0].fail(nil)
		(<-f[0].opened).respond(xds.Cluster, "v1", "a=1")
		a.want("a updated=1")
		f[1].fail(nil)
		time.Sleep(time.Hour)
		f[1].idle()
		f[2].idle()
	})

	both(t, "CLI-10 a name without a watch is not requested from the servers that are tried", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		f[0].fail(errDown)
		watch(t, c, xds.Cluster, "a")
		b := watch(t, c, xds.Cluster, "b")
		f[1].stream()
		b.cancel()
		synctest.Wait()
		f[0].fail(nil)
		(<-f[0].opened).want("CDS node=n names=[a]", "CDS node=n sub=[a]")
	})

	both(t, "a wildcard falls back, too, and loses the resources that the other server does not have", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		w := watch(t, c, xds.Cluster, "*")
		s := f[0].stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		w.want("a updated=1", "b updated=1", "* complete")
		f[0].fail(errDown)
		s.end(io.EOF)
		w.want("* stale: xds://a…")
		watch(t, c, xds.Cluster, "x")
		s = f[1].stream()
		s.respond(xds.Cluster, "w1", "b=2")
		time.Sleep(time.Minute)
		got := w.take()
		if len(got) != 3 {
			t.Fatalf("%q", got)
		}
	})

	t.Run("a resource of only a wildcard is dropped if the other server does not have it, also on disk, and a named resource stays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := []*fake{newFake(t, "xds://a", xds.Delta), newFake(t, "xds://b", xds.Delta)}
			dir := t.TempDir()
			c := begin(t, client.Config{Dir: dir}, f...)
			wild, named := watch(t, c, xds.Cluster, "*"), watch(t, c, xds.Cluster, "a")
			s := f[0].stream()
			s.respond(xds.Cluster, "v1", "a=1", "b=1")
			wild.take()
			named.want("a updated=1")
			f[0].fail(errDown)
			s.end(io.EOF)
			watch(t, c, xds.Cluster, "x")
			f[1].stream().respond(xds.Cluster, "w1", "x=1")
			time.Sleep(10 * time.Second)
			named.take()
			wild.take()
			time.Sleep(10 * time.Second)
			named.want()
			wild.want("b removed")
			time.Sleep(2 * time.Second)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			f[0] = newFake(t, "xds://a", xds.Delta)
			f[0].fail(errDown)
			watch(t, begin(t, client.Config{Dir: dir}, f[0]), xds.Cluster, "*").want("a updated=1", "x updated=1", "* stale: xds…")
		})
	})

	both(t, "the last watch ends all, and the next begins with the preferred server", func(t *testing.T, v xds.Variant) {
		c, f := several(t, v, 2)
		f[0].fail(errDown)
		a := watch(t, c, xds.Cluster, "a")
		f[1].stream()
		a.cancel()
		synctest.Wait()
		if f[1].open.Load() != 0 {
			t.Error("the stream is open")
		}
		f[0].fail(nil)
		time.Sleep(time.Hour)
		watch(t, c, xds.Cluster, "a")
		f[0].stream()
		f[1].idle()
	})
}

// Authorities (gRFC A47).
func TestAuthorities(t *testing.T) {
	name := func(authority, id string) string {
		return "xdstp://" + authority + "/envoy.config.cluster.v3.Cluster/" + id
	}
	both(t, "CLI-11 behaviour 50: an authority has its own servers, and other authorities are unknown", func(t *testing.T, v xds.Variant) {
		def, own := newFake(t, "xds://def", v), newFake(t, "xds://own", v)
		c := begin(t, client.Config{Authorities: map[string]client.Authority{
			"own": {Servers: []client.Server{{Transport: own}}}, "as-default": {},
		}}, def)
		w := watch(t, c, xds.Cluster, name("own", "x"))
		def.idle()
		s := own.stream()
		s.respond(xds.Cluster, "v1", name("own", "x")+"=1")
		w.want(name("own", "x") + " updated=1")
		watch(t, c, xds.Cluster, name("nobody", "x")).want(`end: watch CDS "` + name("nobody", "x") + `": unknown authority "nobody": it is not configured`)
		watch(t, c, xds.Cluster, "old", name("", "x"), name("as-default", "x"))
		d := def.stream()
		d.want("CDS node=n names=[old "+name("", "x")+" "+name("as-default", "x")+"]", "CDS node=n sub=[old "+name("", "x")+" "+name("as-default", "x")+"]")
		watch(t, c, xds.Endpoint, name("own", "x")).want(`end: watch EDS "` + name("own", "x") + `": the name is of type "envoy.config.cluster.v3.Cluster", not "envoy.config.endpoint.v3.ClusterLoadAssignment"`)
		// A server's resources are ignored in authorities that are not its own.
		d.respond(xds.Cluster, "v1", "old=1", name("own", "x")+"=stolen")
		w.want()
	})

	both(t, "CLI-11 behaviour 51: authorities with the same server share the stream", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		server := client.Server{Transport: f}
		c := begin(t, client.Config{Servers: []client.Server{server, server}, Authorities: map[string]client.Authority{
			"x": {Servers: []client.Server{server}}, "y": {Servers: []client.Server{server}},
		}})
		x, y, o := watch(t, c, xds.Cluster, name("x", "n")), watch(t, c, xds.Cluster, name("y", "n")), watch(t, c, xds.Cluster, "*")
		s := f.stream()
		f.idle()
		s.skip()
		s.respond(xds.Cluster, "v1", name("x", "n")+"=1", name("y", "n")+"=2", "o=3")
		x.want(name("x", "n") + " updated=1")
		y.want(name("y", "n") + " updated=2")
		if got := o.take(); len(got) != 4 {
			t.Errorf("%q", got)
		}
		x.cancel()
		y.cancel()
		synctest.Wait()
		if f.open.Load() != 1 {
			t.Error("the stream is closed")
		}
		o.cancel()
		synctest.Wait()
		if f.open.Load() != 0 {
			t.Error("the stream is open")
		}
	})

	both(t, "behaviour 52: names that differ in the order of context parameters are one name, and events have the name as given", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Authorities: map[string]client.Authority{"x": {}}}, f)
		for _, typ := range []*xds.Type{xds.Listener, xds.Route, xds.Cluster, xds.Endpoint} {
			base := "xdstp://x/" + typ.URL[len("type.googleapis.com/"):] + "/n"
			a, b := watch(t, c, typ, base+"?b=2&a=1"), watch(t, c, typ, base+"?a=1&b=2")
			s := f.stream()
			s.respond(typ, "v1", base+"?b=2&a=1=body")
			r := resource(typ, base+"?b=2&a=1", "1")
			s.send(&xds.Response{Type: typ, Version: "v2", Nonce: "2", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
			got := a.take()
			if last := got[len(got)-1]; last != base+"?b=2&a=1 updated=1" {
				t.Errorf("%q", got)
			}
			got = b.take()
			if last := got[len(got)-1]; last != base+"?a=1&b=2 updated=1" {
				t.Errorf("%q", got)
			}
			a.cancel()
			b.cancel()
			synctest.Wait()
		}
	})

	t.Run("no server, and invalid transports", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			watch(t, begin(t, client.Config{}), xds.Cluster, "a").want(`end: watch CDS "a": no server is configured`)
			for _, cfg := range []client.Config{
				{Servers: []client.Server{{}}}, {Authorities: map[string]client.Authority{"x": {Servers: []client.Server{{}}}}},
				{Servers: []client.Server{{Transport: incomparable{}}}},
				{Servers: []client.Server{{Transport: holder{of: []int{1}}}}},
			} {
				if _, err := client.New(cfg); err == nil {
					t.Error("no error")
				}
			}
		})
	})
}

// A holder can be compared, unless the value that it holds cannot be.
type holder struct {
	client.Transport
	of any
}

type incomparable struct {
	client.Transport
	_ []int
}

// A transport may put the server's name into its errors. The client does not repeat it.
func TestConnectionError(t *testing.T) {
	err := &client.ConnectionError{Server: "xds://a", NodeID: "n", Err: errors.New("xds://a: Unavailable: no server listens there")}
	if got, want := err.Error(), `xds://a cannot be reached by node "n": Unavailable: no server listens there`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
