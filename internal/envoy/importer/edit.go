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

// edit changes what leaves the bootstrap so that it works without.
func (im *importer) edit() {
	for _, e := range slices.Clone(im.entries) { // it grows
		if e.stays != "" || e.dropped {
			continue
		}
		im.askSecrets(e)
		switch {
		case im.SplitRoutes && e.typ.Is(xds.Listener):
			im.splitRoutes(e)
		case im.EDS && e.typ.Is(xds.Cluster):
			im.splitEndpoints(e)
		}
	}
}

// askSecrets has the server asked for secrets that stood in the bootstrap: a name alone is
// that of one there.
func (im *importer) askSecrets(e *entry) {
	e.walk(im.Types, func(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
		if md.FullName() != secretConfig || child(n, md, "sds_config") != nil {
			return
		}
		if name := child(n, md, "name"); name != nil && im.serves(xds.Secret, name.Value) {
			put(n, md, "sds_config", fromServer(nil))
			e.note("reads secret %q from the server (ads)", name.Value)
		}
	})
}

// splitRoutes makes resources of the route configurations in a listener.
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
		if im.find(xds.Route, name) == nil { // else it is the same
			lead(routes, "name", text(name))
			lead(routes, "@type", text(xds.Route.URL))
			r := &entry{source: e.source, typ: xds.Route, node: routes, name: name}
			r.note("was in listener %q", e.name)
			if own != name && own != "" {
				r.note("was named %q", own)
			}
			im.grow(r)
		}
		put(n, md, "rds", mapping("route_config_name", text(name), "config_source", fromServer(nil)))
		e.note("reads routes %q from the server (ads)", name)
	})
}

// routeName returns the name of routes without name. Many call theirs local_route: what
// is not the same gets the name of its listener.
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

// encoded returns what is in routes, but for their name.
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

// splitEndpoints makes a resource of the endpoints of a STATIC cluster. Others have names
// for Envoy to resolve, which EDS does not.
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
	// "Optional alternative to cluster name to present to EDS": it is not needed.
	take(load, in, "cluster_name")
	lead(load, "cluster_name", text(e.name))
	lead(load, "@type", text(xds.Endpoint.URL))
	load.Style &^= yaml.FlowStyle
	put(e.node, md, "type", text("EDS"))
	put(e.node, md, "eds_cluster_config", mapping("eds_config", fromServer(nil)))
	e.note("reads its endpoints from the server (ads)")
	r := &entry{source: e.source, typ: xds.Endpoint, node: load, name: e.name}
	r.note("were in cluster %q", e.name)
	im.grow(r)
}
