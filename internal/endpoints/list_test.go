package endpoints

import (
	"fmt"
	"testing"
	"testing/synctest"
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

// A list has the ends of the leases, and marks a lease whose owner has missed renewals.
func TestListHasEndsOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{})
		x := Cluster{Name: "x"}
		put := func(ttl time.Duration, n int) {
			t.Helper()
			if _, err := r.Put(t.Context(), x, []Registered{at(n)}, ttl); err != nil {
				t.Fatal(err)
			}
		}
		put(30*time.Second, 1)
		put(0, 2)
		began := time.Now()
		for _, c := range []struct {
			after time.Duration
			soon  int
		}{{0, 0}, {20 * time.Second, 0}, {21 * time.Second, 1}} {
			time.Sleep(time.Until(began.Add(c.after)))
			synctest.Wait()
			leased, free := r.List("", "x")[0].Endpoints[0], r.List("", "x")[0].Endpoints[1]
			if !leased.Until.Equal(began.Add(30*time.Second)) || !free.Until.IsZero() || leased.EndsSoon != (c.soon == 1) {
				t.Errorf("after %v: %+v, %+v", c.after, leased, free)
			}
			for _, name := range []string{"", "x"} {
				if got := r.List("", name)[0].EndSoon; got != c.soon {
					t.Errorf("after %v, list of %q: %d leases end soon", c.after, name, got)
				}
			}
		}
		put(30*time.Second, 1)
		if got := r.List("", "")[0].EndSoon; got != 0 {
			t.Error("after the renewal:", got)
		}
	})
}
