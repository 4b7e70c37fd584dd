package refs

import (
	"cmp"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// A Source is the origin of resources that a resource refers to.
type Source struct {
	// Config is the envoy.config.core.v3.ConfigSource. The caller may change it.
	Config protoreflect.Message
	Field  protoreflect.Name // in the searched message

	// Type and Name are the subscription: the resource of that name, or all resources of the type if
	// the name is [xds.Wildcard]. A nil Type means that xds does not know the type, or that the source
	// has several names.
	Type *xds.Type
	Name string
}

// Sources returns the sources in the fields of a message that may lead to a management server, not to a
// file. It does not search the messages below; use [Edit] for these. Two sources belong to the message
// above them, which has the name: the ConfigSource in an ExtensionConfigSource, and that of an EDS
// cluster.
func Sources(m protoreflect.Message) []Source { return sourcesThat(m, served) }

// AllSources returns the same sources as [Sources], and those that lead to files.
func AllSources(m protoreflect.Message) []Source { return sourcesThat(m, isSet) }

// Own reports whether a source leads to the server of the resource that contains it.
func (s Source) Own() bool { return own(s.Config) }

// File returns the path of a source that is a file; "" for other sources.
func (s Source) File() string {
	fields := s.Config.Descriptor().Fields()
	if path := fields.ByName("path"); s.Config.Has(path) {
		return s.Config.Get(path).String()
	}
	return get(get(s.Config, "path_config_source").Message(), "path").String()
}

func sourcesThat(m protoreflect.Message, served func(protoreflect.Message, protoreflect.Name) bool) []Source {
	var found []Source
	for f, v := range set(m) {
		if f.Message() == nil || f.IsList() || f.IsMap() {
			continue
		}
		s := Source{Field: f.Name()}
		switch t, listed := sources[f.FullName()]; {
		case f.FullName() == clusterEDS:
			s.Name = assignment(m)
			if s.Name == "" || !served(v.Message(), "eds_config") {
				continue
			}
			s.Type, s.Config = xds.Endpoint, get(v.Message(), "eds_config").Message()
		case listed && t == nil, !isSource(f.Message()), !served(m, f.Name()):
			continue
		default:
			s.Type, s.Config = t, v.Message()
			if t != nil {
				s.Name = xds.Wildcard
			}
			if name := m.Descriptor().Fields().ByName(nameField[f.FullName()].Name()); name != nil && !name.IsList() {
				s.Type, s.Name = rules[name.FullName()].to, m.Get(name).String()
			}
			if f.Message().FullName() == extensionSource {
				s.Config = get(s.Config, "config_source").Message()
			}
		}
		found = append(found, s)
	}
	return found
}

const (
	configSource    = "envoy.config.core.v3.ConfigSource"
	extensionSource = "envoy.config.core.v3.ExtensionConfigSource"
	clusterEDS      = "envoy.config.cluster.v3.Cluster.eds_cluster_config"
	clusterType     = "envoy.config.cluster.v3.Cluster.type"
	customType      = "envoy.config.cluster.v3.Cluster.cluster_type"
)

func isSource(d protoreflect.MessageDescriptor) bool {
	return d.FullName() == configSource || d.FullName() == extensionSource
}

// assignment returns the name of the ClusterLoadAssignment of an EDS cluster, for any source; "" for
// other clusters. "Optional alternative to cluster name to present to EDS." A cluster with a custom
// type counts as EDS if it has an eds_cluster_config. The reason is that EDS can be chosen as an
// extension too, "envoy.cluster.eds".
func assignment(cluster protoreflect.Message) string {
	const eds = 3 // envoy.config.cluster.v3.Cluster.EDS
	fields := cluster.Descriptor().Fields()
	config := fields.ByName("eds_cluster_config")
	custom := cluster.Has(fields.ByName("cluster_type")) && cluster.Has(config)
	if !custom && cluster.Get(fields.ByName("type")).Enum() != eds {
		return ""
	}
	name := cluster.Get(fields.ByName("name")).String()
	if cluster.Has(config) {
		name = cmp.Or(get(cluster.Get(config).Message(), "service_name").String(), name)
	}
	return name
}

// served reports whether the ConfigSource in a field is set and may lead to a management server, not to
// a file. The field may also hold an ExtensionConfigSource.
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

// isSet reports whether the ConfigSource in a field, or in the ExtensionConfigSource there, is set.
func isSet(m protoreflect.Message, field protoreflect.Name) bool {
	f := m.Descriptor().Fields().ByName(field)
	if !m.Has(f) {
		return false
	}
	source := m.Get(f).Message()
	if source.Descriptor().Fields().ByName("config_source") != nil {
		return isSet(source, "config_source")
	}
	return true
}

// own reports whether a ConfigSource leads to the server of the resource that contains it, over the
// same stream.
func own(source protoreflect.Message) bool {
	which := source.WhichOneof(source.Descriptor().Oneofs().ByName("config_source_specifier"))
	return which == nil || which.Name() == "ads" || which.Name() == "self"
}

func get(m protoreflect.Message, field protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(field))
}
