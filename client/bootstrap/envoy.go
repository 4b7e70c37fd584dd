package bootstrap

import (
	"bytes"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// An EnvoyConfig contains the sources of resources in Envoy's bootstrap
// (envoy.config.bootstrap.v3.Bootstrap).
type EnvoyConfig struct {
	// Node is the node of the bootstrap. Each Config below has it, too.
	Node *xds.Node

	// ADS is the configuration of ads_config; nil: not set.
	ADS *client.Config

	// Listeners and Clusters are the configurations of lds_config and cds_config; nil: not set, so the
	// client does not subscribe to them. They equal ADS if their source is "ads".
	Listeners, Clusters *client.Config

	// ListenersLocator and ClustersLocator are the xdstp names of the collections to watch
	// (lds_resources_locator, cds_resources_locator). Empty: watch [xds.Wildcard].
	ListenersLocator, ClustersLocator string

	m *maker
}

// A located is a decoded message with its path in the file.
type located struct {
	protoreflect.Message
	path string
}

const (
	bootstrapName = "envoy.config.bootstrap.v3.Bootstrap"
	clusterName   = "envoy.config.cluster.v3.Cluster"
	sourceName    = "envoy.config.core.v3.ConfigSource"
)

// Envoy reads Envoy's bootstrap in YAML or JSON. The text of each error begins with the argument file.
//
// Envoy reads node, dynamic_resources, config_sources and default_config_source. It reads only the
// static clusters of management servers, and in these only the addresses and TLS. It ignores all
// other parts of the bootstrap.
//
// Envoy sends its node in each request unless set_node_on_first_message_only is true. This client
// sends the node in the first request of each stream, as the protocol requires.
func Envoy(file string, data []byte, o Options) (_ *EnvoyConfig, err error) {
	m := &maker{Options: o, file: file, clusters: map[string]staticCluster{}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	d, doc, err := open(m, data)
	if err != nil {
		return nil, err
	}
	e := &EnvoyConfig{m: m}
	boot := envoy.Envoy().New(bootstrapName)
	for _, name := range []string{"node", "dynamic_resources"} {
		if err := decode(d, doc, boot, name); err != nil {
			return nil, err
		}
	}
	e.Node, err = m.envoyNode(boot)
	if err != nil {
		return nil, err
	}
	if err := m.static(doc); err != nil {
		return nil, err
	}
	r := located{sub(boot, "dynamic_resources"), "dynamic_resources"}
	if err := e.dynamic(r); err != nil {
		return nil, err
	}
	if err := e.authorities(d, doc, r); err != nil {
		return nil, err
	}
	return e, nil
}

// ParseSource returns the configuration for a ConfigSource (envoy.config.core.v3.ConfigSource) in YAML or
// JSON. The ConfigSource must contain a path, or a server with its address (google_grpc). The text
// of each error begins with the argument file. For a source inside a resource see [EnvoyConfig.Source].
func ParseSource(file string, data []byte, node *xds.Node, o Options) (_ *client.Config, err error) {
	m := &maker{Options: o, file: file}
	d, doc, err := open(m, data)
	if err != nil {
		return nil, err
	}
	source := envoy.Envoy().New(sourceName)
	d.Message(doc, source.Interface(), "")
	if err := firstError(d); err != nil {
		return nil, err
	}
	return Source(file, source.Interface(), node, o)
}

// open parses a file in JSON or YAML.
func open(m *maker, data []byte) (*protoyaml.Decoder, *yaml.Node, error) {
	m.data = data
	d := m.decoder()
	var doc *yaml.Node
	var err error
	if b := bytes.TrimSpace(data); len(b) > 0 && b[0] == '{' {
		doc, err = protoyaml.ParseJSON(m.file, data)
	}
	if doc == nil {
		docs, bad := protoyaml.ParseYAML(m.file, data) // as Envoy does, read JSON that is not strict as YAML
		if len(docs) > 0 {
			doc, err = docs[0], nil
		} else if err == nil {
			err = bad
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if doc == nil {
		return nil, nil, m.errorf("", "is empty")
	}
	doc = d.Plain(doc)
	if err := firstError(d); err != nil {
		return nil, nil, err
	}
	if doc.Kind != yaml.MappingNode {
		return nil, nil, m.errorf("", "a mapping is needed")
	}
	return d, doc, nil
}

// decoder returns a decoder for the file. It stops at the first error.
func (m *maker) decoder() *protoyaml.Decoder {
	return &protoyaml.Decoder{File: m.file, Source: m.data, Types: envoy.Envoy(), Most: 1, Rewrite: true}
}

// firstError returns the first error of a decoder.
func firstError(d *protoyaml.Decoder) error {
	for _, p := range d.Problems {
		if !p.Warning {
			return p
		}
	}
	return nil
}

// child returns the value of the field with this protobuf name in a mapping; nil: not set. The key in
// the file may also be the JSON name of the field.
func child(n *yaml.Node, md protoreflect.MessageDescriptor, name string) *yaml.Node {
	fd := md.Fields().ByName(protoreflect.Name(name))
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if protoyaml.Field(md, n.Content[i].Value) == fd && n.Content[i+1].Tag != "!!null" {
			return n.Content[i+1]
		}
	}
	return nil
}

// decode decodes one field of a document. The type of the field must be a message.
func decode(d *protoyaml.Decoder, n *yaml.Node, m protoreflect.Message, name string) error {
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if v := child(n, m.Descriptor(), name); v != nil {
		d.Message(v, m.Mutable(fd).Message().Interface(), name)
	}
	return firstError(d)
}

// dynamic reads dynamic_resources.
func (e *EnvoyConfig) dynamic(r located) (err error) {
	if ads := sub(r, "ads_config"); ads.IsValid() {
		servers, err := e.m.apiServers(located{ads, r.path + ".ads_config"}, aggregated)
		if err != nil {
			return err
		}
		e.ADS = &client.Config{Node: e.Node, Servers: servers}
	}
	e.ListenersLocator, e.ClustersLocator = str(r, "lds_resources_locator"), str(r, "cds_resources_locator")
	for _, is := range []struct {
		name string
		into **client.Config
	}{{"lds_config", &e.Listeners}, {"cds_config", &e.Clusters}} {
		source := sub(r, is.name)
		if !source.IsValid() {
			continue
		}
		at := located{source, r.path + "." + is.name}
		if which(source, "config_source_specifier") == "self" {
			return e.m.errorf(at.path, "self is not allowed in a bootstrap, only inside resources")
		}
		*is.into, err = e.source(at, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// A staticCluster is a static cluster of a bootstrap. It may contain unknown extensions, so it is
// decoded only if a source uses it as a management server.
type staticCluster struct {
	node *yaml.Node
	at   string
}

// static finds the static clusters.
func (m *maker) static(doc *yaml.Node) error {
	boot, cluster := envoy.Envoy().New(bootstrapName).Descriptor(), envoy.Envoy().New(clusterName).Descriptor()
	list := child(child(doc, boot, "static_resources"), boot.Fields().ByName("static_resources").Message(), "clusters")
	if list == nil {
		return nil
	}
	for i, n := range items(list) {
		name := child(n, cluster, "name")
		if name == nil || name.Kind != yaml.ScalarNode {
			continue // without a name, no source can refer to it
		}
		c := staticCluster{node: n, at: "static_resources.clusters[" + itoa(i) + "]"}
		if _, twice := m.clusters[name.Value]; twice {
			return m.errorf(c.at+".name", "another cluster has this name")
		}
		m.clusters[name.Value] = c
	}
	return nil
}

// items returns the items of a list. Envoy reads a single value as a list of this value.
func items(list *yaml.Node) []*yaml.Node {
	switch {
	case list == nil:
		return nil
	case list.Kind == yaml.SequenceNode:
		return list.Content
	}
	return []*yaml.Node{list}
}

// reachFields are the fields of a cluster that describe how to reach its members.
var reachFields = map[protoreflect.Name]bool{
	"name": true, "type": true, "load_assignment": true, "transport_socket": true, "transport_socket_matches": true,
}

// message decodes the reachFields of a cluster.
func (c staticCluster) message(d *protoyaml.Decoder) (located, error) {
	m := envoy.Envoy().New(clusterName)
	some := *c.node
	some.Content = nil
	for i := 0; i+1 < len(c.node.Content); i += 2 {
		if fd := protoyaml.Field(m.Descriptor(), c.node.Content[i].Value); fd != nil && reachFields[fd.Name()] {
			some.Content = append(some.Content, c.node.Content[i], c.node.Content[i+1])
		}
	}
	d.Message(&some, m.Interface(), c.at)
	return located{m, c.at}, firstError(d)
}

// envoyNode reads the node of a bootstrap.
func (m *maker) envoyNode(boot protoreflect.Message) (*xds.Node, error) {
	n, is := &xds.Node{}, sub(boot, "node")
	if is.IsValid() {
		n.ID, n.Cluster = str(is, "id"), str(is, "cluster")
		if at := sub(is, "locality"); at.IsValid() {
			n.Region, n.Zone, n.SubZone = str(at, "region"), str(at, "zone"), str(at, "sub_zone")
		}
		features := is.Get(is.Descriptor().Fields().ByName("client_features")).List()
		for i := range features.Len() {
			n.ClientFeatures = append(n.ClientFeatures, features.Get(i).String())
		}
		if md := sub(is, "metadata"); md.IsValid() {
			var err error
			n.Metadata, err = (proto.MarshalOptions{Deterministic: true}).Marshal(md.Interface())
			if err != nil {
				return nil, m.errorf("node.metadata", "%w", err)
			}
		}
	}
	m.completeNode(n)
	return n, nil
}
