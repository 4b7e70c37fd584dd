package protoyaml

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// A Place is the position of a field in a file.
type Place struct {
	Node   *yaml.Node
	Secret bool // the field is, or may contain, a secret: problems do not quote it
}

// Place returns the position of the field at a path, starting at the node of a message of type md. The
// path continues inside Anys. If the field is missing, Place returns the nearest enclosing message.
func (d *Decoder) Place(n *yaml.Node, md protoreflect.MessageDescriptor, path string) Place {
	at := Place{Node: d.resolve(n, path)}
	for path != "" && md != nil {
		name, index, key, rest := cut(path)
		if md.FullName() == "google.protobuf.Any" {
			md = d.typeOf(at.Node)
			if md == nil {
				return at
			}
		}
		fd := field(md, name)
		if fd == nil {
			return at
		}
		at.Secret = at.Secret || secrets.Marked(fd) || secrets.HoldsJSON(fd)
		value := d.child(at.Node, fd, 0)
		if value != nil && index >= 0 {
			value = d.item(value, index)
		} else if value != nil && key != nil {
			value = d.entry(value, *key)
		}
		if value == nil {
			return at
		}
		at.Node, path, md = value, rest, fd.Message()
		if fd.IsMap() {
			md = fd.MapValue().Message()
		}
	}
	return at
}

// ReportAt adds an error of a kind at a place.
func (d *Decoder) ReportAt(at Place, code findings.Code, path, hint, message string) {
	if at.Secret {
		d.conceal(func() { d.ReportAs(code, at.Node, path, hint, "%s", message) })
		return
	}
	d.ReportAs(code, at.Node, path, hint, "%s", message)
}

// WarnAt adds a warning of a kind at a place.
func (d *Decoder) WarnAt(at Place, code findings.Code, path, hint, message string) {
	if at.Secret {
		d.conceal(func() { d.WarnAs(code, at.Node, path, hint, "%s", message) })
		return
	}
	d.WarnAs(code, at.Node, path, hint, "%s", message)
}

// cut takes the first step from a path such as `a[3].b["x.y"].c`.
func cut(path string) (name string, index int, key *string, rest string) {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, -1, nil, ""
	}
	name, rest, index = path[:end], path[end:], -1
	if strings.HasPrefix(rest, `["`) {
		if q, err := strconv.QuotedPrefix(rest[1:]); err == nil {
			s, _ := strconv.Unquote(q)
			key, rest = &s, strings.TrimPrefix(rest[1+len(q):], "]")
		}
	} else if strings.HasPrefix(rest, "[") {
		number, after, _ := strings.Cut(rest[1:], "]")
		if i, err := strconv.Atoi(number); err == nil {
			index, rest = i, after
		}
	}
	return name, index, key, strings.TrimPrefix(rest, ".")
}

// typeOf returns the type of the message in the node of an Any; nil if unknown.
func (d *Decoder) typeOf(n *yaml.Node) protoreflect.MessageDescriptor {
	url := Get(n, "@type")
	if url == nil {
		return nil
	}
	mt, err := d.Types.FindMessageByURL(url.Value)
	if err != nil {
		return nil
	}
	return mt.Descriptor()
}

// child returns the value of a field, by its proto or JSON name; nil if it is missing. It follows merge
// keys and aliases.
func (d *Decoder) child(n *yaml.Node, fd protoreflect.FieldDescriptor, depth int) *yaml.Node {
	return d.find(n, depth, func(key string) bool { return key == fd.TextName() || key == fd.JSONName() })
}

// entry returns the value of a key of a map.
func (d *Decoder) entry(n *yaml.Node, key string) *yaml.Node {
	return d.find(n, 0, func(k string) bool { return k == key })
}

func (d *Decoder) find(n *yaml.Node, depth int, is func(key string) bool) *yaml.Node {
	n = d.resolve(n, "")
	if n.Kind != yaml.MappingNode || depth > maxNesting {
		return nil
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch k := d.resolve(n.Content[i], ""); {
		case k.Tag == "!!merge":
			merged = append(merged, n.Content[i+1])
		case is(k.Value):
			return d.resolve(n.Content[i+1], "")
		}
	}
	for _, m := range merged {
		m = d.resolve(m, "")
		all := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			all = m.Content
		}
		for _, one := range all {
			if v := d.find(one, depth+1, is); v != nil {
				return v
			}
		}
	}
	return nil
}

// item returns an item of a list. A single value counts as a list of one, as in Envoy's reader.
func (d *Decoder) item(n *yaml.Node, index int) *yaml.Node {
	if n.Kind != yaml.SequenceNode {
		return n
	}
	if index >= len(n.Content) {
		return nil
	}
	return d.resolve(n.Content[index], "")
}
