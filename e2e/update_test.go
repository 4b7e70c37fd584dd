package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

func TestStart(t *testing.T) {
	t.Parallel()
	each(t, "TYP-3 ADS-1 SOTW-6 one answer for each type", func(t *testing.T, v variant) {
		s := startSite(t, v)
		p := s.Mark("what was not said until the next change was not going to be said")
		s.nextChange()
		carries(t, "EDS other", s.Since(p).Responses())
		before := s.Since(0)[:p]
		for _, typ := range []string{"CDS", "EDS", "LDS", "RDS"} {
			exactly(t, 1, typ+" response", before.Responses(typ))
			exactly(t, 1, typ+" ACK", before.ACKs(typ))
		}
		exactly(t, 0, "NACK", s.Since(0).NACKs())
		exactly(t, 1, "stream", s.Since(0).Opened())
	})
}

func TestEndpointMoved(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-9 DELTA-12 only the changed assignment is sent", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("backend moves from a to b", func(w world) { w.set(assignment("backend", s.b.port)) })
		eventually(t, prompt, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		s.quiet()
		l.Unharmed(t)
		carries(t, "EDS backend", s.Since(p).Responses())
	})
}

func TestRouteChanged(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-9 DELTA-12 only the changed routes are sent", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("ingress leads to other", func(w world) { w.set(routes("ingress", "2", "other")) })
		eventually(t, prompt, "traffic moves", s.ingress.gets(answer{"b", "2"}))
		s.quiet()
		l.Unharmed(t)
		carries(t, "RDS ingress", s.Since(p).Responses())
	})
}

func TestListenerChanged(t *testing.T) {
	t.Parallel()
	each(t, "WARM-3 routes are not sent again", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("ingress gets a name", func(w world) { w.set(namedListener("ingress", s.ingressPort, "ingress", "second")) })
		eventually(t, prompt, "the new listener is in force", s.envoy.dumps("dynamic_listeners", `"server_name": "second"`))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 1, "LDS response", s.Since(p).Responses("LDS"))
		exactly(t, 0, "response of another type", s.Since(p).Responses("CDS", "EDS", "RDS"))
	})
}

// Envoy delays a changed cluster and the ACK of CDS until the assignment is sent again. A server
// that does not send it stalls Envoy for 15 s.
func TestClusterChangedInPlace(t *testing.T) {
	t.Parallel()
	each(t, "WARM-1 WARM-2 ADS-7 in force within a second", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("backend's timeout becomes 2 s", func(w world) { w.set(edsCluster("backend", 2*time.Second)) })
		eventually(t, prompt, "the new cluster is in force", s.envoy.inForce("backend", "2s"))
		p2 := s.quiet()
		rs := s.Since(p)
		exactly(t, 1, "CDS response", rs.Responses("CDS"))
		exactly(t, 1, "EDS response", rs.Responses("EDS"))
		inOrder(t, rs,
			"CDS backend", func(r tap.Record) bool { return r.Type == "CDS" && r.Has("backend") },
			"EDS backend", func(r tap.Record) bool { return r.Type == "EDS" && r.Has("backend") })

		for i := 3; i < 8; i++ {
			s.commit(fmt.Sprintf("backend's timeout becomes %d s, in haste", i), func(w world) {
				w.set(edsCluster("backend", time.Duration(i)*time.Second))
			})
		}
		eventually(t, prompt, "the last cluster is in force", s.envoy.inForce("backend", "7s"))
		s.quiet()
		if n := len(s.Since(p2).Responses()); n > 10 {
			t.Errorf("%d responses for five changes", n)
		}
		exactly(t, 0, "LDS or RDS response", s.Since(p).Responses("LDS", "RDS"))
		exactly(t, 0, "NACK", s.Since(0).NACKs())

		s.commit("backend changes and moves", func(w world) {
			w.set(edsCluster("backend", time.Second), assignment("backend", s.b.port))
		})
		eventually(t, prompt, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		eventually(t, prompt, "the cluster is in force", s.envoy.inForce("backend", "1s"))
		s.quiet()
		l.Unharmed(t)
	})
}

