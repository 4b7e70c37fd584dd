package client_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/scaling"
	"github.com/chancery-xds/chancery/internal/testkit/worlds"
	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// advance sets the client's time, in seconds after the start.
func (c talk) advance(seconds float64) {
	c.Advance(time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second))))
}

// wantEvents compares the events since the last call.
func (c talk) wantEvents(want ...string) {
	c.Helper()
	var got []string
	for e := range c.Events() {
		s := fmt.Sprintf("%s %s %v", e.Kind, e.Name, e.Asked)
		if e.Resource != nil {
			s += " " + string(e.Resource.Body)
		}
		if e.Err != nil {
			s += ": " + e.Err.Error()
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		c.Fatalf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sendRequests sends the requests that are due, without a check of their content.
func (c talk) sendRequests() {
	for range c.Requests() {
	}
}

// subscribe returns a client that subscribes to names at time 0.
func subscribe(t *testing.T, v xds.Variant, opts client.Options, typ *xds.Type, names ...string) talk {
	c := newTalk(t, v, opts)
	c.advance(0)
	c.Subscribe(typ, names...)
	c.sendRequests()
	return c
}

func bothVariants(t *testing.T, name string, f func(t *testing.T, v xds.Variant)) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(name+" "+v.String(), func(t *testing.T) { f(t, v) })
	}
}

func TestClientVerdicts(t *testing.T) {
	bothVariants(t, "CLI-2 the NACK names every bad resource, and the client uses the good ones", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Endpoint, "a", "b", "c")
		resp := &xds.Response{Type: xds.Endpoint, Nonce: "1", Version: "v", Malformed: []error{errors.New("cannot be read")}, Changes: &xds.Changes{Upserts: []*xds.Resource{
			xds.NewResource(xds.Endpoint, "a", []byte("bad")), xds.NewResource(xds.Cluster, "b", []byte("1")), nil,
			xds.NewResource(xds.Endpoint, "", []byte("1")), xds.NewResource(xds.Endpoint, "*", []byte("1")), xds.NewResource(xds.Endpoint, "c", []byte("3")),
		}}}
		err := c.Receive(resp)
		want := "a: it is bad\nb: wrong type type.googleapis.com/envoy.config.cluster.v3.Cluster\nresource 2: missing name\nresource 3: missing name\nresource 4: invalid name \"*\"\ncannot be read"
		if err == nil || err.Error() != want {
			t.Errorf("error\n%v\nwant\n%s", err, want)
		}
		c.wantHeld(xds.Endpoint, "c=3")
		c.wantEvents("refused a [a]: it is bad", "refused b [b]: wrong type type.googleapis.com/envoy.config.cluster.v3.Cluster", "updated c [c] 3")
	})

	bothVariants(t, "CLI-2 a check that panics is an error of that resource", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{Check: func(r *xds.Resource) error { panic("at " + r.Name) }}, xds.Endpoint, "a")
		if err := c.respond(xds.Endpoint, "1", "v", "a=1"); err == nil || err.Error() != "a: the check panicked: at a" {
			t.Error(err)
		}
	})

	bothVariants(t, "CLI-2 unchanged content is reported once, and again after a NACK", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Endpoint, "a")
		_ = c.respond(xds.Endpoint, "1", "v", "a=1")
		_ = c.respond(xds.Endpoint, "2", "v", "a=1")
		c.wantEvents("updated a [a] 1")
		_ = c.respond(xds.Endpoint, "3", "w", "a=bad")
		_ = c.respond(xds.Endpoint, "4", "w", "a=bad")
		c.wantEvents("refused a [a] 1: it is bad")
		_ = c.respond(xds.Endpoint, "5", "x", "a=1")
		c.wantEvents("updated a [a] 1")
	})

	bothVariants(t, "CLI-2 a doubted resource stays in use, and is checked again on each stream until it is accepted", func(t *testing.T, v xds.Variant) {
		var bad error
		c := subscribe(t, v, client.Options{Check: func(*xds.Resource) error { return bad }}, xds.Endpoint, "a", "b")
		_ = c.respond(xds.Endpoint, "1", "v", "a=1", "b=1")
		c.wantEvents("updated a [a] 1", "updated b [b] 1")
		c.sendRequests()
		if !c.Doubt(xds.Endpoint, "a", "nobody") || c.Doubt(xds.Endpoint, "nobody") || c.Doubt(xds.Cluster, "a") {
			t.Error("Doubt returns a wrong result")
		}
		c.wantRequests()
		bad = errors.New("it is bad after all")
		for range 2 { // on each stream
			c.Connected(nil)
			if v == xds.Delta {
				c.wantRequests("EDS nonce= sub=[a b] initial=[{a } {b 1}]")
			} else {
				c.wantRequests("EDS nonce= names=[a b]")
			}
			if err := c.respond(xds.Endpoint, "1", "v", "a=1", "b=1"); err == nil || err.Error() != "a: it is bad after all" {
				t.Error(err)
			}
			c.wantHeld(xds.Endpoint, "a=1 b=1")
			c.sendRequests()
		}
		c.wantEvents("refused a [a] 1: it is bad after all")
		bad = nil
		c.Connected(nil)
		c.sendRequests()
		if err := c.respond(xds.Endpoint, "1", "v", "a=1", "b=1"); err != nil {
			t.Error(err)
		}
		c.wantEvents("updated a [a] 1")
		bad = errors.New("nobody asks any more")
		c.Connected(nil)
		c.sendRequests()
		if err := c.respond(xds.Endpoint, "1", "v", "a=1"); err != nil {
			t.Error(err)
		}
	})

	bothVariants(t, "CLI-6 a response of a type without a subscription gets neither ACK nor NACK", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Endpoint, "a")
		for _, typ := range []*xds.Type{xds.Cluster, xds.TypeOf("x.y/Z"), nil} {
			if err := c.Receive(&xds.Response{Type: typ, Nonce: "1", Malformed: []error{errors.New("x")}}); err != nil {
				t.Error(err)
			}
		}
		if c.wantRequests(); len(c.Types()) != 1 {
			t.Error("the client remembers the type")
		}
	})

	t.Run("CLI-2 CLI-14 a repeated or empty nonce gets an answer", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Endpoint, "a")
		_ = c.respond(xds.Endpoint, "1", "", "a=1")
		_ = c.respond(xds.Endpoint, "1", "", "a=2")
		_ = c.respond(xds.Endpoint, "", "", "a=3")
		c.wantRequests("EDS nonce=1", "EDS nonce=1", "EDS nonce=")
		c.wantHeld(xds.Endpoint, "a=3")
	})

	t.Run("CLI-1 with a stream for each type, the first request of each has the node", func(t *testing.T) {
		c := talk{t, client.New(xds.SotW, client.Options{Node: &xds.Node{ID: "n"}})}
		c.Subscribe(xds.Cluster, "a")
		c.Subscribe(xds.Endpoint, "a")
		c.wantRequests()
		c.Connected(xds.Endpoint)
		c.wantRequests("EDS nonce= names=[a] node=n")
		c.Connected(xds.Cluster)
		c.wantRequests("CDS nonce= names=[a] node=n")
		_ = c.respond(xds.Endpoint, "1", "v", "a=1")
		c.Disconnected(xds.Cluster)
		c.wantRequests("EDS nonce=1 version=v names=[a]")
		c.Connected(xds.Cluster)
		c.wantRequests("CDS nonce= names=[a] node=n")
	})
}

