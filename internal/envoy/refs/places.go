package refs

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// Places returns the positions of a resource's references: the path of the first field with each name,
// such as "virtual_hosts[0].routes[1].route.cluster". References to all resources of a type have no
// position.
func Places(types Types, m proto.Message) map[xds.Ref]string {
	c := collector{types: types}
	w := walk{types: types, at: make(Path, 0, depth)}
	places := map[xds.Ref]string{}
	w.field = func(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		c.refs = c.refs[:0]
		below := c.field(m, f, v)
		for _, ref := range c.refs {
			ref.Name = xds.CanonicalName(ref.Name)
			if _, known := places[ref]; !known && ref.Name != xds.Wildcard {
				places[ref] = append(slices.Clip(w.at), place(f, v, ref)).String()
			}
		}
		return below
	}
	w.message(m.ProtoReflect())
	return places
}

// place returns the last step of the path to a name. The name of a cluster's assignment is next to its
// source.
func place(f protoreflect.FieldDescriptor, v protoreflect.Value, ref xds.Ref) step {
	switch name := f.FullName(); {
	case name == clusterType:
		return step{field: f.ContainingMessage().Fields().ByName("eds_cluster_config")}
	case f.IsMap():
		return step{field: f, key: protoreflect.ValueOfString(ref.Name).MapKey()}
	case f.IsList():
		for i := range v.List().Len() {
			if f.Kind() == protoreflect.StringKind && xds.CanonicalName(v.List().Get(i).String()) == ref.Name {
				return step{field: f, index: i}
			}
		}
	}
	return step{field: f}
}
