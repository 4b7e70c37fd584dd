package importer

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/refs"
)

// The nodes here come from [protoyaml.Decoder.Plain]: they have no aliases and no merge keys.

func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if !isPlain(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// mapping returns a mapping of pairs: a key, then its value.
func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, p := range pairs {
		switch p := p.(type) {
		case string:
			n.Content = append(n.Content, text(p))
		case *yaml.Node:
			n.Content = append(n.Content, p)
		}
	}
	return n
}

// fromServer returns a ConfigSource that points to the server. It keeps the fetch timeout of the
// ConfigSource that it replaces, which may be nil.
func fromServer(was *yaml.Node) *yaml.Node {
	ads := mapping()
	ads.Style = yaml.FlowStyle
	n := mapping("ads", ads, "resource_api_version", "V3")
	for _, key := range []string{"initial_fetch_timeout", "initialFetchTimeout"} {
		if v := protoyaml.Get(was, key); v != nil {
			n.Content = append(n.Content, text(key), v)
		}
	}
	return n
}

// at returns the index of a field's key, by its proto or JSON name; -1 if it is missing.
func at(n *yaml.Node, md protoreflect.MessageDescriptor, field string) int {
	fd := md.Fields().ByName(protoreflect.Name(field))
	for i := 0; i+1 < len(n.Content); i += 2 {
		if fd != nil && protoyaml.Field(md, n.Content[i].Value) == fd && n.Content[i+1].Tag != "!!null" {
			return i
		}
	}
	return -1
}

// child returns the value of a field; nil if it is missing.
func child(n *yaml.Node, md protoreflect.MessageDescriptor, field string) *yaml.Node {
	if i := at(n, md, field); i >= 0 {
		return n.Content[i+1]
	}
	return nil
}

// take removes a field and returns its value.
func take(n *yaml.Node, md protoreflect.MessageDescriptor, field string) *yaml.Node {
	i := at(n, md, field)
	if i < 0 {
		return nil
	}
	v := n.Content[i+1]
	n.Content = slices.Delete(n.Content, i, i+2)
	return v
}

// put sets a field in its place, or appends it.
func put(n *yaml.Node, md protoreflect.MessageDescriptor, field string, v *yaml.Node) {
	if i := at(n, md, field); i >= 0 {
		n.Content[i+1] = v
		return
	}
	n.Content = append(n.Content, text(field), v)
}

// lead inserts a pair at the beginning, after "@type".
func lead(n *yaml.Node, key string, v *yaml.Node) {
	i := 0
	if len(n.Content) > 0 && n.Content[0].Value == "@type" {
		i = 2
	}
	n.Content = slices.Insert(n.Content, i, text(key), v)
}

func without(n *yaml.Node, keys ...string) *yaml.Node {
	rest := *n
	rest.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !slices.Contains(keys, n.Content[i].Value) {
			rest.Content = append(rest.Content, n.Content[i], n.Content[i+1])
		}
	}
	return &rest
}

// walk calls visit with the node of a message and with every message inside it, outer messages first.
// It follows each Any whose type is known. Visit may change the node.
func walk(types typeResolver, n *yaml.Node, md protoreflect.MessageDescriptor, at string, visit func(n *yaml.Node, md protoreflect.MessageDescriptor, at string)) {
	if md.FullName() == "google.protobuf.Any" {
		url := protoyaml.Get(n, "@type")
		if url == nil {
			return
		}
		typ, err := types.FindMessageByURL(url.Value)
		if err != nil {
			return
		}
		md = typ.Descriptor()
	}
	if n.Kind != yaml.MappingNode || strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
		return
	}
	visit(n, md, at)
	for i := 0; i+1 < len(n.Content); i += 2 {
		fd := protoyaml.Field(md, n.Content[i].Value)
		if fd == nil || fd.Message() == nil {
			continue
		}
		v, below, inner := n.Content[i+1], strings.TrimPrefix(at+"."+string(fd.Name()), "."), fd.Message()
		switch {
		case fd.IsMap():
			inner = fd.MapValue().Message()
			if inner == nil {
				continue
			}
			for j := 1; j < len(v.Content); j += 2 {
				walk(types, v.Content[j], inner, below, visit)
			}
		case fd.IsList():
			for _, c := range v.Content {
				walk(types, c, inner, below, visit)
			}
		default:
			walk(types, v, inner, below, visit)
		}
	}
}

// scalars calls visit with each scalar that is not a key.
func scalars(n *yaml.Node, visit func(*yaml.Node)) {
	if n.Kind == yaml.ScalarNode {
		visit(n)
	}
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			scalars(c, visit)
		}
	}
}

// typeResolver finds types for the YAML decoder and for the search of references.
type typeResolver interface {
	protoyaml.Types
	refs.Types
}
