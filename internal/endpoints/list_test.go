package endpoints

import (
	"fmt"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/scaling"
)

// List of one cluster does not scan all others.
func TestListOfOneClusterIsCheap(t *testing.T) {
	of := func(n int) (*Registry, func() time.Duration) {
		r := &Registry{}
		r.set.clusters = map[Cluster]*cluster{}
		for i := range n {
			r.set.clusters[Cluster{"default", fmt.Sprint(i)}] = &cluster{}
		}
		return r, func() time.Duration {
			return scaling.CPUTime(func() {
				for i := range 200 {
					if all := r.List("default", fmt.Sprint(i)); len(all) != 1 || all[0].Name != fmt.Sprint(i) {
						t.Fatal(i, all)
					}
				}
			})
		}
	}
	_, few := of(200)
	r, many := of(20_000)
	scaling.AtMost(t, 10, few, many) // a scan costs a hundred times as much
	if all := r.List("edge", "1"); all != nil {
		t.Error(all)
	}
	if all := r.List("", "1"); len(all) != 1 {
		t.Error(all)
	}
}
