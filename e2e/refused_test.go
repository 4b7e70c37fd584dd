package e2e

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Envoy applies the good part of a response that it refuses. So after a NACK it
// is on no version it states, and going back must be told.
func TestRefusedListener(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-4 SOTW-5 SOTW-21 DELTA-15 refused once, fixed, reverted", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		good, bad := freePort(t), freePort(t)
		goods, bads := via(t, good), via(t, bad)

		p := s.commit("a good and a bad listener", func(w world) {
			w.set(httpListener("good", good, "side"), brokenListener("bad", bad, "side"))
		})
		s.refusedOnce(p, "LDS")
		eventually(t, soon, "the good one is in force", goods.gets(answer{s.sideAt.name, "1"}))

		p = s.commit("the bad one fixed", func(w world) { w.set(httpListener("bad", bad, "side")) })
		eventually(t, soon, "it is in force", bads.gets(answer{s.sideAt.name, "1"}))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(p).NACKs())
		exactly(t, 1, "LDS response", s.Since(p).Responses("LDS"))

		p = s.commit("a second pair", func(w world) {
			w.set(httpListener("good-2", freePort(t), "side"), brokenListener("bad-2", freePort(t), "side"))
		})
		nack := s.refusedOnce(p, "LDS")
		eventually(t, soon, "Envoy has the good one of a refused response", s.envoy.hasListeners("ingress", "side", "good", "bad", "good-2"))
		p = s.commit("reverted", func(w world) {
			w.drop(httpListener("good-2", 0, ""), httpListener("bad-2", 0, ""))
		})
		eventually(t, soon, "the good one of the refused response goes", s.envoy.hasListeners("ingress", "side", "good", "bad"))
		s.quiet()
		s.reverted(p, "LDS", nack)
		l.unharmed(t)
	})
}

func TestRefusedCluster(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-5 SOTW-21 DELTA-15 refused once, reverted", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.refuseCluster()
		nack := s.refusedOnce(p, "CDS")
		eventually(t, soon, "Envoy has the good cluster of a refused response", s.envoy.hasClusters("backend", "other", "zgood"))
		p = s.revertCluster()
		eventually(t, soon, "it goes", s.envoy.hasClusters("backend", "other"))
		s.quiet()
		s.reverted(p, "CDS", nack)

		s.refuseCluster()
		s.commit("the bad one fixed", func(w world) { w.set(edsCluster("bad", time.Second), assignment("bad", s.a.port)) })
		eventually(t, soon, "both are in force", s.envoy.hasClusters("backend", "other", "zgood", "bad"))
		s.quiet()
		l.unharmed(t)
	})

	// The server remembers across streams, as the client states the version it
	// had before the refusal and not what it is on.
	t.Run("SOTW-18 reverted while the client is away", func(t *testing.T) {
		t.Parallel()
		s := startSite(t, sotw)
		s.refusedOnce(s.refuseCluster(), "CDS")
		eventually(t, soon, "Envoy has the good cluster of a refused response", s.envoy.hasClusters("backend", "other", "zgood"))
		s.Mark("connection cut")
		s.Cut()
		s.revertCluster()
		eventually(t, 2*soon, "the daemon has read the files", s.daemon.serves("backend", "other"))
		p := s.Mark("connection restored")
		s.Restore()
		s.sees(p, 30*time.Second, "Envoy is back", func(rs tap.Records) bool { return len(rs.Requests("CDS")) > 0 })
		eventually(t, soon, "the good cluster goes", s.envoy.hasClusters("backend", "other"))
	})
}

func TestRefusedRoutes(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-5 DELTA-15 refused once, the others go on", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("ingress' routes are bad", func(w world) { w.set(brokenRoutes("ingress", "backend")) })
		s.refusedOnce(p, "RDS")
		s.commit("side's routes change", func(w world) { w.set(routes("side", "2", "other")) })
		eventually(t, soon, "they are in force", s.side.gets(answer{s.sideAt.name, "2"}))
		p = s.commit("ingress' routes go back", func(w world) { w.set(routes("ingress", "1", "backend")) })
		s.sees(p, soon, "RDS", func(rs tap.Records) bool { return len(rs.Responses("RDS")) > 0 })
		s.quiet()
		exactly(t, 0, "NACK", s.Since(p).NACKs())

		p = s.commit("ingress' routes are bad, side's are good", func(w world) {
			w.set(brokenRoutes("ingress", "backend"), routes("side", "3", "other"))
		})
		s.refusedOnce(p, "RDS")
		p = s.commit("ingress' routes fixed", func(w world) { w.set(routes("ingress", "3", "backend")) })
		eventually(t, soon, "they are in force", s.ingress.gets(answer{"a", "3"}))
		eventually(t, soon, "and those refused with them", s.side.gets(answer{s.sideAt.name, "3"}))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(p).NACKs())
		l.unharmed(t)
	})
}

func (s *site) refuseCluster() tap.Point {
	s.t.Helper()
	return s.commit("a bad and a good cluster", func(w world) {
		w.set(brokenCluster("bad"), edsCluster("zgood", time.Second), assignment("zgood", s.a.port))
	})
}

func (s *site) revertCluster() tap.Point {
	s.t.Helper()
	return s.commit("reverted", func(w world) {
		w.drop(brokenCluster("bad"), edsCluster("zgood", 0), assignment("zgood"))
	})
}

// refusedOnce waits for a NACK of the type, lets another change pass and makes
// sure that the refused response was not sent again meanwhile. It returns the
// NACK.
func (s *site) refusedOnce(p tap.Point, typ string) tap.Record {
	s.t.Helper()
	rs := s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs(typ)) > 0 })
	s.nextChange()
	exactly(s.t, 1, "NACK of "+typ, s.Since(p).NACKs())
	exactly(s.t, 1, typ+" response", s.Since(p).Responses(typ))
	return rs.NACKs(typ)[0]
}

// reverted makes sure that going back was told once since p. In SotW the
// version must be the one that the client stated when it refused: that is the
// trap.
func (s *site) reverted(p tap.Point, typ string, nack tap.Record) {
	s.t.Helper()
	exactly(s.t, 0, "NACK", s.Since(p).NACKs())
	rs := s.Since(p).Responses(typ)
	exactly(s.t, 1, typ+" response", rs)
	if len(rs) == 1 && !rs[0].Delta && rs[0].Version != nack.Version {
		s.t.Errorf("after going back the version is not the one that the client states:\n%v\n%v", nack, rs[0])
	}
}
