package endpoints

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Steps in one call are limited like steps in several calls: accepted puts and removals count.
func TestLimitsWithinOneBatch(t *testing.T) {
	put := func(cluster string, n int) Op {
		one := at(n)
		return Op{Cluster: Cluster{Name: cluster}, Endpoint: &one.Endpoint}
	}
	one := at(1)
	gone := Op{Cluster: Cluster{Name: "x"}, ID: one.Endpoint.at()}
	for what, c := range map[string]struct {
		opts Options
		ops  []Op
		want map[int]bool // refused
	}{
		"a cluster":         {Options{PerCluster: 2}, []Op{put("x", 1), put("x", 1), put("x", 2), put("x", 3), put("y", 3)}, map[int]bool{3: true}},
		"clusters":          {Options{MaxClusters: 2}, []Op{put("x", 1), put("y", 1), put("z", 1), put("x", 2), put("y", 2)}, map[int]bool{2: true}},
		"all":               {Options{MaxEndpoints: 2}, []Op{put("x", 1), put("y", 1), put("x", 2), put("y", 1)}, map[int]bool{2: true}},
		"removed endpoints": {Options{PerCluster: 2}, []Op{put("x", 1), put("x", 2), gone, gone, put("x", 3), put("x", 1)}, map[int]bool{5: true}},
	} {
		t.Run(what, func(t *testing.T) {
			r := start(t, "", c.opts)
			s, err := r.Session(0)
			if err != nil {
				t.Fatal(err)
			}
			errs, err := s.Apply(t.Context(), c.ops)
			if err != nil || len(errs) != len(c.want) {
				t.Fatal(errs, err)
			}
			for i := range c.want {
				if _, is := errors.AsType[*LimitError](errs[i]); !is {
					t.Errorf("%d: %v", i, errs[i])
				}
			}
		})
	}
}

// Steps about whole clusters are applied in order with the others, under the lease of the session.
func TestWholeClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{PerCluster: 3})
		s, err := r.Session(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		x := Cluster{Name: "x"}
		one := at(9)
		put := Op{Cluster: x, Endpoint: &one.Endpoint}
		apply := func(want map[int]string, ops ...Op) {
			t.Helper()
			errs, err := s.Apply(t.Context(), ops)
			if err != nil || len(errs) != len(want) {
				t.Fatal(errs, err)
			}
			for i, text := range want {
				if errs[i] == nil || errs[i].Error() != text {
					t.Errorf("%d: %v, want %s", i, errs[i], text)
				}
			}
			r.Flush()
		}
		has := func(n int) {
			t.Helper()
			if got := r.sees("x"); got != n {
				t.Errorf("%d endpoints, want %d", got, n)
			}
		}
		apply(nil, put, Op{Cluster: x, Replace: []Registered{at(1), at(2)}})
		has(2)
		apply(nil, Op{Cluster: x, Replace: []Registered{at(1)}}, put)
		has(2)
		bad := at(3)
		bad.Port = 0
		apply(map[int]string{
			0: "1 refused, such as endpoints[1].port: must be 1 to 65535", 1: "too many endpoints of a cluster: at most 3 are allowed", 3: "cluster: is missing", 4: "cluster: is missing",
		}, Op{Cluster: x, Replace: []Registered{at(3), bad}}, Op{Cluster: x, Replace: []Registered{at(3), at(4), at(5), at(6)}},
			Op{Cluster: Cluster{Name: "y"}, Release: true}, Op{Release: true}, Op{Replace: []Registered{}})
		has(1)
		apply(nil, Op{Cluster: x, Replace: []Registered{}})
		has(0)
		apply(nil, Op{Cluster: x, Release: true}, Op{Cluster: x, Release: true})
		has(-1)
		apply(nil, Op{Cluster: x, Replace: []Registered{at(1)}})
		has(1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		has(0) // the endpoint had the lease of the session
		if err := s.KeepAlive(t.Context()); !errors.Is(err, ErrNoLease) {
			t.Error(err)
		}
		apply(nil, Op{Cluster: x, Replace: []Registered{at(1)}})
		has(1)
		r.stop()
	})
}
