package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Envoy applies the good part of a response that it refuses. So after a NACK Envoy's state is not
// the version that it states, and a revert must be sent.
func TestRefusedListener(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-4 SOTW-5 SOTW-21 DELTA-15 refused once, fixed, reverted", func(t *testing.T, v variant) {
		s := startStrict(t, v)
		l := loaded(t, s.ingress, nil)
		good, bad := freePort(t), freePort(t)
		goods, bads := via(t, good), via(t, bad)

		p := s.commit("a good and a bad listener", func(w world) {
			w.set(httpListener("good", good, "side"), brokenListener("bad", bad, "side"))
		})
		s.refusedOnce(p, "LDS")
		eventually(t, soon, "the good one is in force", goods.gets(answer{s.sideAt.name, "1"}))

		p = s.commit("the bad one fixed", func(w world) { w.set(httpListener("bad", bad, "side")) })
		eventually(t, soon, "the change is active", bads.gets(answer{s.sideAt.name, "1"}))
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
		l.Unharmed(t)
	})
}

func TestRefusedCluster(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-5 SOTW-21 DELTA-15 OBS-1 OBS-3 refused once, reverted", func(t *testing.T, v variant) {
		s := startStrict(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.refuseCluster()
		nack := s.refusedOnce(p, "CDS")
		s.blamed("bad", "CDS", nack)
		if lines := s.daemon.logged("client connected"); len(lines) != 1 || lines[0]["node"] != "e2e" || !strings.HasPrefix(fmt.Sprint(lines[0]["agent"]), "envoy 1.") {
			t.Errorf("OBS-3: %v", lines)
		}
		eventually(t, soon, "Envoy has the good cluster of a refused response", s.envoy.hasClusters("backend", "other", "zgood"))
		p = s.revertCluster()
		eventually(t, soon, "it goes", s.envoy.hasClusters("backend", "other"))
		s.quiet()
		s.reverted(p, "CDS", nack)
		eventually(t, soon, "the log says that Envoy accepts again", func() error {
			if lines := s.daemon.logged("client no longer refuses a type"); len(lines) != 1 || lines[0]["node"] != "e2e" || lines[0]["type"] != "CDS" {
				return fmt.Errorf("OBS-3: %v", lines)
			}
			return nil
		})

		s.refuseCluster()
		s.commit("the bad one fixed", func(w world) { w.set(edsCluster("bad", time.Second), assignment("bad", s.a.port)) })
		eventually(t, soon, "both are in force", s.envoy.hasClusters("backend", "other", "zgood", "bad"))
		s.quiet()
		l.Unharmed(t)
	})

	// The server remembers across streams, as the client states the version it
	// had before the refusal and not what it is on.
	t.Run("SOTW-18 reverted while the client is away", func(t *testing.T) {
		t.Parallel()
		s := startStrict(t, sotw)
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
		s := startStrict(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("ingress' routes are bad", func(w world) { w.set(brokenRoutes("ingress", "backend")) })
		s.refusedOnce(p, "RDS")
		s.commit("side's routes change", func(w world) { w.set(routes("side", "2", "other")) })
		eventually(t, soon, "the changes are active", s.side.gets(answer{s.sideAt.name, "2"}))
		p = s.commit("ingress' routes go back", func(w world) { w.set(routes("ingress", "1", "backend")) })
		s.sees(p, soon, "RDS", func(rs tap.Records) bool { return len(rs.Responses("RDS")) > 0 })
		s.quiet()
		exactly(t, 0, "NACK", s.Since(p).NACKs())

		p = s.commit("ingress' routes are bad, side's are good", func(w world) {
			w.set(brokenRoutes("ingress", "backend"), routes("side", "3", "other"))
		})
		s.refusedOnce(p, "RDS")
		p = s.commit("ingress' routes fixed", func(w world) { w.set(routes("ingress", "3", "backend")) })
		eventually(t, soon, "the changes are active", s.ingress.gets(answer{"a", "3"}))
		eventually(t, soon, "and those refused with them", s.side.gets(answer{s.sideAt.name, "3"}))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(p).NACKs())
		l.Unharmed(t)
	})
}

// startStrict starts a site where nothing of what is refused is sent before it changes: what the protocol
// wants without quarantine, as all but TestQuarantine.
func startStrict(t *testing.T, v variant) *site {
	t.Helper()
	s := siteOf(t, func(w world) *rig { return newRig(t, w, sourcedBy(v, renamed)) })
	s.start(v)
	return s
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

// blamed makes sure that the log tells of a NACK what Envoy said, and which resource that
// is about, with the line of the file where it stands.
func (s *site) blamed(name, typ string, nack tap.Record) {
	s.t.Helper()
	lines := s.daemon.logged("client refused a response (NACK)")
	if len(lines) != 1 {
		s.t.Fatalf("OBS-1: %d lines tell of one NACK: %v", len(lines), lines)
	}
	line := lines[0]
	resources, _ := line["resources"].([]any)
	places, _ := line["at"].([]any)
	if line["node"] != "e2e" || line["type"] != typ || line["nonce"] != nack.Nonce || len(resources) == 0 || resources[0] != name || len(places) != len(resources) {
		s.t.Fatalf("OBS-1: %v", line)
	}
	file, at, _ := strings.Cut(fmt.Sprint(places[0]), ".yaml:")
	row, _, _ := strings.Cut(at, ":")
	n, _ := strconv.Atoi(row)
	content, err := os.ReadFile(file + ".yaml")
	if err != nil {
		s.t.Fatalf("OBS-1: %v: %v", line, err)
	}
	below := strings.Join(strings.Split(string(content), "\n")[max(n-1, 0):], "\n")
	if first, _, _ := strings.Cut(below, "\n---"); n == 0 || !strings.Contains(first, name) {
		s.t.Errorf("OBS-1: %v is not at %v, where there is:\n%s", name, places[0], first)
	}
	if text := fmt.Sprint(line["error"]); !strings.Contains(text, name) && !strings.Contains(text, "Proto constraint validation failed") {
		s.t.Errorf("OBS-1: %v", line)
	}
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
