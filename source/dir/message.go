package dir

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	envoysecrets "github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// whole is the node of a file without line numbers.
var whole = &yaml.Node{}

// text decodes protobuf's text format. The file has a DiscoveryResponse, unless a comment at its head
// names another message.
func (d *decoder) text() {
	if !d.IsText() {
		return
	}
	d.byteOrderMark()
	d.Source = protoyaml.WithoutBOM(d.Source)
	name, line := header(d.Source)
	hint := ""
	if name == "" {
		name, hint = responseName, `read as a DiscoveryResponse: for another message, begin with a line "# proto-message: envoy.config.cluster.v3.Cluster"`
	}
	typ, err := d.types.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		d.ReportAs(findings.UnknownType, &yaml.Node{Line: line, Column: 1}, "", strings.ReplaceAll(d.SuggestType(name), apis, ""), "no message type is known as %q", name)
		return
	}
	m := typ.New()
	if !d.Text(m.Interface(), d.types, hint) {
		return
	}
	if name == responseName {
		d.responseMessage(m)
		return
	}
	d.entryMessage(m, "", responseInfo{})
}

// header returns the message that a comment at the head of a file names, in the format of protobuf's
// own tools, and the line of the comment.
func header(src []byte) (name string, line int) {
	for row := range bytes.Lines(src) {
		line++
		row = bytes.TrimSpace(row)
		comment, ok := bytes.CutPrefix(row, []byte("#"))
		if !ok && len(row) > 0 {
			break
		}
		if v, ok := bytes.CutPrefix(bytes.TrimSpace(comment), []byte("proto-message:")); ok {
			return string(bytes.TrimSpace(v)), line
		}
	}
	return "", 0
}

// binary decodes an encoded DiscoveryResponse.
func (d *decoder) binary() {
	m := d.types.New(responseName)
	err := proto.UnmarshalOptions{Resolver: d.types}.Unmarshal(d.Source, m.Interface())
	d.Source = nil // binary data is not quoted
	switch {
	case err != nil:
		d.ReportAs(findings.Syntax, whole, "", "", "not an encoded DiscoveryResponse: %s", protoyaml.Unprefixed(err))
	case len(m.GetUnknown()) > 0:
		d.ReportAs(findings.Syntax, whole, "", "", "not an encoded DiscoveryResponse: it has unknown fields")
	default:
		d.responseMessage(m)
	}
}

// responseMessage decodes the resources of a response.
func (d *decoder) responseMessage(m protoreflect.Message) {
	in, resources := d.responseInfo(m, nil), get(m, "resources").List()
	if resources.Len() == 0 {
		d.WarnAs(findings.EmptyFile, whole, "", "", "the DiscoveryResponse has no resources")
	}
	for i := range resources.Len() {
		path := fmt.Sprintf("resources[%d]", i)
		if inner := d.unpack(resources.Get(i).Message(), path); inner != nil {
			d.entryMessage(inner, path, in)
		}
	}
}

// entryMessage decodes a resource, with or without a wrapper.
func (d *decoder) entryMessage(m protoreflect.Message, path string, in responseInfo) {
	if m.Descriptor().FullName() != wrapperName {
		d.add(whole, path, m.Interface(), &wrapperFields{}, in)
		return
	}
	f := m.Descriptor().Fields().ByName("resource")
	if !m.Has(f) {
		d.Report(whole, path, "", "the Resource has no field \"resource\"")
		return
	}
	if inner := d.unpack(m.Get(f).Message(), strings.TrimPrefix(path+".resource", ".")); inner != nil {
		var w wrapperFields
		w.read(m)
		d.add(whole, path, inner.Interface(), &w, in)
	}
}

// unpack returns the message in an Any.
func (d *decoder) unpack(a protoreflect.Message, path string) protoreflect.Message {
	url := get(a, "type_url").String()
	if !strings.HasPrefix(url, apis) {
		d.ReportAs(findings.UnknownType, whole, path, "", "type %q must be a full type URL, which begins with %s", url, apis)
		return nil
	}
	typ, err := d.types.FindMessageByURL(url)
	if err != nil {
		d.UnknownType(whole, url, path)
		return nil
	}
	m := typ.New()
	if err := (proto.UnmarshalOptions{Resolver: d.types, RecursionLimit: envoysecrets.MaxMessages + 1}).Unmarshal(get(a, "value").Bytes(), m.Interface()); err != nil {
		d.Report(whole, path, "", "the value is not a valid %s: %s", m.Descriptor().Name(), protoyaml.Unprefixed(err))
		return nil
	}
	return m
}
