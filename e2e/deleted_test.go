package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/e2e/tap"
)

func TestListenerDeletedAndBack(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-2 SOTW-8 DELTA-8 listener goes and returns", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.side, nil)
		gone := s.world[key(httpListener("ingress", 0, ""))]
		p := s.commit("ingress deleted", func(w world) { w.drop(gone) })
		eventually(t, soon, "ingress closes", refused(s.ingressPort))
		eventually(t, soon, "it is no longer in force", s.envoy.hasListeners("side"))
		s.quiet()
		exactly(t, 1, "LDS response", s.Since(p).Responses("LDS"))
		if v.delta() {
			carries(t, "LDS -ingress", s.Since(p).Responses("LDS"))
		} else {
			carries(t, "LDS side", s.Since(p).Responses("LDS"))
		}
		s.commit("ingress back", func(w world) { w.set(gone) })
		eventually(t, soon, "ingress serves again", s.ingress.gets(answer{"a", "1"}))

		l.Unharmed(t) // the next answers are refusals
		s.commit("all listeners deleted", func(w world) {
			w.drop(httpListener("ingress", 0, ""), httpListener("side", 0, ""))
		})
		eventually(t, soon, "none is in force", s.envoy.hasListeners())
		s.commit("both back", func(w world) {
			w.set(httpListener("ingress", s.ingressPort, "ingress"), httpListener("side", s.sidePort, "side"))
		})
		eventually(t, soon, "ingress serves again", s.ingress.gets(answer{"a", "1"}))
		eventually(t, soon, "side serves again", s.side.gets(answer{"b", "1"}))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// Envoy keeps the assignment of a cluster in use, whether or not it gets the removal.
func TestAssignmentDeletedAndBack(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-2 SOTW-9 SOTW-11 DELTA-8 DELTA-16 assignment goes and returns", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("backend's assignment deleted", func(w world) { w.drop(assignment("backend")) })
		s.nextChange()
		if v.delta() {
			s.sees(p, grace+soon, "told of it", func(rs tap.Records) bool { return len(removals(rs, "EDS", "backend")) == 1 })
			s.quiet()
		} else {
			carries(t, "EDS other", s.Since(p).Responses())
		}
		if err := s.ingress.gets(answer{"a", "1"})(); err != nil {
			t.Error("the cluster lost its endpoints:", err)
		}
		s.commit("it returns, elsewhere", func(w world) { w.set(assignment("backend", s.b.port)) })
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// Envoy keeps routes that its listeners refer to, whether or not it gets the removal.
func TestRoutesDeletedAndBack(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-2 SOTW-9 SOTW-11 DELTA-8 routes go and return", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("ingress' routes deleted", func(w world) { w.drop(routes("ingress", "", "")) })
		s.nextChange()
		if v.delta() {
			s.sees(p, grace+soon, "told of it", func(rs tap.Records) bool { return len(removals(rs, "RDS", "ingress")) == 1 })
			s.quiet()
			carries(t, "RDS -ingress", s.Since(p).Responses("RDS"))
		} else {
			exactly(t, 0, "RDS response", s.Since(p).Responses("RDS"))
		}
		s.commit("ingress' routes back, leading to other", func(w world) { w.set(routes("ingress", "2", "other")) })
		eventually(t, soon, "the routes are in force", s.ingress.gets(answer{s.sideAt.name, "2"}))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

func TestClusterDeletedAndBack(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-2 SOTW-8 DELTA-8 WARM-1 cluster goes and returns", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.side, nil)
		s.commit("backend deleted, though routes lead there", func(w world) {
			w.drop(edsCluster("backend", 0), assignment("backend"))
		})
		eventually(t, grace+soon, "there is no cluster for the routes", s.ingress.fails("503"))
		eventually(t, soon, "the cluster is gone", s.envoy.hasClusters("other"))
		s.commit("backend back, elsewhere", func(w world) {
			w.set(edsCluster("backend", time.Second), assignment("backend", s.b.port))
		})
		eventually(t, soon, "ingress serves again", s.ingress.gets(answer{"b", "1"}))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})

	each(t, "ADS-3 a cluster that its routes moved away from", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		for i := range 5 {
			gen := fmt.Sprint(2 + 2*i)
			p := s.commit("routes lead to other, backend deleted", func(w world) {
				w.set(routes("ingress", gen, "other"))
				w.drop(edsCluster("backend", 0), assignment("backend"))
			})
			eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", gen}))
			eventually(t, soon, "the cluster goes", s.envoy.hasClusters("other"))
			inOrder(t, s.Since(p),
				"RDS", func(r tap.Record) bool { return r.Type == "RDS" && r.Has("ingress") },
				"CDS without backend", func(r tap.Record) bool {
					return r.Type == "CDS" && (slices.Contains(r.Removed, "backend") || v == sotw && !r.Has("backend"))
				})
			gen = fmt.Sprint(3 + 2*i)
			s.commit("and back", func(w world) {
				w.set(edsCluster("backend", time.Second), assignment("backend", s.a.port), routes("ingress", gen, "backend"))
			})
			eventually(t, soon, "traffic moves back", s.ingress.gets(answer{"a", gen}))
		}
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})

	each(t, "ADS-3 listener, routes and cluster go together and return", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.side, nil)
		s.commit("all of ingress deleted", func(w world) {
			w.drop(httpListener("ingress", 0, ""), routes("ingress", "", ""), edsCluster("backend", 0), assignment("backend"))
		})
		eventually(t, soon, "the listener goes", s.envoy.hasListeners("side"))
		eventually(t, soon, "the cluster goes", s.envoy.hasClusters("other"))
		s.commit("all of it back", func(w world) {
			w.set(httpListener("ingress", s.ingressPort, "ingress"), routes("ingress", "2", "backend"),
				edsCluster("backend", time.Second), assignment("backend", s.b.port))
		})
		eventually(t, soon, "ingress serves again", s.ingress.gets(answer{"b", "2"}))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// One approved reload removes most clusters. One response removes all unreferenced clusters. The cluster that the old
// routes refer to is removed after the ACK of the new routes, without a timer.
func TestMostDeleted(t *testing.T) {
	t.Parallel()
	each(t, "SAFE-10 ADS-3 what was in use goes last", func(t *testing.T, v variant) {
		const spare = 27
		var many []proto.Message
		for i := range spare {
			name := fmt.Sprint("spare-", i)
			many = append(many, edsCluster(name, time.Second), assignment(name))
		}
		s := newSite(t, renamed, func(w world) { w.set(many...) })
		s.start(v)
		l := loaded(t, s.side, nil)
		p := s.commit("28 of 29 clusters deleted, and the routes lead to the last", func(w world) {
			w.drop(many...)
			w.drop(edsCluster("backend", 0), assignment("backend"))
			w.set(routes("ingress", "2", "other"))
		})
		if out, err := exec.Command(binary, "reload", s.daemon.dir, "--allow-mass-delete").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		eventually(t, prompt, "all are gone", s.envoy.hasClusters("other"))
		s.quiet()
		l.Unharmed(t)
		rs := s.Since(p).Responses("CDS", "RDS")
		var said []string
		for _, r := range rs {
			said = append(said, fmt.Sprint(r.Type, " ", len(r.Resources), " -", len(r.Removed)))
		}
		want := []string{"RDS 1 -0", "CDS 2 -0", "CDS 1 -0"} // the worlds: other and backend, then other
		if v.delta() {
			want = []string{"RDS 1 -0", fmt.Sprint("CDS 0 -", spare), "CDS 0 -1"}
		}
		if !slices.Equal(said, want) {
			t.Errorf("said %q, not %q", said, want)
		}
		exactly(t, 0, "NACK", s.Since(p).NACKs())
	})
}

// removals returns the responses that remove a name.
func removals(rs tap.Records, typ, name string) tap.Records {
	return rs.Responses(typ).Where(func(r tap.Record) bool { return slices.Contains(r.Removed, name) })
}
