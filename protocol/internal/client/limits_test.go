package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// Long texts from a server are cut before the client keeps them. The client does not state a partly
// refused version on the next stream.
func TestClientLimits(t *testing.T) {
	bothVariants(t, "CLI-2 the client keeps a limited part of an error of a check", func(t *testing.T, v xds.Variant) {
		long := errors.New(strings.Repeat("x", 1<<20))
		c := subscribe(t, v, client.Options{Check: func(*xds.Resource) error { return long }}, xds.Endpoint, "a")
		_ = c.respond(xds.Endpoint, "1", "v", "a=1")
		if s := c.State(xds.Endpoint, "a"); s.Err == nil || len(s.Err.Error()) > 1<<10+3 {
			t.Error("the whole error is kept")
		}
	})

	bothVariants(t, "CLI-2 the NACK has a limited part of a refused name", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Cluster, "*")
		if err := c.respond(xds.Cluster, "1", "v", strings.Repeat("n", 1<<20)+"=bad"); err == nil || len(err.Error()) >= 64<<10 {
			t.Error("the NACK has the whole name")
		}
	})

	bothVariants(t, "CLI-2 the state has the time of the last change", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Endpoint, "a")
		for i, content := range []string{"a=1", "a=1", "a=2"} {
			c.advance(float64(i + 1))
			_ = c.respond(xds.Endpoint, "1", "v", content)
			want := []int64{1001, 1001, 1003}[i]
			if at := c.State(xds.Endpoint, "a").Updated; !at.Equal(time.Unix(want, 0)) {
				t.Errorf("%s at %v: updated at %v", content, 1001+i, at.Unix())
			}
		}
	})

	t.Run("CLI-3 SotW: an error of a resource does not remove it", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v", "a=1")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Version: "w", Errors: []xds.ResourceError{{Name: "a", Status: xds.Status{Code: 13, Message: "no"}}},
			Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(xds.Cluster, "b", []byte("2"))}}})
		c.wantEvents("updated a [*] 1", "updated b [*] 2", "errored a [*] 1: the server reports code 13: no")
		c.wantHeld(xds.Cluster, "a=1 b=2")
	})

	// again starts a new stream.
	again := func(c talk) {
		c.Disconnected(nil)
		c.Connected(nil)
	}
	t.Run("CLI-4 SotW: after a NACK a heartbeat of the version does not complete the version", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Endpoint, "a", "b")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1", "b=1")
		_ = c.respond(xds.Endpoint, "2", "v2", "a=2", "b=bad")
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "3", Version: "v2", Changes: &xds.Changes{Beats: []*xds.Resource{{Stamp: &xds.Stamp{Name: "a"}, TTL: time.Minute}}}})
		c.sendRequests()
		again(c)
		c.wantRequests("EDS nonce= names=[a b]")
	})
	t.Run("CLI-4 SotW: after an unsubscription an empty response does not complete the version", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{DropOnError: true}, xds.Endpoint, "*")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1", "b=1")
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "2", Version: "v1", Changes: &xds.Changes{Missing: []string{"b"}}})
		_ = c.respond(xds.Endpoint, "3", "v1")
		c.sendRequests()
		again(c)
		c.wantRequests("EDS nonce= names=[*]")
	})
	t.Run("CLI-4 SotW: with DropOnError the client states a version without data errors", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{DropOnError: true}, xds.Endpoint, "a")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1")
		c.sendRequests()
		again(c)
		c.wantRequests("EDS nonce= version=v1 names=[a]")
	})
	t.Run("CLI-4 SotW: after a new subscription without a response the client states no version", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Endpoint, "a")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1")
		c.sendRequests()
		c.Subscribe(xds.Endpoint, "b")
		c.sendRequests()
		again(c)
		c.wantRequests("EDS nonce= names=[a b]")
	})
	t.Run("CLI-4 SotW: after an unsubscription between streams the client states no version", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Endpoint, "a", "b")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1", "b=1")
		c.sendRequests()
		again(c)
		c.wantRequests("EDS nonce= version=v1 names=[a b]")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1", "b=1")
		c.sendRequests()
		c.Disconnected(nil)
		c.Unsubscribe(xds.Endpoint, "b")
		c.Connected(nil)
		c.wantRequests("EDS nonce= names=[a]")
	})
	t.Run("CLI-4 SotW: after a refused part that was not sent again the client states no version", func(t *testing.T) {
		for _, v := range []string{"v2", "v3"} {
			c := subscribe(t, xds.SotW, client.Options{}, xds.Endpoint, "a", "b")
			_ = c.respond(xds.Endpoint, "1", "v1", "a=1", "b=1")
			_ = c.respond(xds.Endpoint, "2", "v2", "a=bad", "b=2")
			_ = c.respond(xds.Endpoint, "3", v, "b=2") // "if only one of them has changed, it may send a response containing only the changed resource"
			c.sendRequests()
			again(c)
			c.wantRequests("EDS nonce= names=[a b]")
		}
	})
	t.Run("CLI-4 SotW: after an adoption between streams the client states no version", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{}, xds.Endpoint, "a", "b")
		_ = c.respond(xds.Endpoint, "1", "v1", "a=1")
		c.sendRequests()
		c.Disconnected(nil)
		c.Adopt(xds.Endpoint, true, xds.NewResource(xds.Endpoint, "b", []byte("2")))
		c.Connected(nil)
		c.wantRequests("EDS nonce= names=[a b]")
	})
}
