// Package refs finds the resources that a resource refers to. It looks into
// every google.protobuf.Any whose type is known and knows messages by
// their descriptors only, so it links no generated code of its own.
package refs

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// Of returns the references of a resource, in push order of their types and
// then by name, each once. The list is complete: where a name is not known, or
// something cannot be read that might have one, there is a reference to all
// resources of the type ([xds.Wildcard]), next to those that are known. It is
// never nil.
//
// Names that come to a proxy with requests and connections are no references.
// But what takes them from there is one, and so is what puts them there.
func Of(types Types, m proto.Message) []xds.Ref {
	c := collector{types: types, refs: []xds.Ref{}}
	w := walk{types: types, enter: c.enter, field: c.field, packed: c.packed, at: make(Path, 0, depth)}
	c.packed(m.ProtoReflect())
	w.message(m.ProtoReflect())
	slices.SortFunc(c.refs, func(a, b xds.Ref) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(c.refs)
}

// A locality's endpoints are a collection, which no source has by one name.
const collectionName = "envoy.config.endpoint.v3.LedsClusterLocalityConfig.leds_collection_name"

// An address is that of a host, but where Envoy opens a reverse tunnel.
const address = "envoy.config.core.v3.SocketAddress.address"

type collector struct {
	types Types
	refs  []xds.Ref
}

// enter looks at a message as a whole.
func (c *collector) enter(m protoreflect.Message, _ Path) (changed bool) {
	if len(m.GetUnknown()) > 0 {
		c.anything() // a field that Envoy's API got later than this program
	}
	fields := m.Descriptor().Fields()
	if f := fields.ByName("typed_config"); f != nil && fields.ByName("name") != nil && unset(m, f) {
		c.any(xds.Cluster) // an extension that is chosen by its name, as in older Envoys
	}
	return false
}

func unset(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	if o := f.ContainingOneof(); o != nil {
		return m.WhichOneof(o) == nil
	}
	return !m.Has(f)
}

// packed adds what a message may refer to of which nothing is known but what
// type it is, nil if not even that.
func (c *collector) packed(m protoreflect.Message) {
	if m == nil {
		c.anything()
		return
	}
	switch d := m.Descriptor(); {
	case d.FullName() == "google.protobuf.Any":
	case !readable(d.ParentFile().Package()), d.FullName() == "xds.type.v3.TypedStruct":
		c.anything()
	case !isUnderstood(m):
		c.any(xds.Cluster)
	}
}

func isUnderstood(m protoreflect.Message) bool {
	return m != nil && understood[m.Descriptor().ParentFile().Package()]
}

// field adds what a field names.
func (c *collector) field(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) (below bool) {
	name := f.FullName()
	if data[name] {
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
		c.any(t)
	}
	if isData(f) {
		c.any(xds.Cluster)
	}
	if f.Message() != nil && f.Message().FullName() == configSource {
		c.source(f, v.Message())
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

// source adds what the resources may refer to that come from another place than
// the one around the source: nobody knows what the client has of them.
func (c *collector) source(f protoreflect.FieldDescriptor, source protoreflect.Message) {
	types, listed := elsewhere[f.FullName()]
	switch {
	case foreign[f.FullName()], !listed && !own(source):
		c.anything()
	case !own(source):
		for _, t := range types {
			c.any(t)
		}
	}
}

// names adds what a field with a rule names.
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

// any adds a reference to all resources of a type.
func (c *collector) any(t *xds.Type) { c.add(t, xds.Wildcard) }

// anything adds references to all resources that something unknown may refer to.
// Only clusters have assignments, and only these have collections of endpoints.
func (c *collector) anything() {
	for _, t := range []*xds.Type{xds.Cluster, xds.Secret, xds.ExtensionConfig, xds.ScopedRoute, xds.Route, xds.VirtualHost} {
		c.any(t)
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

// tunnel adds the cluster to which a listener opens connections, to be called over them:
// "rc://src_node_id:src_cluster_id:src_tenant_id@cluster_name:count".
func (c *collector) tunnel(address string) {
	address, is := strings.CutPrefix(address, "rc://")
	if !is {
		return
	}
	_, remote, _ := strings.Cut(address, "@")
	name, count, _ := strings.Cut(remote, ":")
	if name == "" || count == "" || strings.ContainsAny(count, ":@") || strings.Contains(name, "@") {
		c.any(xds.Cluster) // which Envoy 1.40 refuses, and a later one may take
		return
	}
	c.add(xds.Cluster, name)
}

// custom adds the assignments that a cluster of a type of its own may have, if
// the type is not one of Envoy's that are understood.
func (c *collector) custom(typ protoreflect.Message) {
	if !isUnderstood((&walk{types: c.types}).inside(get(typ, "typed_config").Message())) {
		c.any(xds.Endpoint)
	}
}
