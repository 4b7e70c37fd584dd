package dir

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

const connectionManager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// requiredHint explains a reference in [requiredClusters] if the bootstrap is unknown.
const requiredHint = "Envoy refuses the listener, unless its bootstrap has the cluster"

// requiredClusters returns the clusters without which Envoy refuses a listener, with the path of a field
// that names each. These are the clusters of routes inside the listener: "if the route table is statically
// defined via the route_config option", validate_clusters is true by default. gRPC clients, which use
// api_listener, do not check them.
func requiredClusters(types *Types, listener protoreflect.Message) map[string]string {
	w := requirements{types: types, clusters: map[string]string{}}
	chains := get(listener, "filter_chains").List()
	for i := range chains.Len() {
		w.chain(chains.Get(i).Message(), fmt.Sprintf("filter_chains[%d]", i))
	}
	w.chain(get(listener, "default_filter_chain").Message(), "default_filter_chain")
	return w.clusters
}

// requirements collects the result of [requiredClusters].
type requirements struct {
	types    *Types
	clusters map[string]string
}

// each calls f for the messages in a list.
func (w *requirements) each(m protoreflect.Message, field protoreflect.Name, path string, f func(m protoreflect.Message, path string)) {
	list := get(m, field).List()
	for i := range list.Len() {
		f(list.Get(i).Message(), fmt.Sprintf("%s.%s[%d]", path, field, i))
	}
}

// name records the cluster that a field names.
func (w *requirements) name(m protoreflect.Message, field protoreflect.Name, path string) {
	name := get(m, field).String()
	if _, known := w.clusters[name]; name != "" && !known {
		w.clusters[name] = path + "." + string(field)
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
		w.routes(get(m, "route_config").Message(), path+".typed_config.route_config")
	})
}

func (w *requirements) routes(config protoreflect.Message, path string) {
	validate := config.Descriptor().Fields().ByName("validate_clusters")
	if config.Has(validate) && !get(config.Get(validate).Message(), "value").Bool() {
		return
	}
	w.each(config, "virtual_hosts", path, func(host protoreflect.Message, at string) {
		w.each(host, "routes", at, func(route protoreflect.Message, to string) {
			action := route.Descriptor().Fields().ByName("route")
			if !route.Has(action) {
				return
			}
			to += ".route"
			m := route.Get(action).Message()
			w.name(m, "cluster", to)
			w.each(get(m, "weighted_clusters").Message(), "clusters", to+".weighted_clusters", func(m protoreflect.Message, path string) { w.name(m, "name", path) })
			// "Specifying this at [a lower] level will override any policies configured" above it.
			_ = w.mirrors(m, to) || w.mirrors(host, at) || w.mirrors(config, path)
		})
	})
}

// required returns the path of a field that names the cluster of a reference, if Envoy refuses a listener
// without that cluster; "" otherwise.
func (s *Source) required(d dangling) string {
	if !d.from.Type.Is(xds.Listener) || !d.to.Type.Is(xds.Cluster) || !mayViolate(d.from) {
		return ""
	}
	m, err := s.message(d.from.Type.URL, d.from.Body)
	if err != nil {
		return ""
	}
	return requiredClusters(s.types, m.ProtoReflect())[d.to.Name]
}

// splitRequired makes an error of each missing cluster without which Envoy refuses a listener, if the bootstraps
// of the clients are known. It returns the others as warnings.
func (s *Source) splitRequired(missing []dangling) (refused, doubtful []dangling) {
	for _, d := range missing {
		d.path = s.required(d)
		switch {
		case d.path != "" && s.bootstraps.complete:
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
