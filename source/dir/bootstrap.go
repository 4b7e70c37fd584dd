package dir

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/refs"
	"github.com/chancery-xds/chancery/xds"
)

// A beside is what clients have from their bootstraps, beside what files say.
type beside struct {
	clusters map[string]bool
	secrets  []string // for those who name one without a source; who names one asks for it
	refs     []xds.Ref
}

// besides returns what is in bootstraps.
func besides(types *Types, bootstraps []proto.Message) (b beside) {
	b.clusters = map[string]bool{}
	for _, m := range bootstraps {
		for _, ref := range refs.With(types, m) {
			// A bootstrap may have what nobody knows, such as numbers of the runtime. That it
			// refers to any cluster is likely of what is in these lists alone.
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

// list returns the static resources of a kind that a bootstrap has.
func list(bootstrap proto.Message, kind protoreflect.Name) (all []protoreflect.Message) {
	items := get(get(bootstrap.ProtoReflect(), "static_resources").Message(), kind).List()
	for i := range items.Len() {
		all = append(all, items.Get(i).Message())
	}
	return all
}

// has reports whether clients find what a reference leads to in their bootstraps.
func (b beside) has(ref xds.Ref) bool { return ref.Type.Is(xds.Cluster) && b.clusters[ref.Name] }
