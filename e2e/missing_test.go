package e2e

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Envoy holds the ACK of CDS back while a cluster waits for its assignment. That must not delay
// unrelated resources.
func TestStuckCluster(t *testing.T) {
	t.Parallel()
	each(t, "ADS-6 unrelated changes arrive", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("a cluster without assignment, and routes change", func(w world) {
			w.set(edsCluster("stuck", time.Second), routes("side", "2", "other"))
		})
		eventually(t, soon, "the routes of the same commit", s.side.gets(answer{"b", "2"}))
		if v == sotw {
			exactly(t, 0, "ACK of CDS, so the cluster is not stuck", s.Since(p).ACKs("CDS"))
		}
		s.commit("routes change again", func(w world) { w.set(routes("ingress", "3", "other")) })
		eventually(t, soon, "the routes of a later commit", s.ingress.gets(answer{"b", "3"}))
		third := freePort(t)
		s.commit("a listener is new", func(w world) { w.set(httpListener("third", third, "side")) })
		eventually(t, soon, "the change is active", via(t, third).gets(answer{"b", "2"}))
		if v == sotw {
			exactly(t, 0, "ACK of CDS, so the cluster is not stuck", s.Since(p).ACKs("CDS"))
		}
		l.Unharmed(t)
		// Envoy will not say when this one is warm, so its routes do not wait,
		// and a few requests may fail.
		s.commit("another cluster is new, and routes lead there", func(w world) {
			w.set(edsCluster("fourth", time.Second), assignment("fourth", s.a.port), routes("ingress", "4", "fourth"))
		})
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"a", "4"}))
		s.commit("the assignment is there", func(w world) { w.set(assignment("stuck", s.a.port)) })
		eventually(t, soon, "the cluster is in force", s.envoy.hasClusters("backend", "other", "stuck", "fourth"))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// A cluster may be stuck because it was replaced before Envoy could request its assignment.
func TestOvertakenCluster(t *testing.T) {
	t.Parallel()
	each(t, "ADS-3 ADS-6 WARM-1 replaced before its assignment is asked for", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		release := s.Hold(func(r tap.Record) bool {
			return r.Type == "EDS" && slices.Contains(slices.Concat(r.Names, r.Subscribe), "second")
		})
		replace := func(old, next string) tap.Point {
			return s.commit(next+" takes the place of "+old, func(w world) {
				w.drop(edsCluster(old, 0), assignment(old))
				w.set(edsCluster(next, time.Second), assignment(next, s.b.port), routes("ingress", next, next))
			})
		}
		p := replace("backend", "second")
		s.sees(p, soon, "the second cluster", func(rs tap.Records) bool { return len(rs.Responses("CDS")) > 0 })
		replace("second", "third")
		eventually(t, soon, "the daemon has read the files", s.daemon.serves("third", "other"))
		s.Mark("the request for the second one's assignment arrives")
		release()
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "third"}))
		eventually(t, soon, "the old clusters go", s.envoy.hasClusters("third", "other"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// Nor while it waits for the endpoints to prove healthy. What does refer to the
// cluster waits for it.
func TestSlowCluster(t *testing.T) {
	t.Parallel()
	each(t, "ADS-6 ADS-7 only what refers to it waits", func(t *testing.T, v variant) {
		s := startSite(t, v)
		ready := make(chan struct{})
		slow := newSlowUpstream(t, "slow", ready)
		l := loaded(t, s.ingress, nil)
		p := s.commit("ingress leads to a new cluster, and side's routes change", func(w world) {
			w.set(checkedCluster("slow"), assignment("slow", slow.port), routes("ingress", "2", "slow"), routes("side", "2", "other"))
			w.drop(edsCluster("backend", 0), assignment("backend"))
		})
		eventually(t, soon, "side's routes are in force", s.side.gets(answer{"b", "2"}))
		s.commit("side's routes change again", func(w world) { w.set(routes("side", "3", "other")) })
		eventually(t, soon, "side's routes are in force", s.side.gets(answer{"b", "3"}))
		exactly(t, 0, "ACK of CDS, so the cluster is not slow", s.Since(p).ACKs("CDS"))
		for _, r := range s.Since(p).Responses("RDS") {
			if r.Has("ingress") {
				t.Errorf("the routes did not wait for their cluster: %v", r)
			}
		}
		if err := s.ingress.gets(answer{"a", "1"})(); err != nil {
			t.Error("ingress:", err)
		}
		s.Mark("the new cluster's endpoint is ready")
		close(ready)
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"slow", "2"}))
		eventually(t, soon, "the old cluster goes", s.envoy.hasClusters("slow", "other"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

func TestMissingAtStart(t *testing.T) {
	t.Parallel()
	t.Run("DELTA-7 a missing assignment is told at once", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, renamed, func(w world) { w.set(edsCluster("stuck", time.Second)) })
		// Without an answer, Envoy's start would wait 15 s.
		s.start(delta)
		told := s.Since(0).Where(func(r tap.Record) bool { return slices.Contains(r.Removed, "stuck") })
		exactly(t, 1, "response that says so", told)
		s.commit("the assignment is there", func(w world) {
			w.set(assignment("stuck", s.a.port), routes("ingress", "2", "stuck"))
		})
		eventually(t, prompt, "the change is active", s.ingress.gets(answer{"a", "2"}))
	})

	// Envoy asks for clusters and listeners before anything else, and waits 15 s
	// for each answer, be it empty.
	each(t, "SOTW-8 DELTA-9 nothing is said at once, too", func(t *testing.T, v variant) {
		all := newWorld()
		s := newSite(t, renamed, func(w world) {
			maps.Copy(all, w)
			clear(w)
			w.set(routes("unused", "1", "none")) // a directory without any resource is a mistake
		})
		s.envoy = startEnvoy(t, "e2e", v, s.Addr().Port)
		eventually(t, prompt, "envoy is live", s.envoy.Live)
		s.commit("everything comes", func(w world) { maps.Copy(w, all) })
		eventually(t, prompt, "ingress serves", s.ingress.gets(answer{"a", "1"}))
		eventually(t, prompt, "side serves", s.side.gets(answer{"b", "1"}))
	})

	// Told at its start that a route configuration does not exist, Envoy 1.40
	// initialises for ever, and none of its listeners serves. Left without an
	// answer, it goes on after 15 s. So the answer comes later than that.
	each(t, "DELTA-7 missing routes do not keep Envoy from starting", func(t *testing.T, v variant) {
		port := freePort(t)
		broken := via(t, port)
		s := newSite(t, renamed, func(w world) { w.set(httpListener("broken", port, "missing")) })
		s.Mark("envoy started: %s", v)
		s.envoy = startEnvoy(t, "e2e", v, s.Addr().Port)
		if took := eventually(t, 20*time.Second, "envoy is live", s.envoy.Live); took < 10*time.Second {
			t.Errorf("envoy was live after %v: it did not wait for the missing routes", took)
		}
		eventually(t, soon, "this one has no routes", broken.fails("404"))
		eventually(t, soon, "the other listeners serve", s.ingress.gets(answer{"a", "1"}))
		l := loaded(t, s.ingress, nil)
		missing := func(r tap.Record) bool { return slices.Contains(r.Removed, "missing") }
		exactly(t, 0, "response that says so", s.Since(0).Where(missing))
		if v == delta {
			s.sees(0, 15*time.Second, "told in the end", func(rs tap.Records) bool { return len(rs.Where(missing)) == 1 })
		}
		s.commit("the routes are there", func(w world) { w.set(routes("missing", "2", "other")) })
		eventually(t, soon, "the changes are active", broken.gets(answer{"b", "2"}))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}
