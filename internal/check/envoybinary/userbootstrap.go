package envoybinary

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// needed are the fields of a bootstrap that affect whether Envoy accepts a resource. Static clusters
// and secrets are handled separately.
var needed = []protoreflect.Name{"bootstrap_extensions", "default_socket_interface", "default_regex_engine", "certificate_provider_instances"}

// addUserParts adds the parts of the user's bootstraps that resources may need. Of several items with
// one name, the first is added. The runtime of the first bootstrap overrides that of the others. A checked
// cluster replaces a bootstrap's cluster with its name. The parts for one machine or one server are left
// out: the node, the admin interface, listeners, and the sources of resources and runtime.
func (a *checker) addUserParts(boot protoreflect.Message) {
	static := mutable(boot, "static_resources")
	asked, runtime := map[string]bool{}, []protoreflect.Message(nil)
	for _, r := range a.all {
		asked[r.Name] = asked[r.Name] || r.Type.Is(xds.Cluster)
	}
	for _, b := range a.userBootstraps {
		for _, name := range needed {
			f := field(b, name)
			switch {
			case !b.Has(f):
			case f.IsList():
				join(boot, b, name, nil)
			case f.IsMap():
				b.Get(f).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					boot.Mutable(f).Map().Set(k, v)
					return true
				})
			default:
				boot.Set(f, b.Get(f))
			}
		}
		theirs := get(b, "static_resources").Message()
		join(static, theirs, "clusters", asked)
		join(static, theirs, "secrets", nil)
		runtime = append(staticLayers(b, runtime), runtime...)
	}
	if len(runtime) > 0 { // some runtime features decide whether Envoy accepts a field
		to := mutable(boot, "layered_runtime")
		for _, l := range runtime {
			to.Mutable(field(to, "layers")).List().Append(protoreflect.ValueOfMessage(l))
		}
	}
}

// staticLayers returns the layers of a bootstrap's runtime with fixed values, except those with a name in but.
func staticLayers(b protoreflect.Message, but []protoreflect.Message) (found []protoreflect.Message) {
	layers := get(get(b, "layered_runtime").Message(), "layers").List()
	for i := range layers.Len() {
		l := layers.Get(i).Message()
		known := func(other protoreflect.Message) bool { return get(other, "name").String() == get(l, "name").String() }
		if l.Has(field(l, "static_layer")) && !slices.ContainsFunc(slices.Concat(but, found), known) {
			found = append(found, l)
		}
	}
	return found
}

// join appends the items of another message's list, except those with a name in but.
func join(to, from protoreflect.Message, list protoreflect.Name, but map[string]bool) {
	all := get(from, list).List()
	for i := range all.Len() {
		add(to.Mutable(field(to, list)).List(), all.Get(i).Message(), but)
	}
}

// add appends a message to a list, unless the list or but already has its name.
func add(list protoreflect.List, m protoreflect.Message, but map[string]bool) {
	name := get(m, "name").String()
	for i := range list.Len() {
		if get(list.Get(i).Message(), "name").String() == name {
			return
		}
	}
	if !but[name] {
		list.Append(protoreflect.ValueOfMessage(m))
	}
}
