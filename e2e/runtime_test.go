package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// A route sends the share of requests that the runtime sets to the cluster other.
func TestRuntime(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-2 SOTW-9 SOTW-11 DELTA-8 DELTA-12 runtime changes, goes and returns", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			w.set(splitRoutes("ingress"), layer("layer", map[string]any{"e2e.split": 0}))
		})
		s.start(v, runtimeLayer(v, "layer"))
		l := loaded(t, s.ingress, nil)
		eventually(t, soon, "the layer is there", s.envoy.runtime("e2e.split", "0"))

		p := s.commit("all to other", func(w world) { w.set(layer("layer", map[string]any{"e2e.split": 100})) })
		eventually(t, soon, "the value is there", s.envoy.runtime("e2e.split", "100"))
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		s.quiet()
		carries(t, "RTDS layer", s.Since(p).Responses())

		s.commit("runtime deleted, other routes change", func(w world) {
			w.drop(layer("layer", nil))
			w.set(routes("side", "2", "other"))
		})
		eventually(t, soon, "the next change arrives", s.side.gets(answer{"b", "2"}))
		if v.delta() { // Envoy empties the layer
			eventually(t, grace+soon, "traffic moves back", s.ingress.gets(answer{"a", "1"}))
			eventually(t, soon, "the value is gone", s.envoy.runtime("e2e.split", ""))
		} else if err := s.envoy.runtime("e2e.split", "100")(); err != nil {
			t.Error("Envoy cannot know:", err)
		}
		s.quiet()
		s.commit("runtime back", func(w world) {
			w.set(layer("layer", map[string]any{"e2e.split": 100, "e2e.more": "yes"}))
		})
		eventually(t, soon, "the value is there", s.envoy.runtime("e2e.more", "yes"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
		recorded(t, "envoy/RTDS "+v.String(), s.Since(0).About("RTDS"))
	})

	among(t, "DELTA-7 a missing runtime is told at once", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) { w.set(splitRoutes("ingress")) })
		s.boot(v, runtimeLayer(v, "layer"))
		s.commit("the runtime comes", func(w world) { w.set(layer("layer", map[string]any{"e2e.split": 100})) })
		eventually(t, prompt, "the change is active", s.ingress.gets(answer{"b", "1"}))
	}, delta, ownDelta)
}

// layer is a runtime.
func layer(name string, values map[string]any) *runtime.Runtime {
	s, err := structpb.NewStruct(values)
	if err != nil {
		panic(err)
	}
	return &runtime.Runtime{Name: name, Layer: s}
}

// runtimeLayer makes Envoy get a layer of its runtime from the server.
func runtimeLayer(v variant, name string) func(bootstrap) {
	return func(b bootstrap) {
		b["layered_runtime"] = map[string]any{"layers": []any{
			map[string]any{"name": name, "rtds_layer": map[string]any{"name": name, "rtds_config": v.source()}},
		}}
	}
}

// splitRoutes sends requests to backend, and the share e2e.split of the runtime to other.
func splitRoutes(name string) *route.RouteConfiguration {
	r := routes(name, "1", "backend")
	share := routes(name, "1", "other").VirtualHosts[0].Routes[0]
	share.Match.RuntimeFraction = &core.RuntimeFractionalPercent{
		DefaultValue: &envoytype.FractionalPercent{}, RuntimeKey: "e2e.split",
	}
	r.VirtualHosts[0].Routes = append([]*route.Route{share}, r.VirtualHosts[0].Routes...)
	return r
}

// runtime is a condition: a key of the runtime has that value.
func (e *envoy) runtime(key, want string) func() error {
	return func() error {
		var d struct {
			Entries map[string]struct {
				Final string `json:"final_value"`
			}
		}
		b, err := e.Get("/runtime")
		if err == nil {
			err = json.Unmarshal(b, &d)
		}
		if got := d.Entries[key].Final; err == nil && got != want {
			err = fmt.Errorf("%s is %q", key, got)
		}
		return err
	}
}
