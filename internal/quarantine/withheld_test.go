package quarantine

import (
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A client that refused a resource and never accepted it is not sent its removal (HEAL-1).
func TestRefusedNewResourceIsNotRemoved(t *testing.T) {
	agent := func(name string) xdstest.Option {
		return xdstest.WithNode(xds.Node{ID: node0.ID, UserAgentName: name})
	}
	for name, dial := range map[string]func(r *fixture) *xdstest.Client{
		"delta":     func(r *fixture) *xdstest.Client { return xdstest.Delta(r, xdstest.Serve(r, r.server), agent("envoy")) },
		"SotW":      func(r *fixture) *xdstest.Client { return xdstest.SotW(r, xdstest.Serve(r, r.server), agent("envoy")) },
		"SotW gRPC": func(r *fixture) *xdstest.Client { return xdstest.SotW(r, xdstest.Serve(r, r.server), agent("gRPC Go")) },
	} {
		t.Run("HEAL-1 "+name+" the only resource", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.set("new", "bad")
				r.guilty = []string{"new"}
				c.Subscribe(xds.Cluster, "*")
				c.NACK(c.Expect(xds.Cluster, "new"), "no")
				c.ExpectNothing()
				r.holds(1)
				r.set("new", "good")
				c.ACK(c.Expect(xds.Cluster, "new"))
				r.holds(0)
			})
		})
		t.Run("HEAL-1 "+name+" without a text", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.set("new", "bad")
				c.NACK(c.Next(xds.Cluster), "no")
				c.ExpectNothing()
				r.holds(1)
				time.Sleep(time.Hour)
				c.ExpectNothing()

				r.set("a", "2")
				got := c.Next(xds.Cluster)
				if is := got.Resource("new"); (is != nil) != (name == "SotW gRPC") || !says(got, "a", "2") || slices.Contains(got.Removed, "new") {
					t.Errorf("sent %v", got)
				}
				if name == "SotW gRPC" {
					c.NACK(got, "no")
				} else {
					c.ACK(got)
				}
				c.ExpectNothing()
				r.holds(1)
			})
		})
		t.Run("HEAL-1 "+name+" and then removed", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.set("new", "bad")
				r.guilty = []string{"new"}
				c.Subscribe(xds.Cluster, "*")
				c.NACK(c.Expect(xds.Cluster, "new"), "no")
				c.ExpectNothing()
				r.set("new", "")
				got := c.Next(xds.Cluster) // the client may have applied the resource
				if len(got.Resources) > 0 || slices.Contains(got.Removed, "new") != (name == "delta") {
					t.Errorf("sent %v", got)
				}
				r.holds(0)
			})
		})
	}
}
