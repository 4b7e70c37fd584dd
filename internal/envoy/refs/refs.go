// Package refs finds the resources that a resource refers to. It searches every google.protobuf.Any of
// known type. It identifies messages by their descriptors, so it links no generated code.
package refs

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// Of returns the references of a resource without duplicates, sorted by the push order of their types
// and then by name. The list is complete and never nil. An unknown name, or a part that cannot be
// decoded, adds a reference to all resources of the type ([xds.Wildcard]).
//
// A name in a request or a connection is not a reference. But the configuration that reads or sets the
// name counts as a reference to all resources of the type.
func Of(types Types, m proto.Message) []xds.Ref {
	return collect(collector{types: types}, m)
}

// OfResource returns the references of a resource that a server sends. It is [Of] without the clusters that a
// ConfigSource names: Envoy takes these only from its bootstrap ("must be statically defined"), so they are
// never resources of a server.
func OfResource(types Types, m proto.Message) []xds.Ref {
	return collect(collector{types: types, resource: true}, m)
}

func collect(c collector, m proto.Message) []xds.Ref {
	c.refs = []xds.Ref{}
	c.packed(m.ProtoReflect())
	c.walk(m.ProtoReflect())
	slices.SortFunc(c.refs, func(a, b xds.Ref) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(c.refs)
}

// collectionName is the field with the name of a collection of endpoints, which is not the name of one
// resource.
const collectionName = "envoy.config.endpoint.v3.LedsClusterLocalityConfig.leds_collection_name"

// address is a host's address, except if Envoy opens a reverse tunnel.
const address = "envoy.config.core.v3.SocketAddress.address"

type collector struct {
	types    Types
	resource bool // see OfResource
	refs     []xds.Ref
}

// walk adds the references in a message and in all messages inside it.
func (c *collector) walk(m protoreflect.Message) {
	w := walk{types: c.types, enter: c.enter, field: c.field, packed: c.packed, at: make(Path, 0, depth)}
	w.message(m)
}

// enter checks a message as a whole.
func (c *collector) enter(m protoreflect.Message, _ Path) (changed bool) {
	if len(m.GetUnknown()) > 0 {
		c.addAllTypes() // a field newer than this program's API
	}
	fields := m.Descriptor().Fields()
	if f := fields.ByName("typed_config"); f != nil && fields.ByName("name") != nil && unset(m, f) {
		c.addAll(xds.Cluster) // older Envoys choose the extension by its name
	}
	return false
}

func unset(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	if o := f.ContainingOneof(); o != nil {
		return m.WhichOneof(o) == nil
	}
	return !m.Has(f)
}

// packed adds the possible references of a message of unknown content. A nil message has an unknown
// type.
func (c *collector) packed(m protoreflect.Message) {
	if m == nil {
		c.addAllTypes()
		return
	}
	switch d := m.Descriptor(); {
	case d.FullName() == "google.protobuf.Any":
	case !readable(d.ParentFile().Package()), d.FullName() == "xds.type.v3.TypedStruct":
		c.addAllTypes()
	case !isReviewed(m):
		c.addAll(xds.Cluster)
	}
}

func isReviewed(m protoreflect.Message) bool {
	return m != nil && reviewed[m.Descriptor().ParentFile().Package()]
}

// field adds the references in a field.
func (c *collector) field(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) (below bool) {
	name := f.FullName()
	if plainData[name] {
		return false
	}
	switch name {
	case clusterType:
		c.assignment(m)
	case customType:
		c.assignment(m)
		c.custom(v.Message())
	case address:
		c.tunnel(v.String())
	case collectionName:
		if served(m, "leds_config") {
			c.add(xds.LbEndpoint, xds.CanonicalName(v.String()))
		}
	}
	if r, ok := rules[name]; ok {
		c.names(r, m, f, v)
	}
	if t, ok := unnamed[name]; ok && (f.Message() == nil || served(m, f.Name())) {
		c.addAll(t)
	}
	if isData(f) {
		c.addAll(xds.Cluster)
	}
	if f.Message() != nil && f.Message().FullName() == configSource {
		c.source(f, v.Message())
		if c.resource && !own(v.Message()) {
			c.withoutClusters(v.Message())
			return false
		}
	}
	return true
}

// isData reports whether a field has values without a schema.
func isData(f protoreflect.FieldDescriptor) bool {
	if f.IsMap() {
		f = f.MapValue()
	}
	if f.Message() == nil {
		return false
	}
	switch f.Message().FullName() {
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return true
	}
	return false
}

// source adds the possible references of resources from another server or a file, because this server
// does not know these resources.
func (c *collector) source(f protoreflect.FieldDescriptor, source protoreflect.Message) {
	types, listed := externalTypes[f.FullName()]
	switch {
	case foreignSources[f.FullName()], !listed && !own(source):
		c.addAllTypes()
	case !own(source):
		for _, t := range types {
			c.addAll(t)
		}
	}
}

// withoutClusters adds the references in a source, except the clusters that it names.
func (c *collector) withoutClusters(source protoreflect.Message) {
	inside := collector{types: c.types}
	inside.walk(source)
	for _, ref := range inside.refs {
		if !ref.Type.Is(xds.Cluster) || ref.Name == xds.Wildcard {
			c.refs = append(c.refs, ref)
		}
	}
}

// names adds the names in a field with a rule.
func (c *collector) names(r rule, m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case r.from != "" && !served(m, r.from):
	case f.IsMap():
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			c.add(r.to, k.String())
			return true
		})
	case f.IsList():
		for i := range v.List().Len() {
			c.add(r.to, v.List().Get(i).String())
		}
	default:
		c.add(r.to, v.String())
	}
}

