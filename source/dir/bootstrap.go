package dir

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/refs"
	"github.com/chancery-xds/chancery/xds"
)

// A bootstrapContent has the resources and references in the bootstraps of the clients.
type bootstrapContent struct {
	clusters map[string]bool
	secrets  []string // static secrets: a resource can name one without a source; with a source, the client subscribes to it
	refs     []xds.Ref
	complete bool // there are bootstraps, and they name no other source of clusters than a server
}

// readBootstraps returns the resources and references in bootstraps.
func readBootstraps(types *Types, bootstraps []proto.Message) (b bootstrapContent) {
	b.clusters, b.complete = map[string]bool{}, len(bootstraps) > 0
	for _, m := range bootstraps {
		dynamic := get(m.ProtoReflect(), "dynamic_resources").Message()
		source := get(dynamic, "cds_config").Message()
		if path := source.WhichOneof(source.Descriptor().Oneofs().ByName("config_source_specifier")); path != nil && strings.HasPrefix(string(path.Name()), "path") {
			b.complete = false
		}
		for _, ref := range refs.With(types, m) {
			// A bootstrap may contain messages of unknown types, such as values of the runtime. They
			// count as a wildcard reference to clusters. Only a wildcard of the listeners and clusters
			// below is likely to be real.
			if ref.Name != xds.Wildcard {
				b.refs = append(b.refs, ref)
			}
		}
		for _, l := range list(m, "listeners") {
			b.refs = append(b.refs, refs.With(types, l.Interface())...)
		}
		for _, c := range list(m, "clusters") {
			b.clusters[get(c, "name").String()] = true
			b.refs = append(b.refs, refs.With(types, c.Interface())...)
		}
		for _, s := range list(m, "secrets") {
			b.secrets = append(b.secrets, get(s, "name").String())
		}
	}
	return b
}

// list returns the static resources of a kind in a bootstrap.
func list(bootstrap proto.Message, kind protoreflect.Name) (all []protoreflect.Message) {
	items := get(get(bootstrap.ProtoReflect(), "static_resources").Message(), kind).List()
	for i := range items.Len() {
		all = append(all, items.Get(i).Message())
	}
	return all
}

// has reports whether the bootstrap of the clients has the resource of a reference.
func (b bootstrapContent) has(ref xds.Ref) bool {
	return ref.Type.Is(xds.Cluster) && b.clusters[ref.Name]
}

// InBootstrap reports whether a known bootstrap of the clients has the resource of a reference. Any goroutine
// may call it.
func (s *Source) InBootstrap(ref xds.Ref) bool { return s.bootstraps.has(ref) }
