package file

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

const (
	responseName   = "envoy.service.discovery.v3.DiscoveryResponse"
	responseURL    = "type.googleapis.com/" + responseName
	resourcesField = 2 // the field of a DiscoveryResponse
)

// formats are the file formats, by the extension of the file name.
var formats = map[string]func(*decoder){
	".yaml":      (*decoder).yaml,
	".yml":       (*decoder).yaml,
	".json":      (*decoder).json,
	".txtpb":     (*decoder).text,
	".textproto": (*decoder).text,
	".pb_text":   (*decoder).text,
	".pb":        (*decoder).binary,
}

// A decoder encodes the message in a file, so that it is checked like a message over gRPC.
type decoder struct {
	protoyaml.Decoder
	types   knownTypes
	body    []byte
	nodes   []*yaml.Node // the nodes of the resources in body; fewer if positions are unknown
	indexes []int        // their indexes in the file's list
}

// decode returns the response in a file. Errors are in its Malformed. unread is the error of reading
// the file.
func (t *transport) decode(only *xds.Type, data []byte, unread error) *xds.Response {
	sum := sha256.Sum256(data)
	version := hex.EncodeToString(sum[:8])
	bad := func(err error) *xds.Response {
		return &xds.Response{Type: only, Version: version, Changes: &xds.Changes{}, Malformed: []error{&xds.MalformedError{Err: err}}}
	}
	if e, ok := errors.AsType[*fs.PathError](unread); ok {
		unread = e.Err // the errors below contain the path
	}
	if unread != nil {
		return bad(findings.Problem{File: t.path, Message: unread.Error()})
	}
	types := knownTypes{t.options.Resolver}
	d := &decoder{Decoder: protoyaml.Decoder{File: t.path, Source: data, Types: types}, types: types}
	t.format(d)
	r, err := wire.DecodeResponse(xds.SotW, d.body, wire.ResponseOptions{Only: only, Name: t.options.ResourceName, Place: d.place})
	if err != nil {
		return bad(fmt.Errorf("%s: %w", t.path, err))
	}
	for _, p := range d.Problems {
		if !p.Warning {
			r.Malformed = append(r.Malformed, &xds.MalformedError{Err: p})
		}
	}
	if more := d.Errors() - protoyaml.MaxProblems; more > 0 {
		r.Malformed = append(r.Malformed, &xds.MalformedError{Err: fmt.Errorf("%s: and %d more", t.path, more)})
	}
	r.Version = cmp.Or(r.Version, version)
	return r
}

// place returns the position of a resource in the file.
func (d *decoder) place(i int) string {
	if i >= len(d.nodes) {
		return fmt.Sprintf("%s: resources[%d]", d.File, i)
	}
	return fmt.Sprintf("%s:%d:%d: resources[%d]", d.File, d.nodes[i].Line, d.nodes[i].Column, d.indexes[i])
}

func (d *decoder) yaml() {
	if !d.IsText() {
		return
	}
	docs, err := protoyaml.ParseYAML(d.File, d.Source)
	switch {
	case err != nil:
		d.syntax(err)
	case len(docs) == 0:
		d.Report(&yaml.Node{}, "", "", "the file has no DiscoveryResponse")
	case len(docs) > 1:
		d.Report(docs[1], "", "", "a second document: the file must hold one DiscoveryResponse")
	default:
		d.document(docs[0])
	}
}

func (d *decoder) json() {
	if !d.IsText() {
		return
	}
	n, err := protoyaml.ParseJSON(d.File, d.Source)
	if err != nil {
		d.syntax(err)
		return
	}
	d.document(n)
}

func (d *decoder) syntax(err error) {
	if p, ok := errors.AsType[findings.Problem](err); ok {
		d.Syntax(p)
	}
}

// document reads a DiscoveryResponse. It leaves out resources with an error.
func (d *decoder) document(n *yaml.Node) {
	flat := d.Flat(n, "")
	if flat == nil {
		return
	}
	if url := protoyaml.Get(flat, "@type"); url != nil && url.Value != responseURL {
		d.Report(url, "", "put it below \"resources:\"", "the file must hold a DiscoveryResponse")
		return
	}
	head := *flat
	head.Content = nil
	var list *yaml.Node
	for i := 0; i < len(flat.Content); i += 2 {
		switch key := flat.Content[i]; key.Value {
		case "@type":
		case "resources":
			list = protoyaml.Get(flat, key.Value)
		default:
			head.Content = append(head.Content, key, flat.Content[i+1])
		}
	}
	m := envoy.Envoy().New(responseName)
	d.Message(&head, m.Interface(), "")
	d.encode(m)
	items := []*yaml.Node{list}
	switch {
	case list == nil || list.ShortTag() == "!!null":
		return
	case list.Kind == yaml.SequenceNode:
		items = list.Content
	case list.Kind != yaml.MappingNode: // Envoy also accepts a single resource instead of a list
		d.Report(list, "resources", "", "a list is needed")
		return
	}
	for i, n := range items {
		path, before := fmt.Sprintf("resources[%d]", i), d.Errors()
		inner := d.Any(n, path)
		switch {
		case d.Errors() > before:
			continue
		case inner == nil: // null is an empty Any
			d.ReportAs(findings.NotResource, n, path, "", `no "@type"`)
			continue
		}
		value, err := envoy.Marshal(inner.ProtoReflect())
		if err != nil {
			d.Report(n, path, "", "%v", err)
			continue
		}
		url := "type.googleapis.com/" + string(inner.ProtoReflect().Descriptor().FullName())
		d.nodes, d.indexes = append(d.nodes, n), append(d.indexes, i)
		d.body = protowire.AppendTag(d.body, resourcesField, protowire.BytesType)
		d.body = protowire.AppendBytes(d.body, packed(url, value))
	}
}

// packed encodes an Any.
func packed(url string, value []byte) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), url)
	return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), value)
}

func (d *decoder) encode(m protoreflect.Message) {
	b, err := proto.Marshal(m.Interface())
	if err != nil {
		d.Report(&yaml.Node{}, "", "", "%v", err)
		return
	}
	d.body = b
}

// text reads protobuf's text format. Its parser reports only the position of the first error, not those
// of resources.
func (d *decoder) text() {
	if !d.IsText() {
		return
	}
	d.Source = protoyaml.WithoutBOM(d.Source)
	m := envoy.Envoy().New(responseName)
	if d.Text(m.Interface(), d.types, "the file must hold a DiscoveryResponse") {
		d.encode(m)
	}
}

func (d *decoder) binary() { d.body = d.Source }

// knownTypes finds message types: first those of the program, then those of Envoy's API.
type knownTypes struct{ Resolver }

func (k knownTypes) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := k.Resolver.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return envoy.Envoy().FindMessageByURL(url)
}

func (k knownTypes) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if t, err := k.Resolver.FindMessageByName(name); err == nil {
		return t, nil
	}
	return envoy.Envoy().FindMessageByName(name)
}

// Names returns the names of Envoy's API, for suggestions of a similar name.
func (k knownTypes) Names() iter.Seq[protoreflect.FullName] { return envoy.Envoy().Names() }
