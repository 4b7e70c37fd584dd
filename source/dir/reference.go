package dir

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

// A placer finds the places of fields in resources that were decoded before. The source does not keep
// the places of fields in valid files, so the placer reads each file once more.
type placer struct {
	source *Source
	files  map[string][]*yaml.Node // the documents; nil: unknown
	data   map[string][]byte

	of     Pos                            // the resource that look decoded last
	md     protoreflect.MessageDescriptor // its type; nil: it cannot be decoded
	places map[xds.Ref]string             // paths of its references
}

func newPlacer(s *Source) *placer {
	return &placer{source: s, files: map[string][]*yaml.Node{}, data: map[string][]byte{}}
}

// look decodes a resource to find its references. References of one resource follow each other, so it
// is decoded once.
func (p *placer) look(l Loaded) {
	if p.of == l.Pos {
		return
	}
	p.of, p.md, p.places = l.Pos, nil, map[xds.Ref]string{}
	typ, err := p.source.types.FindMessageByURL(l.Type.URL)
	if err != nil {
		return
	}
	m := typ.New()
	if (proto.UnmarshalOptions{Resolver: p.source.types}).Unmarshal(l.Body, m.Interface()) == nil {
		p.md, p.places = m.Descriptor(), refs.Places(p.source.types, m.Interface())
	}
}

// reference moves the problem of a reference from the place of the resource to the place of the
// reference.
func (p *placer) reference(d dangling) dangling {
	p.look(d.from)
	path := cmp.Or(d.path, p.places[d.to])
	if path == "" {
		return d
	}
	n := p.node(d.from)
	if n == nil {
		d.Path = strings.Trim(d.from.Pos.Path+"."+path, ".")
		return d
	}
	dec := &decoder{Decoder: protoyaml.Decoder{File: d.from.File, Source: p.data[d.from.File], Types: p.source.types}, reader: p.source.reader}
	at, whole := dec.place(n, d.from.Pos.Path, p.md, path)
	if d.Warning {
		dec.WarnAt(at, d.Code, whole, d.Hint, d.Message)
	} else {
		dec.ReportAt(at, d.Code, whole, d.Hint, d.Message)
	}
	group := d.Group
	d.Problem = dec.Problems[0]
	d.Problem.Group = group
	return d
}

// node returns the node of a resource; nil if it is not found.
func (p *placer) node(l Loaded) *yaml.Node {
	if l.Pos.Line == 0 {
		return nil
	}
	docs, known := p.files[l.File]
	if !known {
		data, err := p.source.text(l.File)
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
	if l.Pos.Path == "resources" { // a mapping in the place of the list
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
	if n == nil || n.Line != l.Pos.Line { // the file has changed since
		return nil
	}
	return n
}

// documents parses a YAML or JSON file; nil if it is invalid.
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
