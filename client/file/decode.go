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
	responseName = "envoy.service.discovery.v3.DiscoveryResponse"
	responseURL  = "type.googleapis.com/" + responseName
	resources    = 2 // the field of a DiscoveryResponse
)

// forms are the ways to write a file, by the end of its name.
var forms = map[string]func(*decoder){
	".yaml":      (*decoder).yaml,
	".yml":       (*decoder).yaml,
	".json":      (*decoder).json,
	".txtpb":     (*decoder).text,
	".textproto": (*decoder).text,
	".pb_text":   (*decoder).text,
	".pb":        (*decoder).binary,
}

// A decoder puts together the message that a file says, so that it is judged as one over gRPC is.
type decoder struct {
	protoyaml.Decoder
	types known
	body  []byte
	at    []*yaml.Node // where the resources in body stand; fewer: nobody knows
	i     []int        // which of the list they are
}

// decode returns the response in a file. What is wrong with it is Malformed.
func (t *transport) decode(only *xds.Type, data []byte, unread error) *xds.Response {
	sum := sha256.Sum256(data)
	version := hex.EncodeToString(sum[:8])
	bad := func(err error) *xds.Response {
		return &xds.Response{Type: only, Version: version, Changes: &xds.Changes{}, Malformed: []error{&xds.MalformedError{Err: err}}}
	}
	if e, ok := errors.AsType[*fs.PathError](unread); ok {
		unread = e.Err // the path is said anyway
	}
	if unread != nil {
		return bad(findings.Problem{File: t.path, Message: unread.Error()})
	}
	types := known{t.options.Resolver}
	d := &decoder{Decoder: protoyaml.Decoder{File: t.path, Source: data, Types: types}, types: types}
	t.form(d)
	r, err := wire.DecodeResponse(xds.SotW, d.body, wire.ResponseOptions{Only: only, Name: t.options.Name, Place: d.place})
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

// place says where a resource of the message stands.
func (d *decoder) place(i int) string {
	if i >= len(d.at) {
		return fmt.Sprintf("%s: resources[%d]", d.File, i)
	}
	return fmt.Sprintf("%s:%d:%d: resources[%d]", d.File, d.at[i].Line, d.at[i].Column, d.i[i])
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
		d.Report(&yaml.Node{}, "", "", "there is no DiscoveryResponse in it")
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

// document reads a DiscoveryResponse. A resource with a mistake is left out.
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
	case list.Kind != yaml.MappingNode: // one for a list of one is what Envoy takes, too
		d.Report(list, "resources", "", "a list is needed")
		return
	}
	for i, n := range items {
		path, before := fmt.Sprintf("resources[%d]", i), d.Errors()
		inner := d.Any(n, path)
		switch {
		case d.Errors() > before:
			continue
		case inner == nil: // as null, which is an Any without anything
			d.ReportAs(findings.NoMessage, n, path, "", `no "@type"`)
			continue
		}
		value, err := envoy.Marshal(inner.ProtoReflect())
		if err != nil {
			d.Report(n, path, "", "%v", err)
			continue
		}
		url := "type.googleapis.com/" + string(inner.ProtoReflect().Descriptor().FullName())
		d.at, d.i = append(d.at, n), append(d.i, i)
		d.body = protowire.AppendTag(d.body, resources, protowire.BytesType)
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

// text reads protobuf's text format, of which nobody tells the places: only of the first mistake.
func (d *decoder) text() {
	if !d.IsText() {
		return
	}
	d.Source = protoyaml.WithoutMark(d.Source)
	m := envoy.Envoy().New(responseName)
	if d.Text(m.Interface(), d.types, "the file must hold a DiscoveryResponse") {
		d.encode(m)
	}
}

func (d *decoder) binary() { d.body = d.Source }

// known finds messages: those of the program first.
type known struct{ Resolver }

func (k known) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := k.Resolver.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return envoy.Envoy().FindMessageByURL(url)
}

func (k known) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if t, err := k.Resolver.FindMessageByName(name); err == nil {
		return t, nil
	}
	return envoy.Envoy().FindMessageByName(name)
}

// Names returns those of Envoy's API, which are what a wrong one may mean.
func (k known) Names() iter.Seq[protoreflect.FullName] { return envoy.Envoy().Names() }
