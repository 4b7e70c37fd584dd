package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
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

// A file that a rename replaces reaches Envoy at once if only endpoints differ, and after the quiet time if anything
// else does. The test runs alone, because it measures the time.
func TestSavedFileReachesEnvoy(t *testing.T) {
	const saves, tolerance, quiet = 15, 60 * time.Millisecond, 100 * time.Millisecond
	endpoints := func(s *site, even bool) (proto.Message, answer) {
		if even {
			return assignment("backend", s.a.port), answer{"a", "1"}
		}
		return assignment("backend", s.b.port), answer{"b", "1"}
	}
	route := func(_ *site, even bool) (proto.Message, answer) {
		if even {
			return routes("ingress", "1", "backend"), answer{"a", "1"}
		}
		return routes("ingress", "2", "backend"), answer{"a", "2"}
	}
	for _, tt := range []struct {
		name  string
		next  func(s *site, even bool) (proto.Message, answer)
		flags []string
		waits bool
	}{
		{"endpoints", endpoints, nil, false},
		{"routes", route, nil, true},
		{"routes with --load-at-once", route, []string{"--load-at-once"}, false},
	} {
		t.Run("SAFE-18 "+tt.name, func(t *testing.T) {
			s := siteOf(t, func(w world) *rig { return newRig(t, w, renamed, tt.flags...) })
			s.start(delta)
			var took []time.Duration
			for i := range saves {
				resource, want := tt.next(s, i%2 == 1)
				start := time.Now()
				s.commit(fmt.Sprint("save ", i), func(w world) { w.set(resource) })
				eventually(t, soon, "the save has an effect", s.ingress.gets(want))
				took = append(took, time.Since(start))
				time.Sleep(2 * quiet)
			}
			slices.Sort(took)
			switch median := took[saves/2]; {
			case tt.waits && took[0] < quiet:
				t.Errorf("loaded before the files were quiet: %v", took)
			case !tt.waits && median > tolerance:
				t.Errorf("median %v, want at most %v: %v", median, tolerance, took)
			default:
				t.Logf("median %v", median)
			}
		})
	}
}
