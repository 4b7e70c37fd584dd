package e2e

import (
	"testing"
	"time"
)

// Clusters come on a stream of their own, their assignments on the aggregated
// one, which does not know what leaves on the other. What Envoy needs to warm a
// changed cluster is not told again, so it waits for 15 s and takes the
// assignment that it has. No request fails meanwhile.
func TestMixedSources(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-17 a changed cluster waits, traffic does not", func(t *testing.T, v variant) {
		s := newSite(t, renamed)
		own := variant{api: v.api, own: true}
		s.start(v, func(b bootstrap) {
			b["dynamic_resources"].(map[string]any)["cds_config"] = own.source()
		})
		l := loaded(t, s.ingress, nil)
		s.commit("backend's timeout becomes 2 s", func(w world) { w.set(edsCluster("backend", 2*time.Second)) })
		took := eventually(t, 20*time.Second, "the new cluster is in force", s.envoy.inForce("backend", "2s"))
		if took < 10*time.Second {
			t.Errorf("after %v: docs/clients.md need not warn any more", took)
		}
		s.commit("backend's timeout becomes 3 s, and backend moves", func(w world) {
			w.set(edsCluster("backend", 3*time.Second), assignment("backend", s.b.port))
		})
		eventually(t, 20*time.Second, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}