func TestClientAbsence(t *testing.T) {
	bothVariants(t, "CLI-3 absent 15 s after the request, once, for each name", func(t *testing.T, v xds.Variant) {
		c := newTalk(t, v, client.Options{})
		c.advance(0)
		c.Subscribe(xds.Endpoint, "a", "b", "*")
		if c.advance(20); !c.Client.Deadline().IsZero() {
			t.Error("a timer runs for a name without a request")
		}
		c.sendRequests()
		c.advance(25)
		_ = c.respond(xds.Endpoint, "1", "v", "b=1")
		c.wantEvents("updated b [* b] 1")
		c.advance(34.9)
		c.wantEvents()
		c.advance(35)
		c.wantEvents("absent a [a]: the server did not send it within 15s")
		c.advance(100)
		c.wantEvents()
		if s := c.State(xds.Endpoint, "a").Status; s != client.DoesNotExist {
			t.Error(s)
		}
	})

	t.Run("CLI-3 the timer ends with the stream, and starts again on the next", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{Timeout: 3 * time.Second}, xds.Endpoint, "a")
		c.advance(2)
		c.Disconnected(nil)
		c.advance(60)
		c.wantEvents()
		c.Connected(nil)
		c.sendRequests()
		c.advance(62)
		c.wantEvents()
		c.advance(63)
		c.wantEvents("absent a [a]: the server did not send it within 3s")
	})

	t.Run("CLI-3 removed_resources, an alias without a body and resource_errors end the timer at once", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Endpoint, "a", "b", "c", "d", "e")
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "1", Changes: &xds.Changes{Removed: []string{"a", "x"}, Absent: []string{"b"}, Missing: []string{"c"}},
			Errors: []xds.ResourceError{{Name: "d", Status: xds.Status{Code: 7, Message: "no"}}, {Name: "x"}}})
		c.wantEvents("absent a [a]", "absent b [b]", "absent c [c]: the server reports that it does not exist", "errored d [d]: the server reports code 7: no")
		_ = c.respond(xds.Endpoint, "2", "", "-a")
		c.advance(100)
		c.wantEvents("absent e [e]: the server did not send it within 15s")
	})

	t.Run("CLI-3 a refused resource ends the timer", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Endpoint, "a")
		_ = c.respond(xds.Endpoint, "1", "v", "a=bad")
		c.advance(100)
		c.wantEvents("refused a [a]: it is bad")
	})

	t.Run("CLI-3 with Transient the timer is 30 s and reports a slow server", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{Transient: true}, xds.Endpoint, "a")
		c.advance(29)
		c.wantEvents()
		c.advance(30)
		c.wantEvents("timed out a [a]: the server did not send it within 30s")
	})

	t.Run("CLI-3 a full state removes only resources that the client got before", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Cluster, "a", "b", "c")
		_ = c.respond(xds.Cluster, "1", "v", "a=1", "c=bad")
		_ = c.respond(xds.Cluster, "2", "w")
		c.wantEvents("updated a [a] 1", "refused c [c]: it is bad", "removed a [a] 1", "absent c [c]")
		c.advance(15)
		c.wantEvents("absent b [b]: the server did not send it within 15s")
	})

	t.Run("CLI-3 an unreadable resource may be the missing one", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Cluster, "a")
		_ = c.respond(xds.Cluster, "1", "v", "a=1")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Version: "w", Malformed: []error{errors.New("cannot be read")}})
		c.wantHeld(xds.Cluster, "a=1")
	})
}