// Each commit replaces a cluster and points the routes to the new one: first the new resources,
// then the routes, then the removal of the old ones.
func TestClusterReplaced(t *testing.T) {
	t.Parallel()
	each(t, "ADS-2 ADS-3 ADS-4 make before break under load", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		old := "backend"
		replace := func(i int) (p tap.Point) {
			next := fmt.Sprint("backend-", i)
			p = s.commit(fmt.Sprintf("%s takes the place of %s", next, old), func(w world) {
				w.drop(edsCluster(old, 0), assignment(old))
				w.set(edsCluster(next, time.Second), assignment(next, s.a.port), routes("ingress", next, next))
			})
			old = next
			return p
		}
		p := replace(0)
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"a", old}))
		eventually(t, 2*soon, "the old cluster goes", s.envoy.hasClusters(old, "other"))
		s.quiet()
		rs := s.Since(p)
		inOrder(t, rs,
			"CDS with the new cluster", func(r tap.Record) bool { return r.Type == "CDS" && r.Has(old) },
			"EDS with its assignment", func(r tap.Record) bool { return r.Type == "EDS" && r.Has(old) },
			"RDS", func(r tap.Record) bool { return r.Type == "RDS" && r.Has("ingress") },
			"CDS without the old cluster", func(r tap.Record) bool {
				return r.Type == "CDS" && (slices.Contains(r.Removed, "backend") || v == sotw && !r.Has("backend"))
			})
		if v == sotw {
			first := rs.Responses("CDS")[0]
			if !first.Has("backend") {
				t.Errorf("the old cluster left before the routes: %v", first)
			}
		}

		// With time to follow, and without.
		for i := 1; i < 6; i++ {
			replace(i)
			eventually(t, soon, "traffic moves", s.ingress.gets(answer{"a", old}))
		}
		for i := 6; i < 26; i++ {
			p := replace(i)
			s.sees(p, 5*time.Second, "a response", func(rs tap.Records) bool { return len(rs.Responses()) > 0 })
		}
		eventually(t, 2*soon, "traffic moves", s.ingress.gets(answer{"a", old}))
		eventually(t, 2*soon, "all old clusters go", s.envoy.hasClusters(old, "other"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// If Envoy refuses new routes, it keeps the previous routes and their cluster.
func TestClusterOfRefusedRoutes(t *testing.T) {
	t.Parallel()
	each(t, "ADS-3 a cluster stays until its routes are replaced", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("ingress' new routes are bad, and backend deleted", func(w world) {
			w.set(brokenRoutes("ingress", "other"))
			w.drop(edsCluster("backend", 0), assignment("backend"))
		})
		s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("RDS")) == 1 })
		s.nextChange()
		if err := s.envoy.hasClusters("backend", "other")(); err != nil {
			t.Error("the cluster of the routes in force is gone:", err)
		}
		s.commit("the routes fixed", func(w world) { w.set(routes("ingress", "2", "other")) })
		eventually(t, soon, "the changes are active", s.ingress.gets(answer{s.sideAt.name, "2"}))
		eventually(t, soon, "the cluster goes", s.envoy.hasClusters("other"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 1, "NACK", s.Since(0).NACKs())
	})
}

// carries fails the test unless the responses have exactly these resources.
func carries(t *testing.T, want string, rs tap.Records) {
	t.Helper()
	var s []string
	for _, r := range rs {
		for _, x := range r.Resources {
			s = append(s, r.Type+" "+x.Name)
		}
		for _, x := range r.Removed {
			s = append(s, r.Type+" -"+x)
		}
	}
	if got := strings.Join(s, ", "); got != want {
		t.Errorf("sent: %s\nwant: %s", got, want)
	}
}

// inOrder fails the test unless responses meet the conditions in this order; other responses may
// come between them. steps are pairs of a description and a condition.
func inOrder(t *testing.T, rs tap.Records, steps ...any) {
	t.Helper()
	rest := rs.Responses()
	for i := 0; i < len(steps); i += 2 {
		at := slices.IndexFunc(rest, steps[i+1].(func(tap.Record) bool))
		if at < 0 {
			t.Errorf("no response is %s, or not in its turn:\n%s", steps[i], rs.Responses())
			return
		}
		rest = rest[at+1:]
	}
}
