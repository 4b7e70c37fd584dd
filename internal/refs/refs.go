// Package refs finds the resources that a resource refers to. It looks into
// every google.protobuf.Any whose type is registered and knows messages by
// their descriptors only, so it links no generated code of its own.
package refs

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/xds"
)

// Of returns the references of a resource, in push order of their types and
// then by name, each once. The result is never nil: it is known, if empty.
// Messages inside an Any whose type is not registered are passed over.
func Of(m proto.Message) []xds.Ref {
	w := walk{refs: []xds.Ref{}}
	w.message(m.ProtoReflect())
	slices.SortFunc(w.refs, func(a, b xds.Ref) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(w.refs)
}

type walk struct{ refs []xds.Ref }

func (w *walk) message(m protoreflect.Message) {
	name := m.Descriptor().FullName()
	switch {
	case name == "google.protobuf.Any":
		w.any(m)
		return
	case name.Parent() == "google.protobuf":
		return // values: nothing in there refers to a resource
	case name == "envoy.config.cluster.v3.Cluster":
		w.assignment(m)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if r, ok := rules[f.FullName()]; ok {
			w.names(r, m, f, v)
		}
		switch {
		case f.Message() == nil:
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					w.message(v.Message())
					return true
				})
			}
		case f.IsList():
			for i := range v.List().Len() {
				w.message(v.List().Get(i).Message())
			}
		default:
			w.message(v.Message())
		}
		return true
	})
}

func (w *walk) any(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	typ, err := protoregistry.GlobalTypes.FindMessageByURL(m.Get(fields.ByName("type_url")).String())
	if err != nil {
		return
	}
	inner := typ.New()
	if proto.Unmarshal(m.Get(fields.ByName("value")).Bytes(), inner.Interface()) == nil {
		w.message(inner)
	}
}

// names adds what a field with a rule names.
func (w *walk) names(r rule, m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	if r.from != "" && !served(m, r.from) {
		return
	}
	if !f.IsList() {
		w.add(r.to, v.String())
		return
	}
	for i := range v.List().Len() {
		w.add(r.to, v.List().Get(i).String())
	}
}

func (w *walk) add(t *xds.Type, name string) {
	if name != "" {
		w.refs = append(w.refs, xds.Ref{Type: t, Name: name})
	}
}

// assignment adds the ClusterLoadAssignment of a cluster of type EDS.
// "Optional alternative to cluster name to present to EDS."
func (w *walk) assignment(m protoreflect.Message) {
	const eds = 3 // envoy.config.cluster.v3.Cluster.EDS
	fields := m.Descriptor().Fields()
	if m.Get(fields.ByName("type")).Enum() != eds {
		return
	}
	name := m.Get(fields.ByName("name")).String()
	if config := fields.ByName("eds_cluster_config"); m.Has(config) {
		c := m.Get(config).Message()
		if c.Has(c.Descriptor().Fields().ByName("eds_config")) && !served(c, "eds_config") {
			return
		}
		name = cmp.Or(c.Get(c.Descriptor().Fields().ByName("service_name")).String(), name)
	}
	w.add(xds.Endpoint, name)
}

// served reports whether the ConfigSource in a field, or in the
// ExtensionConfigSource there, is set and can lead to a management server: a
// file does not.
func served(m protoreflect.Message, field protoreflect.Name) bool {
	f := m.Descriptor().Fields().ByName(field)
	if !m.Has(f) {
		return false
	}
	source := m.Get(f).Message()
	fields := source.Descriptor().Fields()
	if f := fields.ByName("config_source"); f != nil {
		return served(source, "config_source")
	}
	return !source.Has(fields.ByName("path")) && !source.Has(fields.ByName("path_config_source"))
}
