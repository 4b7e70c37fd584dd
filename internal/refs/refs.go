// Package refs finds the resources that a resource refers to. It looks into
// every google.protobuf.Any whose type is registered and knows messages by
// their descriptors only, so it links no generated code of its own.
package refs

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// Of returns the references of a resource, in push order of their types and
// then by name, each once. The result is never nil: it is known, if empty.
// Messages inside an Any whose type is not registered are passed over.
func Of(m proto.Message) []xds.Ref {
	c := collector{refs: []xds.Ref{}}
	w := walk{field: c.field}
	w.message(m.ProtoReflect())
	slices.SortFunc(c.refs, func(a, b xds.Ref) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(c.refs)
}

// A locality's endpoints are a collection, which no source has by one name.
const collectionName = "envoy.config.endpoint.v3.LedsClusterLocalityConfig.leds_collection_name"

type collector struct{ refs []xds.Ref }

// field adds what a field names.
func (c *collector) field(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	if f.FullName() == clusterType {
		c.assignment(m)
	}
	if f.FullName() == collectionName && served(m, "leds_config") {
		c.add(xds.LbEndpoint, xds.CanonicalName(v.String()))
	}
	if r, ok := rules[f.FullName()]; ok {
		c.names(r, m, f, v)
	}
}

// names adds what a field with a rule names.
func (c *collector) names(r rule, m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	if r.from != "" && !served(m, r.from) {
		return
	}
	if !f.IsList() {
		c.add(r.to, v.String())
		return
	}
	for i := range v.List().Len() {
		c.add(r.to, v.List().Get(i).String())
	}
}

func (c *collector) add(t *xds.Type, name string) {
	if name != "" {
		c.refs = append(c.refs, xds.Ref{Type: t, Name: name})
	}
}

// assignment adds the ClusterLoadAssignment of a cluster of type EDS, unless it
// comes from a file.
func (c *collector) assignment(cluster protoreflect.Message) {
	if f := cluster.Descriptor().Fields().ByName("eds_cluster_config"); cluster.Has(f) {
		config := cluster.Get(f).Message()
		if config.Has(config.Descriptor().Fields().ByName("eds_config")) && !served(config, "eds_config") {
			return
		}
	}
	c.add(xds.Endpoint, assignment(cluster))
}