func TestClientTTL(t *testing.T) {
	beat := func(v string) *xds.Response {
		r := xds.NewResource(nil, "a", nil)
		r.TTL = 3 * time.Second
		r.Seal(v)
		return &xds.Response{Type: xds.Cluster, Nonce: "2", Version: "v", Changes: &xds.Changes{Beats: []*xds.Resource{r}}}
	}
	bothVariants(t, "CLI-8 a heartbeat refreshes the TTL, and its end removes the resource", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{Retain: true}, xds.Cluster, "a", "b")
		r := xds.NewResource(nil, "a", []byte("1"))
		r.TTL = 3 * time.Second
		r.Seal("1")
		b := xds.NewResource(nil, "b", []byte("2"))
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Version: "v", Changes: &xds.Changes{Upserts: []*xds.Resource{r, b}}})
		c.advance(2)
		_ = c.Receive(beat("1"))
		c.advance(4.9)
		c.wantHeld(xds.Cluster, "a=1 b=2")
		c.Disconnected(nil) // a TTL continues without a stream
		c.wantEvents("updated a [a] 1", "updated b [b] 2")
		c.advance(5)
		c.wantEvents("removed a [a] 1: its TTL expired")
		c.wantHeld(xds.Cluster, "b=2")
		c.Connected(nil)
		if v == xds.SotW {
			c.wantRequests("CDS nonce= names=[a b]") // the client does not have all resources of the version
		} else {
			c.wantRequests("CDS nonce= sub=[a b] initial=[{b " + b.Version + "}]")
		}
	})

	t.Run("CLI-8 CLI-15 a heartbeat of another version is refused", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "a")
		r := xds.NewResource(nil, "a", []byte("1"))
		r.TTL = 3 * time.Second
		r.Seal("1")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
		c.advance(2)
		if err := c.Receive(beat("0")); err == nil || err.Error() != "a: has no body, and the client holds another version" {
			t.Error(err)
		}
		c.advance(3)
		c.wantEvents("updated a [a] 1", "removed a [a] 1: its TTL expired")
		_ = c.respond(xds.Cluster, "3", "", "a=1") // without a TTL
		if !c.Client.Deadline().IsZero() {
			t.Error("a TTL still runs after the resource came without one")
		}
	})
}

