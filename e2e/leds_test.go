package e2e

import (
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// The endpoints of a locality come one by one: Envoy asks for their collection,
// in delta only.
func TestLocalityEndpoints(t *testing.T) {
	t.Parallel()
	among(t, "TYP-4 NAME-2 DELTA-8 DELTA-12 WARM-1 endpoints come one by one, and go", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			w.set(collection("backend"), member("backend", "one", portOf(w, "backend")))
		})
		s.start(v)
		l := loaded(t, s.ingress, nil)
		p := s.commit("an endpoint moves", func(w world) { w.set(member("backend", "one", s.b.port)) })
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		s.quiet()
		carries(t, "LEDS "+locators+"backend/one", s.Since(p).Responses())
		s.commit("another comes in its place", func(w world) {
			w.drop(member("backend", "one", 0))
			w.set(member("backend", "two", s.a.port))
		})
		eventually(t, soon, "it is there", s.ingress.gets(answer{"a", "1"}))
		eventually(t, soon, "it is alone", s.envoy.hasEndpoints("backend", 1))
		s.quiet()
		l.Unharmed(t)

		s.commit("all endpoints go", func(w world) { w.drop(member("backend", "two", 0)) })
		eventually(t, grace+soon, "there is none", s.ingress.fails("503"))
		s.quiet()
		s.commit("one returns", func(w world) { w.set(member("backend", "one", s.b.port)) })
		eventually(t, soon, "it is there", s.ingress.gets(answer{"b", "1"}))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
		recorded(t, "envoy/LEDS "+v.String(), s.Since(0).About("LEDS"))
	}, delta, ownDelta)

	// On a per-type stream the new cluster subscribes to the collection again. On the
	// aggregated stream Envoy sends no request: without the endpoints it waits 15 s and continues
	// without any endpoint. So the server sends the assignment and the endpoints again.
	among(t, "WARM-1 WARM-2 a cluster of theirs changes in place", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			w.set(collection("backend"), member("backend", "one", portOf(w, "backend")))
		})
		s.start(v)
		l := loaded(t, s.ingress, nil)
		s.commit("the cluster changes", func(w world) { w.set(edsCluster("backend", 2*time.Second)) })
		eventually(t, soon, "the change is active", s.envoy.inForce("backend", "2s"))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	}, delta, ownDelta)

	among(t, "DELTA-7 no endpoint is told at once", func(t *testing.T, v variant) {
		s := newSite(t, sourcedBy(v, renamed), func(w world) { w.set(collection("backend")) })
		s.boot(v)
		eventually(t, prompt, "there is none", s.ingress.fails("503"))
		s.commit("one comes", func(w world) { w.set(member("backend", "one", s.a.port)) })
		eventually(t, prompt, "it is there", s.ingress.gets(answer{"a", "1"}))
	}, delta, ownDelta)
}

const locators = "xdstp:///envoy.config.endpoint.v3.LbEndpoint/"

// collection is an assignment whose endpoints are the members of a collection.
func collection(name string) *endpoint.ClusterLoadAssignment {
	a := assignment(name)
	a.Endpoints[0].LbConfig = &endpoint.LocalityLbEndpoints_LedsClusterLocalityConfig{
		LedsClusterLocalityConfig: &endpoint.LedsClusterLocalityConfig{LedsConfig: ads(), LedsCollectionName: locators + name + "/*"},
	}
	return a
}

// portOf is where the only endpoint of an assignment is.
func portOf(w world, name string) int {
	a := w["ClusterLoadAssignment/"+name].(*endpoint.ClusterLoadAssignment)
	return int(a.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetPortValue())
}

// member is an endpoint in the collection.
func member(collection, name string, port int) *discovery.Resource {
	return &discovery.Resource{
		Name:     locators + collection + "/" + name,
		Resource: pack(assignment("", port).GetEndpoints()[0].GetLbEndpoints()[0]),
	}
}
