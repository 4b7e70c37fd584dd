package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// The order of context parameters in a name from the server does not matter (NAME-2).
func TestClientComparesCanonicalNames(t *testing.T) {
	const asked, said = "xdstp://x/t/a?k=1&l=2", "xdstp://x/t/a?l=2&k=1"
	for name, tt := range map[string]struct {
		resp  xds.Response
		event string
	}{
		"NAME-2 removed":        {xds.Response{Changes: &xds.Changes{Removed: []string{said}}}, "removed " + asked + " [" + asked + "] 1"},
		"NAME-2 absent":         {xds.Response{Changes: &xds.Changes{Absent: []string{said}}}, "removed " + asked + " [" + asked + "] 1"},
		"NAME-2 missing":        {xds.Response{Changes: &xds.Changes{Missing: []string{said}}}, "errored " + asked + " [" + asked + "] 1: the server reports that it does not exist"},
		"NAME-2 an error":       {xds.Response{Errors: []xds.ResourceError{{Name: said, Status: xds.Status{Code: 7, Message: "no"}}}}, "errored " + asked + " [" + asked + "] 1: the server reports code 7: no"},
		"NAME-2 changed":        {xds.Response{Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(nil, said, []byte("2"))}}}, "updated " + asked + " [" + asked + "] 2"},
		"NAME-2 both, a clash":  {xds.Response{Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(nil, asked, []byte("2"))}, Removed: []string{said}}}, "refused " + asked + " [" + asked + "] 1: both present and removed"},
		"NAME-2 twice, refused": {xds.Response{Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(nil, asked, []byte("2")), xds.NewResource(nil, said, []byte("2"))}}}, "refused " + asked + " [" + asked + "] 1: duplicate resource"},
	} {
		t.Run(name, func(t *testing.T) {
			c := subscribe(t, xds.Delta, client.Options{}, xds.Endpoint, asked)
			_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(nil, asked, []byte("1"))}}})
			c.wantEvents("updated " + asked + " [" + asked + "] 1")
			tt.resp.Type, tt.resp.Nonce = xds.Endpoint, "2"
			_ = c.Receive(&tt.resp)
			c.wantEvents(tt.event)
		})
	}
}

func TestClientDropsOnPermissionDenied(t *testing.T) {
	t.Run("CLI-11 each name that matches the resource gets the error", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{DropOnError: true}, xds.Cluster, "*", "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("y", "1", "x")}}})
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Errors: []xds.ResourceError{{Name: "y", Status: xds.Status{Code: 7, Message: "no"}}}})
		c.wantEvents("updated y [* x] 1", "errored y [* x]: the server reports code 7: no")
		c.wantHeld(xds.Cluster, "")
	})
}

func TestClientAdoptsOnlyBodies(t *testing.T) {
	bothVariants(t, "CLI-4 a resource without a body is not held", func(t *testing.T, v xds.Variant) {
		c := newTalk(t, v, client.Options{})
		c.Subscribe(xds.Endpoint, "a")
		c.Adopt(xds.Endpoint, true, &xds.Resource{Stamp: &xds.Stamp{Name: "a"}}, nil, &xds.Resource{Body: []byte("1")})
		c.wantHeld(xds.Endpoint, "")
	})
	bothVariants(t, "CLI-4 a resource without a name of its own is not held", func(t *testing.T, v xds.Variant) {
		c := newTalk(t, v, client.Options{})
		c.Subscribe(xds.Cluster, "*")
		c.Adopt(xds.Cluster, true, xds.NewResource(xds.Cluster, "", []byte("1")), xds.NewResource(xds.Cluster, "*", []byte("1")))
		c.wantHeld(xds.Cluster, "")
	})
}

func TestClientLosesResourceWithItsAlias(t *testing.T) {
	t.Run("CLI-12 the new state lacks the only matching alias", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("y", "1", "x")}}})
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("y", "2")}}})
		c.wantHeld(xds.Cluster, "")
		c.wantEvents("updated y [x] 1", "removed y [x] 1")
	})
	t.Run("CLI-12 a duplicate alias counts once", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "x")
		for i, body := range []string{"1", "bad"} {
			_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: string(rune('1' + i)), Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("y", body, "x", "x")}}})
		}
		c.wantEvents("updated y [x] 1", "refused y [x] 1: it is bad")
	})
}

func TestClientHeartbeatWithoutTTL(t *testing.T) {
	bothVariants(t, "CLI-8 the TTL of the resource continues", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Endpoint, "a")
		r := xds.NewResource(nil, "a", []byte("1"))
		r.TTL = 10 * time.Second
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "1", Version: "v", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "2", Version: "v", Changes: &xds.Changes{Beats: []*xds.Resource{{Stamp: r.Stamp}}}})
		c.advance(10)
		c.wantHeld(xds.Endpoint, "")
	})
}

func TestClientStatesVersionThatWasRepeated(t *testing.T) {
	t.Run("CLI-4 a full state repeats the accepted version after a NACK", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v", "a=1")
		_ = c.respond(xds.Cluster, "2", "w", "a=bad")
		_ = c.respond(xds.Cluster, "3", "v", "a=1")
		c.sendRequests()
		c.Connected(nil)
		c.wantRequests("CDS nonce= version=v names=[*]")
	})
	t.Run("CLI-4 another type may have sent only a part", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Endpoint, "a", "b")
		_ = c.respond(xds.Endpoint, "1", "v", "a=1", "b=1")
		_ = c.respond(xds.Endpoint, "2", "w", "a=bad")
		_ = c.respond(xds.Endpoint, "3", "v", "a=1")
		c.sendRequests()
		c.Connected(nil)
		c.wantRequests("EDS nonce= names=[a b]")
	})
}

func TestClientStateOfResource(t *testing.T) {
	bothVariants(t, "its version, and no time if the owner gives none", func(t *testing.T, v xds.Variant) {
		c := newTalk(t, v, client.Options{})
		c.Subscribe(xds.Endpoint, "a")
		c.sendRequests()
		_ = c.respond(xds.Endpoint, "1", "v", "a=1")
		want := map[xds.Variant]string{xds.SotW: "v", xds.Delta: "1"}[v]
		s := c.State(xds.Endpoint, "a")
		if s.Version != want || !s.Updated.IsZero() || s.Status.String() != "acked" {
			t.Errorf("%+v, want version %q", s, want)
		}
	})
}

func TestClientCutsInvalidText(t *testing.T) {
	t.Run("CLI-2 a long text without a start of a character", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{Check: func(*xds.Resource) error { return errors.New(strings.Repeat("\x80", 5000)) }}, xds.Endpoint, "a")
		if err := c.respond(xds.Endpoint, "1", "v", "a=1"); err == nil || err.Error() != "a: …" {
			t.Errorf("%q", err)
		}
	})
}
