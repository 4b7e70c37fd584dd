package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
)

// A fleet is a site with many clusters, each with its own route under load. Each commit replaces
// some clusters by clusters with new names, points their routes to these, and deletes the old
// clusters with their assignments.
type fleet struct {
	*chain
	size, batch int
	next        int   // the first that the next commit replaces
	at          []int // generations
}

// newFleet makes a fleet whose daemon runs with more flags.
func newFleet(t *testing.T, v variant, size, batch int, flags ...string) *fleet {
	t.Helper()
	f := &fleet{size: size, batch: batch, at: make([]int, size)}
	s := siteOf(t, func(w world) *rig { return newRig(t, w, renamed, flags...) })
	f.chain = &chain{site: s, variant: v, link: link{"backend", s.a}}
	s.commit("the fleet", f.all)
	f.hurry()
	s.start(v)
	f.began = time.Now()
	var n atomic.Int64
	each := changed{posts{&http.Transport{MaxIdleConnsPerHost: 100}}, func(r *http.Request) {
		r.URL.Path = fmt.Sprintf("/%d/", n.Add(1)%int64(size))
	}}
	f.load = loadedAt(t, 300, calls(each, s.ingressPort), func(err error) bool {
		if f.marks.Add(1) <= 20 {
			s.Mark(failure+": %.100v", err)
		}
		return false
	})
	return f
}

// name of the ith cluster.
func (f *fleet) name(i int) string { return fmt.Sprintf("c%d-g%d", i, f.at[i]) }

// member is the ith cluster: every other one has its endpoints with it.
func (f *fleet) member(i int) *cluster.Cluster {
	c := patientCluster(f.name(i))
	if i%2 == 1 {
		c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
		c.EdsClusterConfig = nil
		c.LoadAssignment = assignment(c.GetName(), f.a.port)
	}
	return c
}

// all puts the fleet into the world.
func (f *fleet) all(w world) {
	r := proto.CloneOf(routes("ingress", "1", "backend"))
	h := r.GetVirtualHosts()[0]
	for i := range f.at {
		w.set(f.member(i))
		if i%2 == 0 {
			w.set(assignment(f.name(i), f.a.port))
		}
		h.Routes = slices.Insert(h.Routes, 0, &route.Route{
			Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: fmt.Sprintf("/%d/", i)}},
			Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: f.name(i)}}},
		})
	}
	w.set(r)
}

// replaces commits once.
func (f *fleet) replaces() {
	f.t.Helper()
	f.n++
	f.commit(fmt.Sprintf("commit %d replaces %d of %d", f.n, f.batch, f.size), func(w world) {
		for range f.batch {
			i := f.next % f.size
			f.next++
			w.drop(f.member(i), assignment(f.name(i)))
			f.at[i]++
		}
		f.all(w)
	})
	f.hurry()
}

// ends checks that no request failed, and that the order of messages was right.
func (f *fleet) ends() {
	f.t.Helper()
	names := []string{"backend", "other", "xds"}
	for i := range f.at {
		names = append(names, f.name(i))
	}
	// What lingers on a stream that resumes leaves after 5 s, which streams of 4 s
	// do not always reach.
	eventually(f.t, 2*generous, "Envoy has the files' clusters and no other", func() error {
		b, err := f.envoy.Get("/clusters")
		got := map[string]bool{}
		for line := range strings.Lines(string(b)) {
			name, _, _ := strings.Cut(line, "::")
			got[name] = true
		}
		if err == nil && !sameNames(got, names) {
			err = errors.New("/clusters has others")
		}
		return err
	})
	f.load.Stop()
	bad := f.Since(0).Disorder()
	f.t.Logf("%v: %d commits in %.1f s, %d streams; %d requests, %d failed; %d times out of order",
		f.variant, f.n, time.Since(f.began).Seconds(), len(f.Since(0).Opened()), f.load.OK.Load()+f.load.Failed.Load(), f.load.Failed.Load(), len(bad))
	f.load.Unharmed(f.t)
	for _, why := range bad[:min(3, len(bad))] {
		f.t.Error(why)
	}
}

// The connection breaks repeatedly during commits, so a reconnecting client may hold a mix of
// several commits.
func TestMakeBeforeBreakThroughBreaks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ size, batch int }{{20, 2}, {10, 10}} {
		each(t, fmt.Sprintf("ADS-3 ADS-9 the connection is cut, %d of %d at a time", tt.batch, tt.size), func(t *testing.T, v variant) {
			f := newFleet(t, v, tt.size, tt.batch)
			f.paced(50, 250*time.Millisecond, func() {
				f.replaces()
				// Cut at once and soon after, for 0 s and for 2 s.
				switch f.n {
				case 5, 20:
					f.cut()
					f.Restore()
				case 12, 30:
					f.cut()
					time.AfterFunc(2*time.Second, f.Restore)
				}
			})
			f.ends()
		})
		each(t, fmt.Sprintf("ADS-3 ADS-9 connections grow old, %d of %d at a time", tt.batch, tt.size), func(t *testing.T, v variant) {
			// Longer than the 5 s in which a resumed stream removes nothing, because the client may open more types.
			f := newFleet(t, v, tt.size, tt.batch, "--max-connection-age", "6s", "--max-connection-age-grace", "1s")
			f.paced(50, 250*time.Millisecond, f.replaces)
			f.ends()
		})
		each(t, fmt.Sprintf("ADS-3 ADS-9 50 commits while the connection is cut for 2 s, %d of %d at a time", tt.batch, tt.size), func(t *testing.T, v variant) {
			// A busy machine sees many commits at once, which remove much at once.
			f := newFleet(t, v, tt.size, tt.batch, "--allow-mass-delete")
			f.paced(70, 40*time.Millisecond, func() {
				switch f.replaces(); f.n {
				case 10:
					f.cut()
				case 60:
					f.Restore()
				}
			})
			f.ends()
		})
	}
}