func TestClientIgnoresHeartbeatsOfOthers(t *testing.T) {
	bothVariants(t, "CLI-8 CLI-15 a heartbeat of a resource that is not held has no effect", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Endpoint, "a", "xdstp://x/t/*")
		for _, name := range []string{"a", "xdstp://x/t/a", "b"} {
			r := xds.NewResource(nil, name, nil)
			r.TTL = time.Second
			for _, changes := range []*xds.Changes{{Beats: []*xds.Resource{r}}, {Upserts: []*xds.Resource{r}}} {
				if err := c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "1", Version: "v", Changes: changes}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		c.advance(15)
		c.wantEvents("absent a [a]: the server did not send it within 15s", "absent xdstp://x/t/* [xdstp://x/t/*]: the server did not send it within 15s")
	})
}

func TestClientFinds(t *testing.T) {
	made := func(name, body string, aliases ...string) *xds.Resource {
		r := xds.NewResource(nil, name, []byte(body))
		r.Aliases = aliases
		r.Seal("")
		return r
	}
	send := func(c talk, typ *xds.Type, rs ...*xds.Resource) {
		_ = c.Receive(&xds.Response{Type: typ, Nonce: "1", Changes: &xds.Changes{Upserts: rs}})
	}

	t.Run("CLI-12 a resource matches a subscription by its alias until it loses the alias", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.VirtualHost, "r/host", "*")
		send(c, xds.VirtualHost, made("r/v", "1", "r/host"))
		c.wantEvents("updated r/v [* r/host] 1")
		if r := c.Lookup(xds.VirtualHost, "r/host"); r == nil || r.Name != "r/v" {
			t.Error(r)
		}
		c.advance(100)
		c.wantEvents()
		send(c, xds.VirtualHost, made("r/v", "2"))
		c.wantEvents("updated r/v [*] 2", "removed r/v [r/host] 1")
		if s := c.State(xds.VirtualHost, "r/host").Status; s != client.DoesNotExist {
			t.Error(s)
		}
	})

	t.Run("CLI-12 the removal of an alias removes its resource", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.VirtualHost, "r/host")
		send(c, xds.VirtualHost, made("r/v", "1", "r/host"))
		_ = c.respond(xds.VirtualHost, "2", "", "-r/host")
		c.wantEvents("updated r/v [r/host] 1", "removed r/v [r/host] 1")
	})

	t.Run("CLI-11 a glob collection matches its subscription, in any order of parameters", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.LbEndpoint, "xdstp://a/t/x/*?b=2&a=1")
		send(c, xds.LbEndpoint, made("xdstp://a/t/x/1?b=2&a=1", "1"), made("xdstp://a/t/y/1?a=1&b=2", "2"))
		c.wantEvents("updated xdstp://a/t/x/1?a=1&b=2 [xdstp://a/t/x/*?a=1&b=2] 1")
		c.Unsubscribe(xds.LbEndpoint, "xdstp://a/t/x/*?a=1&b=2")
		c.sendRequests()
		c.wantHeld(xds.LbEndpoint, "")
	})
}

