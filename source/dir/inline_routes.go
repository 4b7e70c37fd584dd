package dir

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/xds"
)

const connectionManager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// requiredHint explains a reference in [requiredClusters] if the bootstrap is unknown.
const requiredHint = "Envoy refuses the resource, unless the bootstrap has the cluster"

// requiredClusters returns the clusters without which Envoy refuses a resource, with the path of a field that
// names each. These are the clusters of routes: "if the route table is statically defined via the route_config
// option", validate_clusters is true by default. The same holds for routes inside a scope. Routes from RDS have
// the default false. Envoy checks no route inside a matcher. gRPC clients, which use api_listener, check none.
func requiredClusters(types *Types, typ *xds.Type, m protoreflect.Message) map[string]string {
	w := requirements{types: types, clusters: map[string]string{}}
	switch {
	case typ.Is(xds.Listener):
		w.each(m, "filter_chains", "", w.chain)
		w.chain(get(m, "default_filter_chain").Message(), "default_filter_chain")
	case typ.Is(xds.Route):
		w.routes(m, "", false)
	case typ.Is(xds.ScopedRoute):
		w.scope(m, "")
	}
	return w.clusters
}

// requirements collects the result of [requiredClusters].
type requirements struct {
	types    *Types
	clusters map[string]string
}

// join returns the path of a field of the message at path.
func join(path, field string) string { return strings.TrimPrefix(path+"."+field, ".") }

// each calls f for the messages in a list.
func (w *requirements) each(m protoreflect.Message, field protoreflect.Name, path string, f func(m protoreflect.Message, path string)) {
	list := get(m, field).List()
	for i := range list.Len() {
		f(list.Get(i).Message(), join(path, fmt.Sprintf("%s[%d]", field, i)))
	}
}

// name records the cluster that a field names.
func (w *requirements) name(m protoreflect.Message, field protoreflect.Name, path string) {
	name := get(m, field).String()
	if _, known := w.clusters[name]; name != "" && !known {
		w.clusters[name] = join(path, string(field))
	}
}

// mirrors records the clusters of mirror policies, and reports whether there is a policy.
func (w *requirements) mirrors(m protoreflect.Message, path string) (found bool) {
	w.each(m, "request_mirror_policies", path, func(m protoreflect.Message, path string) {
		found = true
		w.name(m, "cluster", path)
	})
	return found
}

func (w *requirements) chain(chain protoreflect.Message, path string) {
	w.each(chain, "filters", path, func(filter protoreflect.Message, path string) {
		config := get(filter, "typed_config").Message()
		typ, err := w.types.FindMessageByURL(get(config, "type_url").String())
		if err != nil || typ.Descriptor().FullName() != connectionManager {
			return
		}
		m := typ.New()
		if (proto.UnmarshalOptions{Resolver: w.types}).Unmarshal(get(config, "value").Bytes(), m.Interface()) != nil {
			return
		}
		path += ".typed_config"
		w.routes(get(m, "route_config").Message(), join(path, "route_config"), true)
		scopes := get(get(m, "scoped_routes").Message(), "scoped_route_configurations_list").Message()
		w.each(scopes, "scoped_route_configurations", join(path, "scoped_routes.scoped_route_configurations_list"), w.scope)
	})
}

func (w *requirements) scope(scope protoreflect.Message, path string) {
	w.routes(get(scope, "route_configuration").Message(), join(path, "route_configuration"), true)
}

// routes records the clusters of a route configuration; byDefault is the default of validate_clusters.
func (w *requirements) routes(config protoreflect.Message, path string, byDefault bool) {
	validate := byDefault
	if field := config.Descriptor().Fields().ByName("validate_clusters"); config.Has(field) {
		validate = get(config.Get(field).Message(), "value").Bool()
	}
	if !validate {
		return
	}
	w.each(config, "virtual_hosts", path, func(host protoreflect.Message, at string) {
		w.each(host, "routes", at, func(route protoreflect.Message, to string) {
			to = join(to, "route")
			m := get(route, "route").Message()
			w.name(m, "cluster", to)
			w.each(get(m, "weighted_clusters").Message(), "clusters", join(to, "weighted_clusters"), func(m protoreflect.Message, path string) { w.name(m, "name", path) })
			// "Specifying this at [a lower] level will override any policies configured" above it. Envoy
			// also checks the upper policies for a route without "route", such as a redirect.
			_ = w.mirrors(m, to) || w.mirrors(host, at) || w.mirrors(config, path)
		})
	})
}

// A requirer finds the dangling references without which Envoy refuses a resource. References of one resource
// follow each other, so it is decoded once.
type requirer struct {
	source   *Source
	of       *xds.Resource     // decoded last; nil: none yet
	clusters map[string]string // see requiredClusters
}

// path returns the path of a field that names the cluster of a reference, if Envoy refuses the resource
// without that cluster; "" otherwise.
func (r *requirer) path(d dangling) string {
	if !d.to.Type.Is(xds.Cluster) || !mayViolate(d.from) {
		return ""
	}
	if r.of != d.from.Resource {
		r.of, r.clusters = d.from.Resource, nil
		if m, err := r.source.message(d.from.Type.URL, d.from.Body); err == nil {
			r.clusters = requiredClusters(r.source.types, d.from.Type, m.ProtoReflect())
		}
	}
	return r.clusters[d.to.Name]
}

// splitRequired makes an error of each missing cluster without which Envoy refuses a resource, if the bootstraps
// of the clients are known. It returns the others as warnings.
func (s *Source) splitRequired(r *reach, missing []dangling) (refused, doubtful []dangling) {
	required, complete := requirer{source: s}, map[string]bool{}
	for _, d := range missing {
		group := cmp.Or(d.Group, groups.Default)
		if _, known := complete[group]; !known {
			complete[group] = r.complete(group)
		}
		d.path = required.path(d)
		switch {
		case d.path != "" && complete[group]:
			d.Warning, d.Code = false, findings.UnknownCluster
			if d.Hint == hints[xds.Cluster.URL] {
				d.Hint = "add the cluster; Envoy does not look for it with validate_clusters: false"
			}
			refused = append(refused, d)
			continue
		case d.path != "" && d.Hint == hints[xds.Cluster.URL]:
			d.Hint = requiredHint
		}
		doubtful = append(doubtful, d)
	}
	return refused, doubtful
}

// required returns an error for each missing cluster without which Envoy refuses a resource, at the place of the
// reference. It returns none if the bootstraps of the clients are unknown.
func (s *Source) required(r *reach) (refused []dangling) {
	if !r.bootstraps.mayComplete() {
		return nil
	}
	found := r.dangling(nil)
	s.suggest(r, found)
	refused, _ = s.splitRequired(r, found)
	at := newPlacer(s)
	for i, d := range refused[:s.shown(len(refused))] {
		refused[i] = at.reference(d)
	}
	return refused
}

// checkRequired blames groups for the errors of [Source.required]. A rejected group keeps its content, and is not
// blamed for it again.
func (p *plan) checkRequired() {
	if p.checking || p.failed() { // a check reports them itself; with other errors a file may have the cluster
		return
	}
	rejected := maps.Clone(p.rejections)
	for _, d := range p.required(newReach(&p.layout, p.contents(), p.bootstraps)) {
		if group := cmp.Or(d.Group, groups.Default); rejected[group] == nil {
			p.blame(group, d.Problem)
		}
	}
}
