package export

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

// fold moves resources that Envoy cannot read from a file into the resource that refers to them.
func (w *rewriter) fold(m protoreflect.Message) (bool, error) {
	switch m.Descriptor().FullName() {
	case "envoy.config.route.v3.RouteConfiguration":
		return w.virtualHosts(m)
	case "envoy.config.route.v3.ScopedRouteConfiguration":
		return w.scope(m)
	case "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes":
		// The source applies to the routes of all scopes, but a file has one resource. So each scope
		// contains its routes.
		for _, s := range refs.Sources(m) {
			if s.Field == "rds_config_source" {
				unset(m, s.Field)
				return true, nil
			}
		}
	case "envoy.config.endpoint.v3.LocalityLbEndpoints":
		return w.localityEndpoints(m)
	}
	return false, nil
}

// Envoy: "vhds: only 'DELTA_GRPC' or 'ADS' (which uses Delta xDS) is supported as a config source"
func (w *rewriter) virtualHosts(m protoreflect.Message) (bool, error) {
	if !has(m, "vhds") {
		return false, nil
	}
	unset(m, "vhds")
	return true, w.append(m, "virtual_hosts", xds.VirtualHost, w.hosts[get(m, "name").String()+"/*"])
}

// scope puts the routes of a scope into it. If the routes are missing, the scope answers 404, as with a
// server that lacks them. Without a source for them, Envoy would reject all scopes.
func (w *rewriter) scope(m protoreflect.Message) (bool, error) {
	name := get(m, "route_configuration_name").String()
	if name == "" {
		return false, nil
	}
	unset(m, "route_configuration_name")
	unset(m, "route_configuration")
	routes := mutable(m, "route_configuration")
	set(routes, "name", protoreflect.ValueOfString(name))
	r := w.view.Table(xds.Route).Lookup(name)
	if r == nil {
		w.warn("refers to %s %q, which does not exist", xds.Route, name)
		return true, nil
	}
	return true, w.read(routes, xds.Route, r)
}

// localityEndpoints puts a collection of endpoints into the assignment that refers to it, because LEDS
// needs incremental streams.
func (w *rewriter) localityEndpoints(m protoreflect.Message) (bool, error) {
	if !has(m, "leds_cluster_locality_config") {
		return false, nil
	}
	collection := get(get(m, "leds_cluster_locality_config").Message(), "leds_collection_name").String()
	unset(m, "leds_cluster_locality_config")
	return true, w.append(m, "lb_endpoints", xds.LbEndpoint, byName(w.view.Table(xds.LbEndpoint).Aliased(collection).All()))
}

// append decodes resources and appends them to a list.
func (w *rewriter) append(m protoreflect.Message, list protoreflect.Name, t *xds.Type, resources []*xds.Resource) error {
	for _, r := range resources {
		if err := w.read(m.Mutable(m.Descriptor().Fields().ByName(list)).List().AppendMutable().Message(), t, r); err != nil {
			return err
		}
	}
	return nil
}

// read decodes a resource into a message.
func (w *rewriter) read(m protoreflect.Message, t *xds.Type, r *xds.Resource) error {
	if err := (proto.UnmarshalOptions{Resolver: w.Types}).Unmarshal(r.Body, m.Interface()); err != nil {
		return fmt.Errorf("%s %q: %w", t, r.Name, err)
	}
	return nil
}
