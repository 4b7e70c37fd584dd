package e2e

import (
	"testing"
	"time"

	mutation_rules "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// The configuration of an HTTP filter comes as its own resource.
func TestExtensions(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-4 SOTW-9 DELTA-8 DELTA-12 DELTA-16 a filter changes, goes and returns", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			marked(w, "ingress")
			w.set(marker("marker", "first"))
		})
		s.startAs(v, answer{"a", "first"})
		l := loaded(t, s.ingress, nil)
		p := s.commit("the filter changes", func(w world) { w.set(marker("marker", "second")) })
		eventually(t, soon, "the change is active", s.ingress.gets(answer{"a", "second"}))
		s.quiet()
		carries(t, "ECDS marker", s.Since(p).Responses())

		p = s.commit("a filter of another kind", func(w world) {
			w.set(&core.TypedExtensionConfig{Name: "marker", TypedConfig: pack(&router.Router{})})
		})
		s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("ECDS")) == 1 })
		s.quiet()
		if err := s.ingress.gets(answer{"a", "second"})(); err != nil {
			t.Error("with the last good filter:", err)
		}
		p = s.commit("the second again", func(w world) { w.set(marker("marker", "second")) })
		s.sees(p, soon, "an ACK", func(rs tap.Records) bool { return len(rs.ACKs("ECDS")) == 1 })
		s.quiet()
		l.Unharmed(t)

		s.commit("the filter deleted, other routes change", func(w world) {
			w.drop(marker("marker", ""))
			w.set(routes("side", "2", "other"))
		})
		eventually(t, soon, "the next change arrives", s.side.gets(answer{"b", "2"}))
		if v.delta() { // Envoy has no filter any more, nor a default
			eventually(t, grace+soon, "requests fail", s.ingress.fails("500"))
		} else if err := s.ingress.gets(answer{"a", "second"})(); err != nil {
			t.Error("Envoy cannot know:", err)
		}
		s.quiet()
		s.commit("the filter returns", func(w world) { w.set(marker("marker", "third")) })
		eventually(t, soon, "the change is active", s.ingress.gets(answer{"a", "third"}))
		s.quiet()
		s.listenerChanges()
		exactly(t, 1, "NACK", s.Since(0).NACKs())
		recorded(t, "envoy/ECDS "+v.String(), s.Since(0).About("ECDS"))
	})
}

// If Envoy 1.40 learns at its start that a filter does not exist, its initialization never ends.
// Without an answer it continues after 15 s, so the server answers later.
func TestMissingExtension(t *testing.T) {
	t.Parallel()
	t.Run("DELTA-7 a missing filter does not keep Envoy from starting", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, renamed, func(w world) { marked(w, "ingress") })
		s.Mark("envoy started")
		s.envoy = startEnvoy(t, "e2e", delta, s.Addr().Port)
		if took := eventually(t, 25*time.Second, "envoy is live", s.envoy.Live); took < 10*time.Second {
			t.Errorf("envoy was live after %v: it did not wait for the missing filter", took)
		}
		eventually(t, soon, "the other listener serves", s.side.gets(answer{"b", "1"}))
		eventually(t, soon, "this one has no filter", s.ingress.fails("500"))
		s.sees(0, 15*time.Second, "told in the end", func(rs tap.Records) bool { return len(removals(rs, "ECDS", "marker")) == 1 })
		s.commit("the filter comes", func(w world) { w.set(marker("marker", "first")) })
		eventually(t, soon, "the change is active", s.ingress.gets(answer{"a", "first"}))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// marked gives a listener the filter marker.
func marked(w world, name string) {
	w.manage(name, func(m *hcm.HttpConnectionManager) {
		m.HttpFilters = append([]*hcm.HttpFilter{{
			Name: "marker",
			ConfigType: &hcm.HttpFilter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{
				ConfigSource: ads(), TypeUrls: []string{pack(&mutation.HeaderMutation{}).GetTypeUrl()},
			}},
		}}, m.HttpFilters...)
	})
}

// marker is a filter that marks answers with the generation.
func marker(name, generation string) *core.TypedExtensionConfig {
	return &core.TypedExtensionConfig{Name: name, TypedConfig: pack(&mutation.HeaderMutation{Mutations: &mutation.Mutations{
		ResponseMutations: []*mutation_rules.HeaderMutation{{Action: &mutation_rules.HeaderMutation_Append{Append: &core.HeaderValueOption{
			Header:       &core.HeaderValue{Key: "x-generation", Value: generation},
			AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}}}},
	}})}
}
