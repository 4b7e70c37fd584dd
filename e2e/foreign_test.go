package e2e

import (
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Envoy's wildcards also find resources for gRPC clients.
func TestForeign(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-4 SOTW-8 what Envoy does with what is not for it", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("an API listener", func(w world) { w.set(apiListener("api", "ingress")) })
		s.sees(p, soon, "an ACK", func(rs tap.Records) bool { return len(rs.ACKs("LDS")) == 1 })
		if err := s.envoy.hasListeners("ingress", "side")(); err != nil {
			t.Error("Envoy passes over it:", err)
		}
		p = s.commit("a cluster whose assignment comes from self", func(w world) {
			c := edsCluster("self", time.Second)
			c.EdsClusterConfig.EdsConfig.ConfigSourceSpecifier = &core.ConfigSource_Self{Self: &core.SelfConfigSource{}}
			w.set(c)
		})
		s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("CDS")) == 1 })
		s.commit("from ads", func(w world) { w.set(edsCluster("self", time.Second), assignment("self", s.b.port)) })
		eventually(t, soon, "the change is active", s.envoy.hasClusters("backend", "other", "self"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 1, "NACK", s.Since(0).NACKs())
	})
}
