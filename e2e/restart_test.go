package e2e

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// The server is killed and restarted. Clients must not get resources again that they have: versions
// depend on the content alone.
func TestRestart(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-12 SOTW-13 DELTA-9 the same content is not sent again", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		for range 2 {
			s.kill()
			p := s.restart()
			s.back(p)
			if v == sotw { // a new stream gets its named resources once
				s.sees(p, soon, "named resources", func(rs tap.Records) bool { return len(rs.Responses("RDS", "EDS")) == 2 })
			}
			s.nextChange()
			rs := s.Since(p)
			if v == delta {
				carries(t, "EDS other", rs.Responses())
				exactly(t, 1, "response", rs.Responses())
			} else {
				exactly(t, 0, "CDS or LDS response", rs.Responses("CDS", "LDS"))
				exactly(t, 1, "RDS response", rs.Responses("RDS"))
				exactly(t, 2, "EDS response, one of them the next change,", rs.Responses("EDS"))
			}
			exactly(t, 0, "NACK", rs.NACKs())
		}
		l.Unharmed(t)
	})

	each(t, "SOTW-12 DELTA-8 DELTA-9 what changed meanwhile is sent", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		s.kill()
		s.commit("everything changes", func(w world) {
			w.drop(edsCluster("other", 0), assignment("other"), httpListener("side", 0, ""), routes("side", "", ""))
			w.set(edsCluster("third", time.Second), assignment("third", s.b.port), routes("ingress", "2", "third"),
				assignment("backend", s.b.port))
		})
		p := s.restart()
		s.back(p)
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "2"}))
		eventually(t, soon, "the new clusters are in force", s.envoy.hasClusters("backend", "third"))
		eventually(t, soon, "the deleted listener goes", s.envoy.hasListeners("ingress"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(p).NACKs())
	})
}

// A server that is stopped in order ends each stream with a status. Envoy reconnects.
func TestRestartInOrder(t *testing.T) {
	t.Parallel()
	everywhere(t, "SOTW-12 DELTA-9 ended in order and restarted", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		s.Mark("server told to end")
		s.daemon.stop()
		s.daemon.cmd = nil
		s.Cut()
		p := s.restart()
		s.back(p)
		s.commit("routes lead to other", func(w world) { w.set(routes("ingress", "2", "other")) })
		eventually(t, 30*time.Second, "traffic moves when its stream is back", s.ingress.gets(answer{"b", "2"}))
		exactly(t, 0, "CDS or LDS response", s.Since(p).Responses("CDS", "LDS"))
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(p).NACKs())
	})
}

// Envoy states that it has the assignment, but needs it again because its cluster changed.
func TestRestartWithChangedCluster(t *testing.T) {
	t.Parallel()
	each(t, "WARM-2 SOTW-12 DELTA-9 the assignment comes again", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		s.kill()
		s.commit("backend's timeout becomes 2 s", func(w world) { w.set(edsCluster("backend", 2*time.Second)) })
		s.back(s.restart())
		eventually(t, soon, "the new cluster is in force", s.envoy.inForce("backend", "2s"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// back waits until the client has repeated all its subscriptions.
func (s *site) back(p tap.Point) {
	s.t.Helper()
	s.sees(p, 30*time.Second, "Envoy subscribes to all types again", func(rs tap.Records) bool {
		for _, typ := range []string{"CDS", "EDS", "LDS", "RDS"} {
			if len(rs.Requests(typ)) == 0 {
				return false
			}
		}
		return true
	})
}