func TestClientDataErrors(t *testing.T) {
	reported := func(c talk, code int32) {
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "2", Version: "w", Errors: []xds.ResourceError{{Name: "a", Status: xds.Status{Code: code, Message: "no"}}}})
	}
	missing := func(c talk) {
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "2", Version: "w", Changes: &xds.Changes{Missing: []string{"a"}}})
	}
	refused := func(c talk) { _ = c.respond(xds.Endpoint, "2", "w", "a=bad") }
	removed := func(c talk) { _ = c.respond(xds.Endpoint, "2", "w", "-a") }
	const gone = ": the server reports that it does not exist"
	for _, x := range []struct {
		name  string
		opts  client.Options
		does  func(talk)
		event string
		holds string
	}{
		{"an error is ambient", client.Options{}, func(c talk) { reported(c, 7) }, "errored a [a] 1: the server reports code 7: no", "a=1"},
		{"not found is ambient", client.Options{}, missing, "errored a [a] 1" + gone, "a=1"},
		{"a removal removes", client.Options{}, removed, "removed a [a] 1", ""},
		{"a removal is kept", client.Options{Retain: true}, removed, "errored a [a] 1" + gone, "a=1"},
		{"permission denied drops", client.Options{DropOnError: true}, func(c talk) { reported(c, 7) }, "errored a [a]: the server reports code 7: no", ""},
		{"others do not drop", client.Options{DropOnError: true}, func(c talk) { reported(c, 14) }, "errored a [a] 1: the server reports code 14: no", "a=1"},
		{"not found drops", client.Options{DropOnError: true}, missing, "removed a [a] 1" + gone, ""},
		{"a refusal drops", client.Options{DropOnError: true}, refused, "refused a [a]: it is bad", ""},
		{"a removal drops all the same", client.Options{DropOnError: true, Retain: true}, removed, "removed a [a] 1", ""},
	} {
		t.Run("CLI-11 "+x.name, func(t *testing.T) {
			c := subscribe(t, xds.Delta, x.opts, xds.Endpoint, "a")
			_ = c.respond(xds.Endpoint, "1", "v", "a=1")
			c.wantEvents("updated a [a] 1")
			x.does(c)
			c.wantEvents(x.event)
			c.wantHeld(xds.Endpoint, x.holds)
			x.does(c)
			c.wantEvents()
			_ = c.respond(xds.Endpoint, "3", "x", "a=1")
			c.wantEvents("updated a [a] 1")
		})
	}
}

