package e2e

import (
	"fmt"
	"testing"
	"time"
)

// Without ADS, Envoy opens a stream for each subscription, and a new one for
// the assignment of each cluster that changes.
func TestOwnStreams(t *testing.T) {
	t.Parallel()
	among(t, "TYP-2 SOTW-15 SAFE-7 each subscription on a stream of its own", func(t *testing.T, v variant) {
		s := startSite(t, v)
		exactly(t, 6, "stream: CDS, LDS, two of EDS, two of RDS", s.Since(0).Opened())
		l := loaded(t, s.ingress, nil)

		p := s.commit("backend moves", func(w world) { w.set(assignment("backend", s.b.port)) })
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		s.quiet()
		carries(t, "EDS backend", s.Since(p).Responses())

		p = s.commit("ingress leads to other", func(w world) { w.set(routes("ingress", "2", "other")) })
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "2"}))
		s.quiet()
		carries(t, "RDS ingress", s.Since(p).Responses())

		p = s.commit("backend changes in place", func(w world) { w.set(edsCluster("backend", 2*time.Second)) })
		eventually(t, soon, "the new cluster is in force", s.envoy.inForce("backend", "2s"))
		s.quiet()
		exactly(t, 1, "stream", s.Since(p).Opened())

		for i := range 5 {
			from, gen := s.b, fmt.Sprint(3+i)
			s.commit("the listener moves its routes", func(w world) {
				w.set(httpListener("ingress", s.ingressPort, "ingress-"+gen), routes("ingress-"+gen, gen, "other"))
			})
			eventually(t, soon, "traffic follows", anew(s.ingressPort).gets(answer{from.name, gen}))
		}
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	}, ownSotw, ownDelta)

	among(t, "SOTW-12 DELTA-9 killed and restarted", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		s.kill()
		p := s.restart()
		s.back(p)
		s.commit("routes lead to other", func(w world) { w.set(routes("ingress", "2", "other")) })
		eventually(t, 30*time.Second, "traffic moves when its stream is back", s.ingress.gets(answer{"b", "2"}))
		exactly(t, 0, "CDS or LDS response", s.Since(p).Responses("CDS", "LDS"))
		l.Unharmed(t)
	}, ownSotw, ownDelta)
}
