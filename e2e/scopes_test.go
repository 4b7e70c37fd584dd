package e2e

import (
	"net/http"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// A header of the request selects the scope, and so the routes. Envoy reads a SotW response as the
// list of all scopes.
func TestScopedRoutes(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-2 SUB-2 SOTW-8 DELTA-8 ADS-2 scopes change, go and return", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			scoped(w, "ingress")
			w.set(scope("first", "blue", "ingress"), scope("second", "green", "side"))
		})
		in := func(color string) caller {
			return asking(t, s.ingressPort, func(r *http.Request) { r.Header.Set("x-scope", color) })
		}
		s.ingress = in("blue")
		s.start(v)
		blue := loaded(t, in("blue"), nil)
		eventually(t, soon, "the other scope is there", in("green").gets(answer{"b", "1"}))
		eventually(t, soon, "others are not", in("red").fails("404"))

		s.commit("a new scope with new routes", func(w world) { w.set(scope("third", "red", "third"), routes("third", "3", "other")) })
		eventually(t, soon, "it is there", in("red").gets(answer{"b", "3"}))
		s.quiet()
		s.commit("a scope gets other routes", func(w world) { w.set(scope("second", "green", "third")) })
		eventually(t, soon, "the changes are active", in("green").gets(answer{"b", "3"}))
		s.quiet()
		s.commit("a scope deleted", func(w world) { w.drop(scope("third", "", "")) })
		eventually(t, grace+soon, "it is gone", in("red").fails("404"))
		s.quiet()
		s.commit("it returns", func(w world) { w.set(scope("third", "red", "side")) })
		eventually(t, soon, "it is there", in("red").gets(answer{"b", "1"}))
		s.quiet()
		blue.Unharmed(t)
		s.listenerChanges()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
		recorded(t, "envoy/SRDS "+v.String(), s.Since(0).About("SRDS"))
	})
}

// A request without names is answered even if there are no resources. Silence would hold Envoy's
// start for 15 s.
func TestNoScopedRoutes(t *testing.T) {
	t.Parallel()
	everywhere(t, "SOTW-8 DELTA-9 no scope is told at once", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) { scoped(w, "ingress") })
		s.boot(v)
		s.ingress = asking(t, s.ingressPort, func(r *http.Request) { r.Header.Set("x-scope", "blue") })
		eventually(t, prompt, "there is no scope", s.ingress.fails("404"))
		s.commit("a scope comes", func(w world) { w.set(scope("first", "blue", "ingress")) })
		eventually(t, prompt, "it is there", s.ingress.gets(answer{"a", "1"}))
	})
}

// scoped makes a listener choose its routes by the header x-scope.
func scoped(w world, name string) {
	w.manage(name, func(m *hcm.HttpConnectionManager) {
		m.RouteSpecifier = &hcm.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcm.ScopedRoutes{
			Name:            name,
			RdsConfigSource: ads(),
			ScopeKeyBuilder: &hcm.ScopedRoutes_ScopeKeyBuilder{Fragments: []*hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
				Type: &hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
					HeaderValueExtractor: &hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
						Name:        "x-scope",
						ExtractType: &hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{Index: 0},
					},
				},
			}}},
			ConfigSpecifier: &hcm.ScopedRoutes_ScopedRds{ScopedRds: &hcm.ScopedRds{ScopedRdsConfigSource: ads()}},
		}}
	})
}

// scope sends requests with x-scope color to the routes.
func scope(name, color, routes string) *route.ScopedRouteConfiguration {
	return &route.ScopedRouteConfiguration{
		Name: name, RouteConfigurationName: routes,
		Key: &route.ScopedRouteConfiguration_Key{Fragments: []*route.ScopedRouteConfiguration_Key_Fragment{{
			Type: &route.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: color},
		}}},
	}
}
