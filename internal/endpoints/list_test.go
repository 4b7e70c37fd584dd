package endpoints

import (
	"fmt"
	"testing"
	"time"
)

// List of one cluster does not scan all others.
func TestListOfOneClusterIsCheap(t *testing.T) {
	const n = 20_000
	r := &Registry{}
	r.set.clusters = map[Cluster]*cluster{}
	for i := range n {
		r.set.clusters[Cluster{"default", fmt.Sprint(i)}] = &cluster{}
	}
	began := time.Now()
	for i := range n {
		if all := r.List("default", fmt.Sprint(i)); len(all) != 1 || all[0].Name != fmt.Sprint(i) {
			t.Fatal(i, all)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("%d lists took %v", n, took)
	}
	if all := r.List("edge", "1"); all != nil {
		t.Error(all)
	}
	if all := r.List("", "1"); len(all) != 1 {
		t.Error(all)
	}
}
