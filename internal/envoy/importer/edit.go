package importer

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// edit changes the resources that leave the bootstrap so that they work without it.
func (im *importer) edit() {
	for _, e := range slices.Clone(im.entries) { // addExtracted appends to it
		if e.stays != "" || e.dropped {
			continue
		}
		im.requestSecrets(e)
		switch {
		case im.SplitRoutes && e.typ.Is(xds.Listener):
			im.splitRoutes(e)
		case im.EDS && e.typ.Is(xds.Cluster):
			im.splitEndpoints(e)
		}
	}
}

// requestSecrets adds a ConfigSource to references to secrets that were in the bootstrap. A reference
// by name alone finds only secrets of the bootstrap.
func (im *importer) requestSecrets(e *entry) {
	e.walk(im.Types, func(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
		if md.FullName() != secretConfig || child(n, md, "sds_config") != nil {
			return
		}
		if name := child(n, md, "name"); name != nil && im.isServed(xds.Secret, name.Value) {
			put(n, md, "sds_config", fromServer(nil))
			e.note("reads secret %q from the server (ads)", name.Value)
		}
	})
}

// splitRoutes turns the route configurations inside a listener into resources.
func (im *importer) splitRoutes(e *entry) {
	e.walk(im.Types, func(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
		if md.FullName() != manager {
			return
		}
		routes := take(n, md, "route_config")
		if routes == nil {
			return
		}
		in := im.descriptor(xds.Route)
		own := ""
		if name := take(routes, in, "name"); name != nil {
			own = name.Value
		}
		name := im.routeName(e, own, routes)
		routes.Style &^= yaml.FlowStyle
		if im.find(xds.Route, name) == nil { // else an equal one exists
			lead(routes, "name", text(name))
			lead(routes, "@type", text(xds.Route.URL))
			r := &entry{source: e.source, typ: xds.Route, node: routes, name: name}
			r.note("was in listener %q", e.name)
			if own != name && own != "" {
				r.note("was named %q", own)
			}
			im.addExtracted(r)
		}
		put(n, md, "rds", mapping("route_config_name", text(name), "config_source", fromServer(nil)))
		e.note("reads routes %q from the server (ads)", name)
	})
}

// routeName returns a name for an inline route configuration. Many are named local_route, so routes
// that differ from an earlier one of the same name get the name of their listener.
func (im *importer) routeName(e *entry, own string, routes *yaml.Node) string {
	same := func(name string) bool {
		other := im.find(xds.Route, name)
		return other == nil || bytes.Equal(im.encoded(other.node), im.encoded(routes))
	}
	if own != "" && same(own) {
		return own
	}
	return free(e.name, func(name string) bool { return !same(name) })
}

// encoded returns the bytes of a route configuration without its name.
func (im *importer) encoded(routes *yaml.Node) []byte {
	md := im.descriptor(xds.Route)
	m := part(im.Types, routes, md)
	m.Clear(md.Fields().ByName("name"))
	b, err := envoy.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("importer: routes that were read: %v", err))
	}
	return b
}

// splitEndpoints turns the endpoints of a STATIC cluster into a resource. Other clusters may have host
// names that Envoy resolves, which EDS does not allow.
func (im *importer) splitEndpoints(e *entry) {
	md := im.descriptor(xds.Cluster)
	m := part(im.Types, e.node, md)
	if field(m, "type").Enum() != 0 || m.Has(md.Fields().ByName("cluster_type")) {
		return
	}
	load := take(e.node, md, "load_assignment")
	if load == nil {
		return
	}
	in := im.descriptor(xds.Endpoint)
	// "Optional alternative to cluster name to present to EDS": not needed here.
	take(load, in, "cluster_name")
	lead(load, "cluster_name", text(e.name))
	lead(load, "@type", text(xds.Endpoint.URL))
	load.Style &^= yaml.FlowStyle
	put(e.node, md, "type", text("EDS"))
	put(e.node, md, "eds_cluster_config", mapping("eds_config", fromServer(nil)))
	e.note("reads its endpoints from the server (ads)")
	r := &entry{source: e.source, typ: xds.Endpoint, node: load, name: e.name}
	r.note("were in cluster %q", e.name)
	im.addExtracted(r)
}
