package endpoints

import (
	"errors"
	"testing"
)

// Steps that are taken together get no more room than those that come one by one: what was taken before counts, and what went, too.
func TestRoomOfOneBatch(t *testing.T) {
	put := func(cluster string, n int) Op {
		one := at(n)
		return Op{Cluster{Name: cluster}, "", &one.Endpoint}
	}
	one := at(1)
	gone := Op{Cluster{Name: "x"}, one.Endpoint.at(), nil}
	for what, c := range map[string]struct {
		opts Options
		ops  []Op
		want map[int]bool // refused
	}{
		"a cluster":    {Options{PerCluster: 2}, []Op{put("x", 1), put("x", 1), put("x", 2), put("x", 3), put("y", 3)}, map[int]bool{3: true}},
		"clusters":     {Options{MaxClusters: 2}, []Op{put("x", 1), put("y", 1), put("z", 1), put("x", 2), put("y", 2)}, map[int]bool{2: true}},
		"all":          {Options{MaxEndpoints: 2}, []Op{put("x", 1), put("y", 1), put("x", 2), put("y", 1)}, map[int]bool{2: true}},
		"what is gone": {Options{PerCluster: 2}, []Op{put("x", 1), put("x", 2), gone, gone, put("x", 3), put("x", 1)}, map[int]bool{5: true}},
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