func TestClientAdopts(t *testing.T) {
	t.Run("CLI-4 CLI-10 the client uses adopted resources, and states them without a version", func(t *testing.T) {
		c := newTalk(t, xds.Delta, client.Options{})
		c.Subscribe(xds.Endpoint, "a", "b")
		r, own := xds.NewResource(nil, "a", []byte("1")), xds.NewResource(nil, "b", []byte("2"))
		c.Adopt(xds.Endpoint, false, r, xds.NewResource(nil, "nobody", []byte("3")))
		c.Adopt(xds.Endpoint, true, own)
		c.wantHeld(xds.Endpoint, "a=1 b=2")
		c.wantRequests("EDS nonce= sub=[a b] initial=[{a } {b " + own.Version + "}]")
		_ = c.respond(xds.Endpoint, "1", "", "a=1")
		c.wantEvents("updated a [a] 1")
	})
	t.Run("CLI-4 CLI-10 SotW: the client states no version of adopted resources", func(t *testing.T) {
		c := newTalk(t, xds.SotW, client.Options{})
		c.Subscribe(xds.Cluster, "*")
		c.Adopt(xds.Cluster, true, xds.NewResource(nil, "a", []byte("1")))
		c.wantRequests("CDS nonce= names=[*]")
		_ = c.respond(xds.Cluster, "1", "v", "b=1")
		c.wantEvents("updated b [*] 1", "removed a [*] 1")
	})
}

// CLI-6: the client keeps no memory of resources to which it does not subscribe.
func TestClientMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, names := range [][]string{{"a"}, {"a", "*"}} {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Endpoint, names...)
		before := heap()
		func() {
			const many = 20_000
			resp := &xds.Response{Type: xds.Endpoint, Nonce: "1", Changes: &xds.Changes{}}
			for i := range many {
				name := fmt.Sprint(i, strings.Repeat("x", 100))
				resp.Upserts = append(resp.Upserts, &xds.Resource{Stamp: &xds.Stamp{Name: name}, Body: []byte("bad")})
				resp.Removed = append(resp.Removed, "gone"+name)
				resp.Missing = append(resp.Missing, "missing"+name)
				resp.Errors = append(resp.Errors, xds.ResourceError{Name: "error" + name})
			}
			resp.Errors = append(resp.Errors, xds.ResourceError{Name: "a", Status: xds.Status{Message: strings.Repeat("y", 10<<20)}})
			resp.Malformed = append(resp.Malformed, errors.New(strings.Repeat("z", 10<<20)))
			err := c.Receive(resp)
			if n := len(err.Error()); n > 70_000 {
				t.Errorf("%v: a NACK of %d bytes", names, n)
			}
		}()
		for range c.Events() {
		}
		c.sendRequests()
		if grown := int64(heap()) - int64(before); !worlds.RaceEnabled && grown > 1<<20 {
			t.Errorf("%v: %d bytes are left", names, grown)
		}
		runtime.KeepAlive(c.Client)
	}
}

// The cost of a response is linear in its length, whatever it contains. For these responses the
// cost used to be quadratic.
func TestClientCosts(t *testing.T) {
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("alias", i))
		}
		return list
	}
	called := func(name, body string, aliases ...string) *xds.Resource {
		r := xds.NewResource(xds.Cluster, name, []byte(body))
		r.Aliases = aliases
		return r
	}
	linear := func(name string, asked []string, run func(c talk, n int) time.Duration) {
		t.Run(name, func(t *testing.T) {
			of := func(n int) func() time.Duration {
				return func() time.Duration {
					return run(subscribe(t, xds.Delta, client.Options{}, xds.Cluster, asked...), n)
				}
			}
			scaling.AtMost(t, 25, of(2_500), of(20_000))
		})
	}
	hear := func(c talk, all ...*xds.Changes) time.Duration {
		return scaling.CPUTime(func() {
			for _, changes := range all {
				if err := c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: changes}); err != nil {
					c.Error(err)
				}
			}
		})
	}
	linear("CLI-12 a resource of many aliases", []string{"*", "alias7"}, func(c talk, n int) time.Duration {
		before := called("a", "1", append(many(2*n), many(10)...)...)
		after := called("a", "2", append(many(n), many(10)...)...)
		took := hear(c, &xds.Changes{Upserts: []*xds.Resource{before}}, &xds.Changes{Upserts: []*xds.Resource{after}})
		c.wantEvents("updated a [* alias7] 1", "updated a [* alias7] 2")
		return took
	})
	linear("CLI-12 resources that are called like the aliases of another, which loses them", []string{"*"}, func(c talk, n int) time.Duration {
		names := many(n)
		ups := []*xds.Resource{called("a", "1", names...)}
		for _, name := range names {
			ups = append(ups, called(name, "1"))
		}
		less := called("a", "2", names[:n/2]...)
		took := hear(c, &xds.Changes{Upserts: ups}, &xds.Changes{Upserts: []*xds.Resource{less}}, &xds.Changes{Removed: append(names, "a")})
		c.wantHeld(xds.Cluster, "")
		return took
	})
	linear("CLI-12 a name that is removed many times, and finds many", []string{"*", "alias"}, func(c talk, n int) time.Duration {
		var ups []*xds.Resource
		for i := range n {
			ups = append(ups, called(fmt.Sprint("a", i), "1", "alias"))
		}
		took := hear(c, &xds.Changes{Upserts: ups}, &xds.Changes{Removed: slices.Repeat([]string{"alias"}, n)})
		if got := len(slices.Collect(c.Held(xds.Cluster))); got != n { // "*" still finds the resources
			c.Error("number of held resources:", got)
		}
		return took
	})
}

