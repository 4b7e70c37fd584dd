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

// An EnvoyConfig is what Envoy's bootstrap (envoy.config.bootstrap.v3.Bootstrap) says of where
// resources come from.
type EnvoyConfig struct {
	// Node is that of the bootstrap, and of each Config below.
	Node *xds.Node

	// ADS is the server of the aggregated stream (ads_config); nil: there is none.
	ADS *client.Config

	// Listeners and Clusters say where these come from (lds_config, cds_config); nil: the
	// bootstrap does not subscribe to them. They are ADS where they come from there.
	Listeners, Clusters *client.Config

	// ListenersLocator and ClustersLocator are the xdstp names of the collections to watch
	// (lds_resources_locator, cds_resources_locator). Empty: all, [xds.Wildcard].
	ListenersLocator, ClustersLocator string

	m *maker
}

// A message is a decoded one and where it stands.
type message struct {
	protoreflect.Message
	at string
}

const (
	bootstrapName = "envoy.config.bootstrap.v3.Bootstrap"
	clusterName   = "envoy.config.cluster.v3.Cluster"
	sourceName    = "envoy.config.core.v3.ConfigSource"
)

// Envoy reads Envoy's bootstrap, in YAML or JSON. File is what errors call it. It reads what says
// where resources come from: node, dynamic_resources, config_sources, default_config_source, and of
// static clusters the addresses and TLS of those that are servers. What else there is it does not
// look into.
//
// An Envoy states its node in each request unless set_node_on_first_message_only is true; this
// client states it in the first request of each stream, as the protocol wants it.
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
	if e.Node, err = m.envoyNode(boot); err != nil {
		return nil, err
	}
	if err := m.static(doc); err != nil {
		return nil, err
	}
	r := message{sub(boot, "dynamic_resources"), "dynamic_resources"}
	if err := e.dynamic(r); err != nil {
		return nil, err
	}
	if err := e.authorities(d, doc, r); err != nil {
		return nil, err
	}
	return e, nil
}

// SourceText reads a ConfigSource (envoy.config.core.v3.ConfigSource) in YAML or JSON, which
// leads to a file or to a server whose address is in it (google_grpc). File is what errors call
// it. For one inside of a resource see [EnvoyConfig.Source].
func SourceText(file string, data []byte, node *xds.Node, o Options) (_ *client.Config, err error) {
	m := &maker{Options: o, file: file}
	d, doc, err := open(m, data)
	if err != nil {
		return nil, err
	}
	source := envoy.Envoy().New(sourceName)
	d.Message(doc, source.Interface(), "")
	if err := first(d); err != nil {
		return nil, err
	}
	return Source(file, source.Interface(), node, o)
}

// open parses a file, in JSON or YAML.
func open(m *maker, data []byte) (*protoyaml.Decoder, *yaml.Node, error) {
	m.data = data
	d := m.decoder()
	var doc *yaml.Node
	var err error
	if b := bytes.TrimSpace(data); len(b) > 0 && b[0] == '{' {
		doc, err = protoyaml.ParseJSON(m.file, data)
	}
	if doc == nil {
		docs, bad := protoyaml.ParseYAML(m.file, data) // Envoy's reader takes more for JSON than JSON
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
	if err := first(d); err != nil {
		return nil, nil, err
	}
	if doc.Kind != yaml.MappingNode {
		return nil, nil, m.errorf("", "a mapping is needed")
	}
	return d, doc, nil
}

// decoder returns one for the file, which finds one error at most.
func (m *maker) decoder() *protoyaml.Decoder {
	return &protoyaml.Decoder{File: m.file, Source: m.data, Types: envoy.Envoy(), Most: 1, Mend: true}
}

// first returns the first error that a decoder found.
func first(d *protoyaml.Decoder) error {
	for _, p := range d.Problems {
		if !p.Warning {
			return p
		}
	}
	return nil
}

// child returns the value of a field of a mapping, in either spelling; nil: it is not there.
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

// decode decodes one field of a document, a message.
func decode(d *protoyaml.Decoder, n *yaml.Node, m protoreflect.Message, name string) error {
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if v := child(n, m.Descriptor(), name); v != nil {
		d.Message(v, m.Mutable(fd).Message().Interface(), name)
	}
	return first(d)
}

// dynamic reads dynamic_resources.
func (e *EnvoyConfig) dynamic(r message) (err error) {
	if ads := sub(r, "ads_config"); ads.IsValid() {
		servers, err := e.m.api(message{ads, r.at + ".ads_config"}, aggregated)
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
		at := message{source, r.at + "." + is.name}
		if which(source, "config_source_specifier") == "self" {
			return e.m.errorf(at.at, "self has no meaning in a bootstrap: it is for sources inside of resources")
		}
		if *is.into, err = e.source(at, nil); err != nil {
			return err
		}
	}
	return nil
}

// A staticCluster is one of a bootstrap: its fields may be of extensions that nobody here knows, so
// it is decoded when it turns out to be a server.
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
			continue // nothing can lead to it
		}
		c := staticCluster{node: n, at: "static_resources.clusters[" + itoa(i) + "]"}
		if _, twice := m.clusters[name.Value]; twice {
			return m.errorf(c.at+".name", "another cluster has this name")
		}
		m.clusters[name.Value] = c
	}
	return nil
}

// items are what a list has: "one alone is a list of it" to Envoy.
func items(list *yaml.Node) []*yaml.Node {
	switch {
	case list == nil:
		return nil
	case list.Kind == yaml.SequenceNode:
		return list.Content
	}
	return []*yaml.Node{list}
}

// ofServer are the fields of a cluster that say how its members are reached.
var ofServer = map[protoreflect.Name]bool{
	"name": true, "type": true, "load_assignment": true, "transport_socket": true, "transport_socket_matches": true,
}

// message decodes what a cluster says of how its members are reached.
func (c staticCluster) message(d *protoyaml.Decoder) (message, error) {
	m := envoy.Envoy().New(clusterName)
	some := *c.node
	some.Content = nil
	for i := 0; i+1 < len(c.node.Content); i += 2 {
		if fd := protoyaml.Field(m.Descriptor(), c.node.Content[i].Value); fd != nil && ofServer[fd.Name()] {
			some.Content = append(some.Content, c.node.Content[i], c.node.Content[i+1])
		}
	}
	d.Message(&some, m.Interface(), c.at)
	return message{m, c.at}, first(d)
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
			if n.Metadata, err = (proto.MarshalOptions{Deterministic: true}).Marshal(md.Interface()); err != nil {
				return nil, m.errorf("node.metadata", "%w", err)
			}
		}
	}
	m.sign(n)
	return n, nil
}
