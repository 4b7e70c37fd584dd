package dir

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

// A placer finds fields of resources in files that were read before: nobody keeps what
// stands where in a file in which nothing is wrong. It reads each file once more.
type placer struct {
	s     *Source
	files map[string][]*yaml.Node // the documents; nil: they are not known
	data  map[string][]byte

	of     Pos                            // the resource that was looked into last
	md     protoreflect.MessageDescriptor // its type; nil: it cannot be looked into
	places map[xds.Ref]string             // of references in it
}

// look looks into a resource, once for all its references that follow each other.
func (p *placer) look(l Loaded) {
	if p.of == l.Pos {
		return
	}
	p.of, p.md, p.places = l.Pos, nil, map[xds.Ref]string{}
	typ, err := p.s.types.FindMessageByURL(l.Type.URL)
	if err != nil {
		return
	}
	m := typ.New()
	if (proto.UnmarshalOptions{Resolver: p.s.types}).Unmarshal(l.Body, m.Interface()) == nil {
		p.md, p.places = m.Descriptor(), refs.Places(p.s.types, m.Interface())
	}
}

// reference returns a problem of a reference at the place of that, where it stood at the
// place of the resource that refers.
func (p *placer) reference(d dangling) dangling {
	p.look(d.from)
	path := p.places[d.to]
	if path == "" {
		return d
	}
	n := p.node(d.from)
	if n == nil {
		d.Path = strings.Trim(d.from.Pos.Path+"."+path, ".")
		return d
	}
	dec := &decoder{Decoder: protoyaml.Decoder{File: d.from.File, Source: p.data[d.from.File], Types: p.s.types}, reader: p.s.reader}
	at, whole := dec.place(n, d.from.Pos.Path, p.md, path)
	dec.WarnAt(at, findings.Dangling, whole, d.Hint, d.Message)
	group := d.Group
	d.Problem = dec.Problems[0]
	d.Problem.Group = group
	return d
}

// node returns the node of a resource, nil if it is not known.
func (p *placer) node(l Loaded) *yaml.Node {
	if l.Pos.Line == 0 {
		return nil
	}
	docs, known := p.files[l.File]
	if !known {
		data, err := p.s.text(l.File)
		if err == nil {
			docs = documents(l.File, data)
		}
		p.files[l.File], p.data[l.File] = docs, data
	}
	if l.doc >= len(docs) {
		return nil
	}
	n := docs[l.doc]
	var i int
	if l.Pos.Path == "resources" { // one for a list
		n = protoyaml.Get(n, "resources")
	} else if _, err := fmt.Sscanf(l.Pos.Path, "resources[%d]", &i); err == nil {
		list := protoyaml.Get(n, "resources")
		if list == nil || i >= len(list.Content) {
			return nil
		}
		n = list.Content[i]
	}
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Line != l.Pos.Line { // it is another file by now
		return nil
	}
	return n
}

func documents(path string, data []byte) []*yaml.Node {
	if strings.HasSuffix(strings.ToLower(path), ".json") {
		if n, err := protoyaml.ParseJSON(path, data); err == nil {
			return []*yaml.Node{n}
		}
		return nil
	}
	docs, err := protoyaml.ParseYAML(path, data)
	if err != nil {
		return nil
	}
	return docs
}
