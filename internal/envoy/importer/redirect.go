package importer

import (
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

const (
	configSource    = "envoy.config.core.v3.ConfigSource"
	extensionSource = "envoy.config.core.v3.ExtensionConfigSource"
	apiSource       = "envoy.config.core.v3.ApiConfigSource"
	secretConfig    = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"
	manager         = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)

// redirect changes the sources of imported resources to this server, where Envoy read a file or asked
// another server before.
func (im *importer) redirect() {
	for _, e := range im.entries {
		e.walk(im.Types, func(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
			if !hasSource(md) {
				return
			}
			for _, s := range refs.AllSources(part(im.Types, n, md)) {
				switch {
				case s.Own():
				case im.isServed(s.Type, s.Name):
					redirect(n, md, string(s.Field))
					e.note("reads %s %q from the server (ads)", Kind(s.Type), s.Name)
				case s.File() != "":
					e.note("still reads %s on Envoy's machine", s.File())
				}
			}
		})
	}
}

// walk visits the messages of an entry.
func (e *entry) walk(types typeResolver, visit func(n *yaml.Node, md protoreflect.MessageDescriptor, at string)) {
	typ, err := types.FindMessageByURL(e.typ.URL)
	if err == nil {
		walk(types, e.node, typ.Descriptor(), "", visit)
	}
}

// part decodes a node that was decoded before, so it has no errors.
func part(types typeResolver, n *yaml.Node, md protoreflect.MessageDescriptor) protoreflect.Message {
	typ, err := types.FindMessageByName(md.FullName())
	if err != nil {
		panic("importer: " + string(md.FullName()) + ": " + err.Error())
	}
	m := typ.New()
	d := protoyaml.Decoder{Types: types, Rewrite: true}
	d.Message(without(n, "@type", extension), m.Interface(), "")
	return m
}

// hasSource reports whether a message has a ConfigSource field, or is a cluster, which has one inside
// eds_cluster_config.
func hasSource(md protoreflect.MessageDescriptor) bool {
	if md.FullName() == protoreflect.FullName(strings.TrimPrefix(xds.Cluster.URL, apis)) {
		return true
	}
	for i := range md.Fields().Len() {
		if m := md.Fields().Get(i).Message(); m != nil && (m.FullName() == configSource || m.FullName() == extensionSource) {
			return true
		}
	}
	return false
}

// redirect points the ConfigSource of a field to the server.
func redirect(n *yaml.Node, md protoreflect.MessageDescriptor, field string) {
	v, fd := child(n, md, field), md.Fields().ByName(protoreflect.Name(field))
	switch fd.Message().FullName() {
	case configSource:
		put(n, md, field, fromServer(v))
	case extensionSource:
		put(v, fd.Message(), "config_source", fromServer(child(v, fd.Message(), "config_source")))
	default: // eds_cluster_config
		put(v, fd.Message(), "eds_config", fromServer(child(v, fd.Message(), "eds_config")))
	}
}

// bootMessageOf returns a bootstrap that has only one field.
func (im *importer) bootMessageOf(field string, v *yaml.Node) proto.Message {
	return part(im.Types, mapping(field, v), im.Types.New(bootstrapName).Descriptor()).Interface()
}
