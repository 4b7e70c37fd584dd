package clients

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/xds"
)

// Clients are counted by agent, most clients first. The largest responses and the most subscribed names come first, and
// a list has at most as many as the caller asks for.
func TestFleet(t *testing.T) {
	within(t, "fleet", func(w *testServer) {
		w.put(xds.Cluster, "a=xxxx", "b")
		old := envoy("edge-3")
		old.UserAgentVersion = "1.37.1"
		for _, n := range []xds.Node{envoy("edge-1"), envoy("edge-2"), old} {
			c := w.client(xds.Delta, n)
			c.Subscribe(xds.Cluster, "a", "b")
			r := c.Expect(xds.Cluster, "a", "b")
			if n.ID == "edge-1" {
				c.NACK(r, "no")
			} else {
				c.ACK(r)
			}
			if n.ID == "edge-2" {
				c.Subscribe(xds.Endpoint, "x", "y", "z")
			}
		}
		w.states()
		agents, responses, names := w.Fleet(2)
		got := ""
		for _, a := range agents {
			got += fmt.Sprintf("%s %d nacked %d; ", a.Agent, a.Clients.Connected, a.Clients.By[api.Nacked])
		}
		for _, l := range append(responses, names...) {
			got += fmt.Sprintf("%s %s %d %d %t; ", l.Node, l.Type, l.Resources, l.Names, l.Bytes > 0)
		}
		if want := "envoy 1.40.0 2 nacked 1; envoy 1.37.1 1 nacked 0; edge-1 CDS 2 2 true; edge-2 CDS 2 2 true; edge-2 EDS 0 3 true; edge-1 CDS 2 2 true; "; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for agent, want := range map[string]int{"envoy 1.40.0": 2, "envoy 1.37.1": 1, "": 0} {
			if n := w.Clients(Filter{All: true, Agent: &agent}).Total; n != want {
				t.Errorf("%q: %d clients, want %d", agent, n, want)
			}
		}
	})
}

// A page of a list has the same clients as this part of the whole list.
func TestLeading(t *testing.T) {
	numbers := rand.New(rand.NewPCG(1, 2))
	for size := range 40 {
		all := make([]int, size)
		for i := range all {
			all[i] = numbers.IntN(20)
		}
		sorted := slices.Sorted(slices.Values(all))
		for n := range size + 1 {
			if got := leading(slices.Clone(all), n, cmp.Compare[int]); !slices.Equal(got, sorted[:n]) {
				t.Fatalf("the first %d of %v: %v", n, all, got)
			}
		}
	}
}