func (c *collector) add(t *xds.Type, name string) {
	if name != "" {
		c.refs = append(c.refs, xds.Ref{Type: t, Name: name})
	}
}

// addAll adds a reference to all resources of a type.
func (c *collector) addAll(t *xds.Type) { c.add(t, xds.Wildcard) }

// addAllTypes adds references to all types that an unknown resource may refer to. Only clusters refer to
// assignments, and only assignments refer to collections of endpoints.
func (c *collector) addAllTypes() {
	for _, t := range []*xds.Type{xds.Cluster, xds.Secret, xds.ExtensionConfig, xds.ScopedRoute, xds.Route, xds.VirtualHost} {
		c.addAll(t)
	}
}

// assignment adds the ClusterLoadAssignment of an EDS cluster, unless it comes from a file.
func (c *collector) assignment(cluster protoreflect.Message) {
	if f := cluster.Descriptor().Fields().ByName("eds_cluster_config"); cluster.Has(f) {
		config := cluster.Get(f).Message()
		if config.Has(config.Descriptor().Fields().ByName("eds_config")) && !served(config, "eds_config") {
			return
		}
	}
	c.add(xds.Endpoint, assignment(cluster))
}

// tunnel adds the cluster of a reverse tunnel, whose listener opens connections and receives requests
// over them: "rc://src_node_id:src_cluster_id:src_tenant_id@cluster_name:count".
func (c *collector) tunnel(address string) {
	address, is := strings.CutPrefix(address, "rc://")
	if !is {
		return
	}
	_, remote, _ := strings.Cut(address, "@")
	name, count, _ := strings.Cut(remote, ":")
	if name == "" || count == "" || strings.ContainsAny(count, ":@") || strings.Contains(name, "@") {
		c.addAll(xds.Cluster) // Envoy 1.40 rejects such an address, but a later version may accept it
		return
	}
	c.add(xds.Cluster, name)
}

// custom adds the possible assignments of a cluster with a custom type, unless the type is in reviewed.
func (c *collector) custom(typ protoreflect.Message) {
	if !isReviewed((&walk{types: c.types}).inside(get(typ, "typed_config").Message())) {
		c.addAll(xds.Endpoint)
	}
}