func TestClientRefusals(t *testing.T) {
	bothVariants(t, "CLI-2 CLI-3 a waiting name gets the refusal of an unreadable resource", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Endpoint, "a", "b")
		_ = c.respond(xds.Endpoint, "1", "v", "b=1")
		c.wantEvents("updated b [b] 1")
		bad := func(name string) error {
			return &xds.MalformedError{Name: name, Err: errors.New(name + " cannot be read")}
		}
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "2", Malformed: []error{bad("a"), bad("b"), bad("a"), bad("c"), bad("*"), bad("")}})
		c.wantEvents("refused a [a]: a cannot be read", "refused b [b] 1: b cannot be read")
		c.advance(20)
		c.wantEvents()
		if s := c.State(xds.Endpoint, "a"); s.Status != client.Rejected {
			t.Error(s)
		}
	})

	bothVariants(t, "CLI-2 the wildcard gets the removal of a refused resource", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v", "x=bad", "y=1")
		c.wantEvents("refused x [*]: it is bad", "updated y [*] 1")
		gone := &xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(xds.Cluster, "y", []byte("1"))}}}
		if v == xds.Delta {
			gone.Removed = []string{"x"}
		}
		_ = c.Receive(gone)
		c.wantEvents("absent x [*]")
		if s := c.State(xds.Cluster, "x"); s.Status != client.Requested {
			t.Error(s)
		}
	})

	t.Run("CLI-12 a name gets the removal of a refused resource that its alias matches", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "alias")
		r := xds.NewResource(xds.Cluster, "x", []byte("bad"))
		r.Aliases = []string{"alias"}
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Removed: []string{"x"}}})
		c.wantEvents("refused x [alias]: it is bad", "absent x [alias]")
		if s := c.State(xds.Cluster, "alias"); s.Status != client.DoesNotExist {
			t.Error(s)
		}
	})

	bothVariants(t, "CLI-2 the wildcard gets the removal of a refused resource, also with a subscription by name", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Cluster, "*", "x")
		_ = c.respond(xds.Cluster, "1", "v", "x=bad")
		c.wantEvents("refused x [* x]: it is bad")
		gone := &xds.Response{Type: xds.Cluster, Nonce: "2"}
		if v == xds.Delta {
			gone.Changes = &xds.Changes{Removed: []string{"x"}}
		}
		_ = c.Receive(gone)
		c.wantEvents("absent x [* x]")
	})

	t.Run("CLI-3 the wildcard gets the absence of a refused resource after the end of a subscription by name", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "*", "x")
		c.Unsubscribe(xds.Cluster, "x") // the server does not know the name yet
		_ = c.respond(xds.Cluster, "1", "v", "x=bad")
		c.wantEvents("refused x [*]: it is bad")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Missing: []string{"x"}}})
		c.wantEvents("absent x [*]: the server reports that it does not exist")
	})

	t.Run("CLI-2 CLI-3 the wildcard gets the removal of a refused resource, also with a name that is not sent yet", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v", "x=bad")
		c.Subscribe(xds.Cluster, "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Removed: []string{"x"}}})
		c.wantEvents("refused x [*]: it is bad", "refused x [x]: it is bad", "absent x [* x]")
		c.sendRequests()
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "3", Changes: &xds.Changes{Removed: []string{"x"}}})
		c.advance(20)
		c.wantEvents() // once
	})

	t.Run("CLI-7 CLI-12 a heartbeat and a removal in one response remove the resource", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Endpoint, "x")
		_ = c.respond(xds.Endpoint, "1", "v", "x=1")
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "2", Changes: &xds.Changes{
			Beats: []*xds.Resource{{Stamp: &xds.Stamp{Name: "x", Version: "v"}, TTL: time.Second}}, Removed: []string{"x"},
		}})
		c.wantEvents("updated x [x] 1", "removed x [x] 1")
	})

	bothVariants(t, "CLI-2 CLI-12 the wildcard gets the error and the removal of a refused resource after a subscription by name has ended", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Cluster, "*", "x")
		_ = c.respond(xds.Cluster, "1", "v", "x=bad")
		reports := &xds.Response{Type: xds.Cluster, Nonce: "2", Errors: []xds.ResourceError{{Name: "x", Status: xds.Status{Code: 14, Message: "trouble"}}}}
		_ = c.Receive(reports)
		c.wantEvents("refused x [* x]: it is bad", "errored x [* x]: the server reports code 14: trouble")
		_ = c.Receive(reports)
		c.Unsubscribe(xds.Cluster, "x")
		c.sendRequests()
		c.wantEvents()
		gone := &xds.Response{Type: xds.Cluster, Nonce: "3"}
		if v == xds.Delta {
			gone.Changes = &xds.Changes{Removed: []string{"x"}}
		}
		_ = c.Receive(gone)
		c.wantEvents("absent x [*]")
	})

	t.Run("CLI-12 a removed resource leaves no refusal for its alias", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "s", "x")
		x := xds.NewResource(xds.Cluster, "x", []byte("bad"))
		x.Aliases = []string{"s"}
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{x}}})
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Errors: []xds.ResourceError{{Name: "x", Status: xds.Status{Code: 14, Message: "trouble"}}}})
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "3", Changes: &xds.Changes{Removed: []string{"x"}}})
		c.wantEvents("refused x [x s]: it is bad", "errored x [x s]: the server reports code 14: trouble", "absent x [x s]")
		if s := c.State(xds.Cluster, "s"); s.Status != client.DoesNotExist {
			t.Error(s.Status)
		}
	})

	t.Run("CLI-12 the refusal of one matching resource does not repeat that of another", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "x")
		y := xds.NewResource(xds.Cluster, "y", []byte("1"))
		y.Aliases = []string{"x"}
		for range 2 {
			_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(xds.Cluster, "x", []byte("bad")), y, y}}})
		}
		c.wantEvents("refused x [x]: it is bad", "refused y [x]: duplicate resource")
	})

	t.Run("CLI-12 the loss of an alias is reported for the resource that had it, not for the resource of that name", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "b")
		a, b := xds.NewResource(xds.Cluster, "a", []byte("1")), xds.NewResource(xds.Cluster, "b", []byte("2"))
		a.Aliases = []string{"b"}
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{a, b}}})
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Removed: []string{"a"}}})
		c.wantEvents("updated a [b] 1", "updated b [b] 2", "removed a [b] 1")
		if s := c.State(xds.Cluster, "b"); s.Status != client.Accepted || c.Lookup(xds.Cluster, "b") != b {
			t.Error(s)
		}
	})
}
