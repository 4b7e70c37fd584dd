package e2e

import (
	"testing"
	"time"
)

// The ways in which configuration reaches a directory. All other tests rename
// one file.
func TestMountedDirectory(t *testing.T) {
	t.Parallel()
	t.Run("ADS-3 a swapped link is one commit", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, mounted)
		s.start(delta)
		l := loaded(t, s.ingress, nil)
		for range 5 {
			s.commit("routes lead to other, backend deleted", func(w world) {
				w.drop(edsCluster("backend", 0), assignment("backend"))
				w.set(routes("ingress", "2", "other"))
			})
			eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "2"}))
			eventually(t, soon, "the cluster goes", s.envoy.hasClusters("other"))
			s.commit("and back", func(w world) {
				w.set(edsCluster("backend", time.Second), assignment("backend", s.a.port), routes("ingress", "1", "backend"))
			})
			eventually(t, soon, "traffic moves", s.ingress.gets(answer{"a", "1"}))
		}
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}
