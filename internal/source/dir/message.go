package dir

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// whole stands for a file where nothing tells lines.
var whole = &yaml.Node{}

// text reads protobuf's text format. It holds a DiscoveryResponse, unless a
// comment at its head names another message.
func (d *decoder) text() {
	if !d.isText() {
		return
	}
	name, line := header(d.Source)
	hint := ""
	if name == "" {
		name, hint = strings.TrimPrefix(response, apis), `read as a DiscoveryResponse: for another message, begin with a line "# proto-message: envoy.config.cluster.v3.Cluster"`
	}
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		d.Report(&yaml.Node{Line: line, Column: 1}, "", "", "no message type is known as %q", name)
		return
	}
	m := typ.New().Interface()
	if err := (prototext.UnmarshalOptions{RecursionLimit: maxNested}).Unmarshal(d.Source, m); err != nil {
		d.textError(err, hint)
		return
	}
	if m, ok := m.(*discoveryv3.DiscoveryResponse); ok {
		d.responseMessage(m)
		return
	}
	d.entryMessage(m, "", &discoveryv3.DiscoveryResponse{})
}

// header returns the message that a comment at the head of a file names, as
// protobuf's own tools have it, and the comment's line.
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

// The reader writes some of its spaces as no-break spaces, at random.
var textError = regexp.MustCompile(`(?s)^proto:[\s\x{a0}]*(.*?)\(line (\d+):(\d+)\): (.*)$`)

func (d *decoder) textError(err error, hint string) {
	found := textError.FindStringSubmatch(err.Error())
	switch {
	case found == nil && unprefixed(err) == io.ErrUnexpectedEOF.Error():
		last := 1 + bytes.Count(d.Source, []byte("\n"))
		d.Report(&yaml.Node{Line: last}, "", "", "the file ends in the middle of a value")
		return
	case found == nil && strings.Contains(err.Error(), "recursion depth"):
		d.Report(whole, "", "", "nested more than %d deep", maxNested)
		return
	case found == nil:
		d.Report(whole, "", hint, "%s", unprefixed(err))
		return
	}
	line, _ := strconv.Atoi(found[2])
	col, _ := strconv.Atoi(found[3])
	d.Report(&yaml.Node{Line: line, Column: col}, "", hint, "%s", strings.TrimSpace(found[1]+" "+unquoted(found[4])))
}

// maxNested is how deep messages may stand in each other in text. Those in an Any are
// encoded once for each Any around them.
const maxNested = 200

var (
	readersQuote = regexp.MustCompile(`(?s)^((?:invalid|unexpected)[^:]*):.*$`)
	longQuote    = regexp.MustCompile(` "(?:\\.|[^"\\]){2,}"`)
)

// unquoted returns what the reader of text says without the value it quotes, which may
// be a secret.
func unquoted(message string) string {
	if strings.HasPrefix(message, "unknown field: ") { // in what message, the reader does not say
		return "unknown field"
	}
	message = readersQuote.ReplaceAllString(message, "$1")
	if strings.HasPrefix(message, "invalid") {
		message = longQuote.ReplaceAllString(message, "")
	}
	return message
}

// unprefixed returns the text of an error of the protobuf library.
func unprefixed(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

// binary reads an encoded DiscoveryResponse.
func (d *decoder) binary() {
	var m discoveryv3.DiscoveryResponse
	err := proto.Unmarshal(d.Source, &m)
	d.Source = nil // nothing to quote
	switch {
	case err != nil:
		d.Report(whole, "", "", "not an encoded DiscoveryResponse: %s", unprefixed(err))
	case len(m.ProtoReflect().GetUnknown()) > 0:
		d.Report(whole, "", "", "not an encoded DiscoveryResponse: it has fields that a DiscoveryResponse does not have")
	default:
		d.responseMessage(&m)
	}
}

// responseMessage reads the resources of a response.
func (d *decoder) responseMessage(m *discoveryv3.DiscoveryResponse) {
	if len(m.Resources) == 0 {
		d.Warn(whole, "", "", "a DiscoveryResponse without resources")
	}
	for i, a := range m.Resources {
		path := fmt.Sprintf("resources[%d]", i)
		if inner := d.unpack(a, path); inner != nil {
			d.entryMessage(inner, path, m)
		}
	}
}

// entryMessage reads a resource, wrapped or not.
func (d *decoder) entryMessage(m proto.Message, path string, in *discoveryv3.DiscoveryResponse) {
	w, ok := m.(*discoveryv3.Resource)
	if !ok {
		d.add(whole, path, m, &wrapped{Resource: &discoveryv3.Resource{}}, in)
		return
	}
	if w.Resource == nil {
		d.Report(whole, path, "", "a Resource without its resource")
		return
	}
	if inner := d.unpack(w.Resource, strings.TrimPrefix(path+".resource", ".")); inner != nil {
		d.add(whole, path, inner, &wrapped{Resource: w}, in)
	}
}

func (d *decoder) unpack(a *anypb.Any, path string) proto.Message {
	if !strings.HasPrefix(a.GetTypeUrl(), apis) {
		d.Report(whole, path, "", "type %q is no type URL that begins with %s", a.GetTypeUrl(), apis)
		return nil
	}
	typ, err := protoregistry.GlobalTypes.FindMessageByURL(a.TypeUrl)
	if err != nil {
		d.Report(whole, path, "", "no message type is known as %q", strings.TrimPrefix(a.TypeUrl, apis))
		return nil
	}
	m := typ.New().Interface()
	if err := proto.Unmarshal(a.Value, m); err != nil {
		d.Report(whole, path, "", "no %s is in there: %s", m.ProtoReflect().Descriptor().Name(), unprefixed(err))
		return nil
	}
	return m
}
