package e2e

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// TestExchanges records Envoy's requests and answers: at the start, while all resources change,
// disappear and return, after refusals, and after the end of the server.
func TestExchanges(t *testing.T) {
	t.Parallel()
	among(t, "TYP-2 TYP-3 SUB-2 SOTW-12 SOTW-17 DELTA-9 WARM-2 what Envoy says", func(t *testing.T, v variant) {
		v.drain = time.Minute // else a listener may return after its drain, and Envoy subscribes to its routes anew
		s := startSite(t, v)
		step := func(what string, ok func() error, change func(world)) {
			t.Helper()
			s.commit(what, change)
			eventually(t, grace+soon, what, ok)
			s.quiet()
		}
		step("assignment changes", s.ingress.gets(answer{"b", "1"}), func(w world) { w.set(assignment("backend", s.b.port)) })
		step("cluster changes", s.envoy.inForce("backend", "2s"), func(w world) { w.set(edsCluster("backend", 2*time.Second)) })
		step("routes change", s.ingress.gets(answer{"b", "2"}), func(w world) { w.set(routes("ingress", "2", "other")) })
		step("listener changes", s.envoy.dumps("dynamic_listeners", `"server_name": "second"`), func(w world) {
			w.set(namedListener("ingress", s.ingressPort, "ingress", "second"))
		})
		step("cluster deleted", s.envoy.hasClusters("other"), func(w world) { w.drop(edsCluster("backend", 0)) })
		step("cluster back", s.envoy.hasClusters("other", "backend"), func(w world) { w.set(edsCluster("backend", time.Second)) })
		// Envoy keeps deleted assignments and routes, whether or not it gets the removal (delta).
		// So another, visible resource is deleted with them.
		gone := func(typ, name string, ok func() error) func() error {
			return func() error {
				if v.delta() && len(removals(s.Since(0), typ, name)) == 0 {
					return errors.New("nothing is removed")
				}
				return ok()
			}
		}
		step("assignment deleted, another changes", gone("EDS", "backend", s.side.gets(answer{"a", "1"})), func(w world) {
			w.drop(assignment("backend"))
			w.set(assignment("other", s.a.port))
		})
		step("assignment back, and routes lead there", s.ingress.gets(answer{"b", "3"}), func(w world) {
			w.set(assignment("backend", s.b.port), routes("ingress", "3", "backend"))
		})
		step("routes deleted, others change", gone("RDS", "ingress", s.side.gets(answer{"a", "2"})), func(w world) {
			w.drop(routes("ingress", "", ""))
			w.set(routes("side", "2", "other"))
		})
		step("routes back", s.ingress.gets(answer{"b", "4"}), func(w world) { w.set(routes("ingress", "4", "backend")) })
		step("listeners deleted", s.envoy.hasListeners(), func(w world) {
			w.drop(httpListener("ingress", 0, ""), httpListener("side", 0, ""))
		})
		step("listeners back", s.envoy.hasListeners("ingress", "side"), func(w world) {
			w.set(httpListener("ingress", s.ingressPort, "ingress"), httpListener("side", s.sidePort, "side"))
		})

		refused := func(typ, what string, change func(world)) {
			t.Helper()
			p := s.commit(what, change)
			s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs(typ)) > 0 })
			s.quiet()
		}
		refused("LDS", "bad listener", func(w world) { w.set(brokenListener("ingress", s.ingressPort, "ingress")) })
		step("fixed", s.envoy.dumps("dynamic_listeners", `"server_name": "third"`), func(w world) {
			w.set(namedListener("ingress", s.ingressPort, "ingress", "third"))
		})
		refused("CDS", "bad and good cluster", func(w world) {
			w.set(brokenCluster("bad"), edsCluster("zgood", time.Second), assignment("zgood", s.a.port))
		})
		eventually(t, soon, "Envoy has the good one", s.envoy.hasClusters("backend", "other", "zgood"))
		step("reverted", s.envoy.hasClusters("backend", "other"), func(w world) {
			w.drop(brokenCluster("bad"), edsCluster("zgood", 0))
		})
		refused("RDS", "bad routes", func(w world) { w.set(brokenRoutes("ingress", "backend")) })
		step("fixed", s.ingress.gets(answer{"b", "5"}), func(w world) { w.set(routes("ingress", "5", "backend")) })
		refused("EDS", "bad assignment", func(w world) { w.set(assignment("backend", 70000)) })
		step("fixed", s.ingress.gets(answer{"a", "5"}), func(w world) { w.set(assignment("backend", s.a.port)) })

		back := func(asks, told []string) {
			t.Helper()
			s.sees(s.restart(), 30*time.Second, "Envoy subscribes to everything again", func(rs tap.Records) bool {
				return has(rs.Requests(), asks...) && has(rs.Responses(), told...)
			})
			s.quiet()
		}
		// On a new stream, SotW gets its named resources once. Delta gets only changes, and no
		// response if there are none.
		listeners := []string{"RDS ingress", "RDS side"}
		all := append([]string{"EDS backend", "EDS other"}, listeners...)
		same, nothing := all, listeners
		if v.delta() {
			same, nothing = nil, []string{"CDS"}
		}
		s.kill()
		back(append(all, "CDS", "LDS"), same)
		s.kill()
		s.commit("assignment and routes change meanwhile", func(w world) {
			w.set(assignment("backend", s.b.port), routes("ingress", "6", "backend"))
		})
		back(append(all, "CDS", "LDS"), same)
		eventually(t, soon, "the changes are active", s.ingress.gets(answer{"b", "6"}))
		s.quiet()

		// SotW also opens types without a subscription, with a request without names.
		step("all clusters deleted", s.envoy.hasClusters(), func(w world) { w.drop(edsCluster("backend", 0), edsCluster("other", 0)) })
		s.kill()
		back(append(listeners, "CDS", "LDS"), nothing)
		recorded(t, "envoy/"+v.String(), s.Since(0))
	}, sotw, delta, ownSotw, ownDelta, unifiedSotw)
}

// has reports whether the records have responses with all of these: "EDS backend", or "CDS" alone.
func has(rs tap.Records, what ...string) bool {
	said := map[string]bool{}
	for _, r := range rs {
		said[r.Type] = true
		for _, name := range slices.Concat(r.Names, r.Subscribe) {
			said[r.Type+" "+name] = true
		}
		for _, x := range r.Resources {
			said[r.Type+" "+x.Name] = true
		}
	}
	return !slices.ContainsFunc(what, func(w string) bool { return !said[w] })
}
