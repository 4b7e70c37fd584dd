package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Envoy's node: 516 extensions need 61 KB, which Envoy repeats in each message unless its bootstrap
// prevents that.
func TestNode(t *testing.T) {
	t.Parallel()
	among(t, "SUB-5 SOTW-4 the node is in the first request or in each", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		s.nextChange()
		s.refusedOnce(s.commit("bad listener", func(w world) { w.set(brokenListener("ingress", s.ingressPort, "ingress")) }), "LDS")
		recorded(t, "envoy/once "+variant{api: v.api, own: v.own}.String(), s.Since(0))
		if !v.own {
			s.kill()
			s.back(s.restart())
		}
		l.Unharmed(t)
		first := map[int]bool{}
		for _, r := range s.Since(0).Requests() {
			if has := r.Node != nil; has != (!v.once || !first[r.Stream]) {
				t.Errorf("with the node: %v\n%v", has, r)
			}
			first[r.Stream] = true
		}
	}, onceSotw, onceDelta, onceOwnSotw, onceOwnDelta)

	t.Run("SUB-5 who Envoy says it is", func(t *testing.T) {
		t.Parallel()
		s := startSite(t, delta)
		said := map[string]int{}
		for _, r := range s.Since(0).Requests() {
			said[announced(r.Node)]++
		}
		if len(said) != 1 {
			t.Errorf("%d nodes", len(said))
		}
		golden(t, "envoy/node", strings.Join(slices.Sorted(maps.Keys(said)), "\n"))
	})
}

// announced is what a node says of its client, without the long lists.
func announced(n *core.Node) string {
	v := n.GetUserAgentBuildVersion().GetVersion()
	return fmt.Sprintf("user_agent_name: %s\nuser_agent_version: %q\nuser_agent_build_version: %d.%d.%d\nclient_features: %q\nextensions: %d\n",
		n.GetUserAgentName(), n.GetUserAgentVersion(), v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch(), n.GetClientFeatures(), len(n.GetExtensions()))
}
