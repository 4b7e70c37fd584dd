package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// A response with more resources than the client may hold changes nothing but what it removes.
func TestBudget(t *testing.T) {
	const two = 2*(3<<10) + 100 // bytes for two resources
	budget := func(bytes int) *client.Budget {
		return &client.Budget{Limit: xds.MemoryLimit{Bytes: bytes, Hint: "--more"}}
	}
	bothVariants(t, "SAFE-14 a response above the limit is refused as a whole", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{Budget: budget(two)}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1", "b=1")
		err := c.respond(xds.Cluster, "2", "v2", "a=2", "b=1", "c=1")
		over, is := errors.AsType[*xds.LimitError](err)
		if !is || over.Limit != xds.LimitHeld || !strings.Contains(err.Error(), "--more") {
			t.Errorf("%v", err)
		}
		c.wantHeld(xds.Cluster, "a=1 b=1")
		if s := c.State(xds.Cluster, "b"); s.Status != client.Accepted {
			t.Errorf("an equal resource is %v", s.Status)
		}
		if s := c.State(xds.Cluster, "c"); s.Status != client.Rejected {
			t.Errorf("a new resource is %v", s.Status)
		}
		if err := c.respond(xds.Cluster, "3", "v3", "a=3", "b=1"); err != nil {
			t.Error(err)
		}
		c.wantHeld(xds.Cluster, "a=3 b=1")
	})
	t.Run("SAFE-14 SotW: removed resources make room", func(t *testing.T) {
		c := subscribe(t, xds.SotW, client.Options{Budget: budget(two)}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1", "b=1")
		if err := c.respond(xds.Cluster, "2", "v2", "c=1", "d=1"); err != nil {
			t.Error(err)
		}
		c.wantHeld(xds.Cluster, "c=1 d=1")
	})
	t.Run("SAFE-14 delta: removed resources make room, also in a refused response", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{Budget: budget(two)}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1", "b=1")
		if err := c.respond(xds.Cluster, "2", "", "-a", "c=1"); err != nil {
			t.Error(err)
		}
		c.wantHeld(xds.Cluster, "b=1 c=1")
		if err := c.respond(xds.Cluster, "3", "", "-b", "d=1", "e=1"); err == nil {
			t.Error("three resources are accepted")
		}
		c.wantHeld(xds.Cluster, "c=1")
	})
	bothVariants(t, "SAFE-14 a removed resource that the client keeps makes no room", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{Budget: budget(two), Retain: true}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1", "b=1")
		changes := []string{"c=1"} // in SotW it removes the others
		if v == xds.Delta {
			changes = append(changes, "-a", "-b")
		}
		if err := c.respond(xds.Cluster, "2", "v2", changes...); err == nil {
			t.Error("three resources are accepted")
		}
		c.wantHeld(xds.Cluster, "a=1 b=1")
	})
	bothVariants(t, "SAFE-14 held resources above the limit, as from disk, may change but not grow", func(t *testing.T, v xds.Variant) {
		b := budget(0)
		c := subscribe(t, v, client.Options{Budget: b}, xds.Cluster, "*")
		_ = c.respond(xds.Cluster, "1", "v1", "a=1", "b=1")
		b.Limit.Bytes = 1
		if err := c.respond(xds.Cluster, "2", "v2", "a=2", "b=1"); err != nil {
			t.Error(err)
		}
		if err := c.respond(xds.Cluster, "3", "v3", "a=2", "b=1", "c=1"); err == nil {
			t.Error("a third resource is accepted")
		}
		c.wantHeld(xds.Cluster, "a=2 b=1")
	})
	bothVariants(t, "SAFE-14 resources without a subscription do not count", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{Budget: budget(two)}, xds.Endpoint, "a")
		if err := c.respond(xds.Endpoint, "1", "v", "a=1", "b=1", "c=1"); err != nil {
			t.Error(err)
		}
		c.wantHeld(xds.Endpoint, "a=1")
	})
	t.Run("SAFE-14 an alias counts", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{Budget: budget(two)}, xds.Cluster, "*")
		r := xds.NewResource(xds.Cluster, "a", []byte("1"))
		r.Aliases = strings.Fields("b c d e")
		if err := c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}}); err == nil {
			t.Error("a resource with four aliases is accepted")
		}
	})
	t.Run("SAFE-14 clients share a budget until they release it", func(t *testing.T) {
		shared := budget(two)
		a := subscribe(t, xds.SotW, client.Options{Budget: shared}, xds.Cluster, "*")
		b := subscribe(t, xds.SotW, client.Options{Budget: shared}, xds.Cluster, "*")
		if err := a.respond(xds.Cluster, "1", "v", "a=1"); err != nil {
			t.Error(err)
		}
		if err := b.respond(xds.Cluster, "1", "v", "a=1", "b=1"); err == nil {
			t.Error("three resources are accepted")
		}
		a.Release()
		if err := b.respond(xds.Cluster, "2", "v", "a=1", "b=1"); err != nil {
			t.Error(err)
		}
		a.Unsubscribe(xds.Cluster, "*")
	})
}
