package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// The virtual hosts of a route configuration are separate resources. Envoy subscribes to them by a
// request without names, in delta only.
func TestVirtualHosts(t *testing.T) {
	t.Parallel()
	among(t, "TYP-2 SUB-2 DELTA-8 DELTA-12 OND-4 virtual hosts change, go and return", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			w.set(emptyRoutes("ingress"), virtualHost("ingress", "a.example", "1", "backend"), virtualHost("ingress", "b.example", "1", "other"),
				virtualHost("unused", "c.example", "1", "other"))
		})
		at := func(host string) caller { return asking(t, s.ingressPort, func(r *http.Request) { r.Host = host }) }
		s.ingress = at("a.example")
		s.start(v)
		l := loaded(t, s.ingress, nil)
		eventually(t, soon, "the other host is there", at("b.example").gets(answer{"b", "1"}))
		eventually(t, soon, "that of other routes is not", at("c.example").fails("404"))

		p := s.commit("a new host", func(w world) { w.set(virtualHost("ingress", "d.example", "2", "other")) })
		eventually(t, soon, "it is there", at("d.example").gets(answer{"b", "2"}))
		s.quiet()
		carries(t, "VHDS ingress/d.example", s.Since(p).Responses())
		p = s.commit("a host changes", func(w world) { w.set(virtualHost("ingress", "b.example", "3", "backend")) })
		eventually(t, soon, "the change is active", at("b.example").gets(answer{"a", "3"}))
		s.quiet()
		carries(t, "VHDS ingress/b.example", s.Since(p).Responses())
		s.commit("a host deleted", func(w world) { w.drop(virtualHost("ingress", "d.example", "", "")) })
		eventually(t, grace+soon, "it is gone", at("d.example").fails("404"))
		s.quiet()
		s.commit("it returns", func(w world) { w.set(virtualHost("ingress", "d.example", "4", "other")) })
		eventually(t, soon, "it is there", at("d.example").gets(answer{"b", "4"}))
		s.quiet()
		p = s.commit("routes change, hosts do not", func(w world) {
			r := emptyRoutes("ingress")
			r.InternalOnlyHeaders = []string{"x-second"}
			w.set(r)
		})
		eventually(t, soon, "the changes are active", s.envoy.dumps("dynamic_route_configs", `"x-second"`))
		if err := at("d.example").gets(answer{"b", "4"})(); err != nil {
			t.Error("hosts stay:", err)
		}
		s.quiet()
		carries(t, "RDS ingress", s.Since(p).Responses())
		l.Unharmed(t)
		s.listenerChanges()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
		recorded(t, "envoy/VHDS "+v.String(), s.Since(0).About("VHDS"))
	}, delta, ownDelta)
}

// Envoy refuses each response after which a domain would be in two virtual hosts, and keeps the earlier ones (XDS0401).
func TestDomainInTwoVirtualHosts(t *testing.T) {
	t.Parallel()
	twice := virtualHost("ingress", "c.example", "9", "other")
	var inner route.VirtualHost
	if err := twice.GetResource().UnmarshalTo(&inner); err != nil {
		t.Fatal(err)
	}
	inner.Domains = []string{"a.example"}
	twice.Resource = pack(&inner)
	a, b := virtualHost("ingress", "a.example", "1", "backend"), virtualHost("ingress", "b.example", "1", "other")
	refusal := func(s *site, p tap.Point) func() error {
		return func() error {
			for _, r := range s.Since(p).NACKs() {
				if r.Type == "VHDS" && strings.Contains(r.NACK, "Only unique values for domains are permitted. Duplicate entry of domain a.example in route ingress") {
					return nil
				}
			}
			return errors.New("no refusal")
		}
	}
	t.Run("SAFE-3 a running Envoy keeps its virtual hosts", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, renamed, func(w world) { w.set(emptyRoutes("ingress"), a, b) })
		s.ingress = asking(t, s.ingressPort, func(r *http.Request) { r.Host = "a.example" })
		s.start(delta)
		p := s.commit("a domain twice", func(w world) { w.set(twice) })
		eventually(t, soon, "Envoy refuses", refusal(s, p))
		if err := s.ingress.gets(answer{"a", "1"})(); err != nil {
			t.Error(err)
		}
	})
	t.Run("SAFE-3 a starting Envoy has none of them", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, renamed, func(w world) { w.set(emptyRoutes("ingress"), a, b, twice) })
		s.ingress = asking(t, s.ingressPort, func(r *http.Request) { r.Host = "b.example" })
		s.boot(delta)
		eventually(t, soon, "Envoy refuses", refusal(s, 0))
		eventually(t, soon, "no host is there", s.ingress.fails("404"))
	})
}

func TestNoVirtualHosts(t *testing.T) {
	t.Parallel()
	// Without any answer, Envoy's start would wait 15 s.
	among(t, "OND-4 no host is told at once", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) { w.set(emptyRoutes("ingress")) })
		s.boot(v)
		eventually(t, prompt, "there is no host", s.ingress.fails("404"))
		s.commit("a host comes", func(w world) { w.set(virtualHost("ingress", "*", "1", "backend")) })
		eventually(t, prompt, "it is there", s.ingress.gets(answer{"a", "1"}))
	}, delta, ownDelta)

	// Envoy 1.40 compares removed names with the names inside the virtual hosts, not with resource
	// names.
	t.Run("DELTA-16 a host by another name stays", func(t *testing.T) {
		t.Parallel()
		named := virtualHost("ingress", "a.example", "1", "backend")
		var inner route.VirtualHost
		if err := named.GetResource().UnmarshalTo(&inner); err != nil {
			t.Fatal(err)
		}
		inner.Name = "a"
		named.Resource = pack(&inner)
		s := newSite(t, renamed, func(w world) {
			w.set(emptyRoutes("ingress"), named, virtualHost("ingress", "b.example", "1", "other"), virtualHost("ingress", "c.example", "1", "other"))
		})
		at := func(host string) caller { return asking(t, s.ingressPort, func(r *http.Request) { r.Host = host }) }
		s.ingress = at("a.example")
		s.start(delta)
		p := s.commit("both deleted", func(w world) { w.drop(named, virtualHost("ingress", "b.example", "", "")) })
		eventually(t, soon, "one is gone", at("b.example").fails("404"))
		s.quiet()
		carries(t, "VHDS -ingress/a.example, VHDS -ingress/b.example", s.Since(p).Responses())
		if err := s.ingress.gets(answer{"a", "1"})(); err != nil {
			t.Error("Envoy removes virtual hosts by the names of their resources: files.md need not warn any more:", err)
		}
	})
}

// emptyRoutes returns a route configuration with its virtual hosts from VHDS.
func emptyRoutes(name string) *route.RouteConfiguration {
	return &route.RouteConfiguration{Name: name, Vhds: &route.Vhds{ConfigSource: ads()}}
}

// virtualHost sends requests for a host to the cluster, and marks the answer
// with the generation.
func virtualHost(routeConfiguration, host, generation, to string) *discovery.Resource {
	r := routes("", generation, to)
	h := r.VirtualHosts[0]
	name := routeConfiguration + "/" + host
	h.Name, h.Domains, h.ResponseHeadersToAdd = name, []string{host}, r.ResponseHeadersToAdd
	return &discovery.Resource{Name: name, Resource: pack(h)}
}
