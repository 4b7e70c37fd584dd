package export

import (
	"fmt"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/refs"
	"github.com/chancery-xds/chancery/xds"
)

// fold makes resources that Envoy cannot have from a file part of the one that
// refers to them.
func (w *rewriter) fold(m proto.Message) (bool, error) {
	switch m := m.(type) {
	case *routev3.RouteConfiguration:
		return w.virtualHosts(m)
	case *routev3.ScopedRouteConfiguration:
		return w.scope(m)
	case *hcmv3.ScopedRoutes:
		// One source for the routes of all scopes, where a file has one resource:
		// the scopes have their routes in them.
		for _, s := range refs.Sources(m.ProtoReflect()) {
			if s.Field == "rds_config_source" {
				m.RdsConfigSource = nil
				return true, nil
			}
		}
	case *endpointv3.LocalityLbEndpoints:
		return w.localityEndpoints(m)
	}
	return false, nil
}

// "vhds: only 'DELTA_GRPC' or 'ADS' (which uses Delta xDS) is supported as a
// config source", Envoy says.
func (w *rewriter) virtualHosts(m *routev3.RouteConfiguration) (bool, error) {
	if m.GetVhds() == nil {
		return false, nil
	}
	m.Vhds = nil
	for _, r := range w.hosts[m.GetName()+"/*"] {
		host := &routev3.VirtualHost{}
		if err := proto.Unmarshal(r.Body, host); err != nil {
			return true, fmt.Errorf("VHDS %q: %w", r.Name, err)
		}
		m.VirtualHosts = append(m.VirtualHosts, host)
	}
	return true, nil
}

// scope puts the routes of a scope into it. Without any it answers 404, as it
// does while a server has none: without a source for them Envoy would refuse
// all scopes.
func (w *rewriter) scope(m *routev3.ScopedRouteConfiguration) (bool, error) {
	name := m.GetRouteConfigurationName()
	if name == "" {
		return false, nil
	}
	m.RouteConfigurationName, m.RouteConfiguration = "", &routev3.RouteConfiguration{Name: name}
	r := w.view.Table(xds.Route).Lookup(name)
	if r == nil {
		w.warn("refers to %s %q, which there is not", xds.Route, name)
		return true, nil
	}
	if err := proto.Unmarshal(r.Body, m.RouteConfiguration); err != nil {
		return true, fmt.Errorf("%s %q: %w", xds.Route, name, err)
	}
	return true, nil
}

// localityEndpoints puts a collection of endpoints into the assignment that
// refers to it: LEDS is for incremental streams only.
func (w *rewriter) localityEndpoints(m *endpointv3.LocalityLbEndpoints) (bool, error) {
	leds := m.GetLedsClusterLocalityConfig()
	if leds == nil {
		return false, nil
	}
	m.LbConfig = nil
	for _, r := range byName(w.view.Table(xds.LbEndpoint).Aliased(leds.GetLedsCollectionName()).All()) {
		endpoint := &endpointv3.LbEndpoint{}
		if err := proto.Unmarshal(r.Body, endpoint); err != nil {
			return true, fmt.Errorf("LEDS %q: %w", r.Name, err)
		}
		m.LbEndpoints = append(m.LbEndpoints, endpoint)
	}
	return true, nil
}
