package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// A talk is a conversation with a client; the test is the server.
type talk struct {
	*testing.T
	*client.Client
}

func newTalk(t *testing.T, v xds.Variant, opts client.Options) talk {
	if opts.Check == nil {
		opts.Check = func(r *xds.Resource) error {
			if string(r.Body) == "bad" {
				return errors.New("it is bad")
			}
			return nil
		}
	}
	c := talk{t, client.New(v, opts)}
	c.Connected(nil)
	return c
}

// wantRequests compares the requests that are due.
func (c talk) wantRequests(want ...string) {
	c.Helper()
	var got []string
	for r := range c.Requests() {
		s := fmt.Sprintf("%s nonce=%s", r.Type, r.Nonce)
		add := func(key string, value any) { s += fmt.Sprintf(" %s=%v", key, value) }
		if r.Version != "" {
			add("version", r.Version)
		}
		if r.Names != nil {
			add("names", r.Names)
		}
		if r.Subscribe != nil {
			add("sub", r.Subscribe)
		}
		if r.Unsubscribe != nil {
			add("unsub", r.Unsubscribe)
		}
		if r.Initial != nil {
			add("initial", r.Initial)
		}
		if r.Error != nil {
			add("error", r.Error.Message)
		}
		if r.Node != nil {
			add("node", r.Node.ID)
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		c.Fatalf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// respond lets the server answer: "a=1" is a resource, "-a" a removal.
func (c talk) respond(t *xds.Type, nonce, version string, content ...string) error {
	resp := &xds.Response{Type: t, Nonce: nonce, Version: version, Changes: &xds.Changes{}}
	for _, s := range content {
		if name, ok := strings.CutPrefix(s, "-"); ok {
			resp.Removed = append(resp.Removed, name)
			continue
		}
		name, body, _ := strings.Cut(s, "=")
		r := xds.NewResource(nil, name, []byte(body))
		r.Seal(body)
		resp.Upserts = append(resp.Upserts, r)
	}
	return c.Receive(resp)
}

// wantHeld compares the resources held.
func (c talk) wantHeld(t *xds.Type, want string) {
	c.Helper()
	var got []string
	for r := range c.Held(t) {
		got = append(got, r.Name+"="+string(r.Body))
	}
	slices.Sort(got)
	if s := strings.Join(got, " "); s != want {
		c.Fatalf("holds %q, want %q", s, want)
	}
}

func TestClient(t *testing.T) {
	t.Run("CLI-14 delta: a nonce only on ACK and NACK", func(t *testing.T) {
		c := newTalk(t, xds.Delta, client.Options{})
		c.Subscribe(xds.Endpoint, "a")
		c.wantRequests("EDS nonce= sub=[a]")
		_ = c.respond(xds.Endpoint, "1", "", "a=1")
		c.wantRequests("EDS nonce=1")
		c.Subscribe(xds.Endpoint, "b")
		c.wantRequests("EDS nonce= sub=[b]")
		_ = c.respond(xds.Endpoint, "2", "", "b=bad")
		c.Unsubscribe(xds.Endpoint, "a")
		c.wantRequests("EDS nonce=2 unsub=[a] error=b: it is bad")
		c.Unsubscribe(xds.Endpoint, "b")
		c.wantRequests("EDS nonce= unsub=[b]")
		c.wantRequests()
	})

	t.Run("CLI-14 SotW: always the newest nonce of the type", func(t *testing.T) {
		c := newTalk(t, xds.SotW, client.Options{})
		c.Subscribe(xds.Endpoint, "a")
		c.Subscribe(xds.Route, "r")
		c.wantRequests("EDS nonce= names=[a]", "RDS nonce= names=[r]")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1")
		_ = c.respond(xds.Route, "2", "w1", "r=1")
		c.wantRequests("EDS nonce=1 version=v1 names=[a]", "RDS nonce=2 version=w1 names=[r]")
		c.Subscribe(xds.Endpoint, "b")
		c.wantRequests("EDS nonce=1 version=v1 names=[a b]")
		// Responses v1 and v2 arrive together: each gets its own ACK, in order.
		_ = c.respond(xds.Endpoint, "3", "v2", "a=2")
		_ = c.respond(xds.Endpoint, "4", "v3", "b=1")
		c.wantRequests("EDS nonce=3 version=v2 names=[a b]", "EDS nonce=4 version=v3 names=[a b]")
	})

	t.Run("CLI-2 SotW: a NACK has the version in use, and the client uses the good resources", func(t *testing.T) {
		c := newTalk(t, xds.SotW, client.Options{})
		c.Subscribe(xds.Cluster, xds.Wildcard)
		c.wantRequests("CDS nonce= names=[*]")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1", "b=1")
		c.wantRequests("CDS nonce=1 version=v1 names=[*]")
		if err := c.respond(xds.Cluster, "2", "v2", "a=bad", "c=bad", "d=2"); err == nil {
			t.Fatal("accepted")
		}
		c.wantRequests("CDS nonce=2 version=v1 names=[*] error=a: it is bad\nc: it is bad")
		c.wantHeld(xds.Cluster, "a=1 d=2")
	})

	t.Run("CLI-5 duplicate names", func(t *testing.T) {
		c := newTalk(t, xds.Delta, client.Options{})
		c.Subscribe(xds.Endpoint, "a", "b")
		c.wantRequests("EDS nonce= sub=[a b]")
		_ = c.respond(xds.Endpoint, "1", "", "a=1", "a=2", "b=1")
		c.wantRequests(`EDS nonce=1 error=a: duplicate resource`)
		_ = c.respond(xds.Endpoint, "2", "", "a=1", "-a")
		c.wantRequests(`EDS nonce=2 error=a: both present and removed`)
		c.wantHeld(xds.Endpoint, "b=1")
	})

	t.Run("CLI-6 the client ignores unrequested resources, and sends an ACK", func(t *testing.T) {
		c := newTalk(t, xds.SotW, client.Options{})
		c.Subscribe(xds.Endpoint, "a")
		c.wantRequests("EDS nonce= names=[a]")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1", "x=bad")
		_ = c.respond(xds.Cluster, "2", "v1", "c=1") // no request opened the type
		c.wantRequests("EDS nonce=1 version=v1 names=[a]")
		c.wantHeld(xds.Endpoint, "a=1")
		c.wantHeld(xds.Cluster, "")
	})

	t.Run("CLI-7 a missing resource is deleted only in a full-state type", func(t *testing.T) {
		c := newTalk(t, xds.SotW, client.Options{})
		c.Subscribe(xds.Cluster, "a", "b")
		c.Subscribe(xds.Endpoint, "a", "b")
		c.wantRequests("CDS nonce= names=[a b]", "EDS nonce= names=[a b]")
		for i, typ := range []*xds.Type{xds.Cluster, xds.Endpoint} {
			_ = c.respond(typ, fmt.Sprint(2*i), "v1", "a=1", "b=1")
			_ = c.respond(typ, fmt.Sprint(2*i+1), "v2", "b=2")
		}
		c.wantHeld(xds.Cluster, "b=2")
		c.wantHeld(xds.Endpoint, "a=1 b=2")
	})

	t.Run("CLI-7 an unsubscribed resource is held until the request is sent", func(t *testing.T) {
		c := newTalk(t, xds.Delta, client.Options{})
		c.Subscribe(xds.Endpoint, "a")
		c.wantRequests("EDS nonce= sub=[a]")
		_ = c.respond(xds.Endpoint, "1", "", "a=1")
		c.Unsubscribe(xds.Endpoint, "a")
		c.wantHeld(xds.Endpoint, "a=1")
		c.wantRequests("EDS nonce=1 unsub=[a]")
		c.wantHeld(xds.Endpoint, "")
		c.Subscribe(xds.Endpoint, "a")
		c.Unsubscribe(xds.Endpoint, "a")
		c.wantRequests() // no request is due
	})

	t.Run("SotW: resume by version_info, without nonce, node first", func(t *testing.T) {
		c := newTalk(t, xds.SotW, client.Options{Node: &xds.Node{ID: "n"}, Legacy: true})
		c.Subscribe(xds.Cluster, xds.Wildcard)
		c.Subscribe(xds.Endpoint, "a")
		c.wantRequests("CDS nonce= node=n", "EDS nonce= names=[a]")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1")
		_ = c.respond(xds.Endpoint, "2", "w1", "a=1")
		c.Connected(nil)
		c.wantRequests("CDS nonce= version=v1 node=n", "EDS nonce= version=w1 names=[a]")
	})

	t.Run("SOTW-12 the client states no version that it holds only in part", func(t *testing.T) {
		// The server sends nothing to a client that states the current version. After a new
		// subscription or a refused part, such a client would miss resources for ever.
		c := newTalk(t, xds.SotW, client.Options{})
		c.Subscribe(xds.Cluster, "a")
		c.wantRequests("CDS nonce= names=[a]")
		c.Subscribe(xds.Cluster, xds.Wildcard)
		c.wantRequests("CDS nonce= names=[* a]")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1") // it may answer either request
		c.wantRequests("CDS nonce=1 version=v1 names=[* a]")
		c.Connected(nil)
		c.wantRequests("CDS nonce= names=[* a]")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1", "b=1")
		c.wantRequests("CDS nonce=1 version=v1 names=[* a]")
		_ = c.respond(xds.Cluster, "2", "v2", "a=bad", "b=2")
		c.wantRequests("CDS nonce=2 version=v1 names=[* a] error=a: it is bad")
		c.Connected(nil)
		c.wantRequests("CDS nonce= names=[* a]")
	})

	t.Run("delta: resume by initial_resource_versions", func(t *testing.T) {
		c := newTalk(t, xds.Delta, client.Options{Legacy: true})
		c.Subscribe(xds.Cluster, xds.Wildcard)
		c.Subscribe(xds.Endpoint, "a", "b")
		c.wantRequests("CDS nonce=", "EDS nonce= sub=[a b]")
		_ = c.respond(xds.Cluster, "1", "", "x=1", "y=2")
		_ = c.respond(xds.Endpoint, "2", "", "a=3", "-b")
		c.Connected(nil)
		c.wantRequests("CDS nonce= initial=[{x 1} {y 2}]", "EDS nonce= sub=[a b] initial=[{a 3}]")
		c.wantRequests()
	})

	t.Run("SUB-3 an empty list never opens a type, and leaves the legacy wildcard in two steps", func(t *testing.T) {
		c := newTalk(t, xds.SotW, client.Options{Legacy: true})
		c.Subscribe(xds.Cluster, "a")
		c.Unsubscribe(xds.Cluster, "a")
		c.wantRequests()
		c.Subscribe(xds.Cluster, xds.Wildcard)
		c.Subscribe(xds.Endpoint, xds.Wildcard) // an empty first list would subscribe to nothing
		c.wantRequests("CDS nonce=", "EDS nonce= names=[*]")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1")
		c.Unsubscribe(xds.Cluster, xds.Wildcard)
		c.wantRequests("CDS nonce=1 version=v1 names=[*]", "CDS nonce=1 version=v1")
		c.wantHeld(xds.Cluster, "")
	})

	t.Run("CLI-12 an alias matches like the name", func(t *testing.T) {
		c := newTalk(t, xds.Delta, client.Options{})
		c.Subscribe(xds.VirtualHost, "r/host")
		c.wantRequests("VHDS nonce= sub=[r/host]")
		r := &xds.Resource{Stamp: &xds.Stamp{Name: "r/vhost"}, Body: []byte("1"), Aliases: []string{"r/host"}}
		r.Seal("1")
		_ = c.Receive(&xds.Response{Type: xds.VirtualHost, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
		c.wantRequests("VHDS nonce=1")
		c.wantHeld(xds.VirtualHost, "r/vhost=1")
		c.Unsubscribe(xds.VirtualHost, "r/host")
		c.wantRequests("VHDS nonce= unsub=[r/host]")
		c.wantHeld(xds.VirtualHost, "")
	})
}

// DELTA-11: aliases match in delta only. A SotW client that unsubscribes from a wildcard does not
// keep resources because of an alias.
func TestClientAliases(t *testing.T) {
	for v, want := range map[xds.Variant]int{xds.SotW: 0, xds.Delta: 1} {
		c := client.New(v, client.Options{})
		c.Connected(nil)
		c.Subscribe(xds.Secret, xds.Wildcard)
		for range c.Requests() {
		}
		_ = c.Receive(&xds.Response{Type: xds.Secret, Nonce: "1", Version: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{{Stamp: &xds.Stamp{Name: "s", Version: "1"}, Aliases: []string{"n"}, Body: []byte("x")}}}})
		c.Unsubscribe(xds.Secret, xds.Wildcard)
		c.Subscribe(xds.Secret, "n")
		for range c.Requests() {
		}
		n := 0
		for range c.Held(xds.Secret) {
			n++
		}
		if n != want {
			t.Errorf("%s: it holds %d, not %d", v, n, want)
		}
	}
}
