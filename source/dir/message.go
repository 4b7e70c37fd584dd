package dir

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/protofile"
)

// whole stands for a file where nothing tells lines.
var whole = &yaml.Node{}

// text reads protobuf's text format. It holds a DiscoveryResponse, unless a
// comment at its head names another message.
func (d *decoder) text() {
	if !d.isText() {
		return
	}
	d.Source = protofile.WithoutMark(d.Source)
	name, line := header(d.Source)
	hint := ""
	if name == "" {
		name, hint = responseName, `read as a DiscoveryResponse: for another message, begin with a line "# proto-message: envoy.config.cluster.v3.Cluster"`
	}
	typ, err := d.types.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		d.ReportAs(findings.NoType, &yaml.Node{Line: line, Column: 1}, "", strings.ReplaceAll(d.MeantType(name), apis, ""), "no message type is known as %q", name)
		return
	}
	m := typ.New()
	if err := (prototext.UnmarshalOptions{RecursionLimit: maxNested, Resolver: d.types}).Unmarshal(d.Source, m.Interface()); err != nil {
		d.textError(err, hint)
		return
	}
	if name == responseName {
		d.responseMessage(m)
		return
	}
	d.entryMessage(m, "", said{})
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
		d.ReportAs(findings.Syntax, &yaml.Node{Line: last}, "", "", "the file ends in the middle of a value")
		return
	case found == nil && strings.Contains(err.Error(), "recursion depth"):
		d.Report(whole, "", "", "nested more than %d deep", maxNested)
		return
	case found == nil:
		d.ReportAs(findings.Syntax, whole, "", hint, "%s", unprefixed(err))
		return
	}
	line, _ := strconv.Atoi(found[2])
	col, _ := strconv.Atoi(found[3])
	d.Syntax(findings.Problem{Pos: findings.Pos{Line: line, Column: col}, Hint: hint, Message: strings.TrimSpace(found[1] + " " + unquoted(found[4]))})
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
	m := d.types.New(responseName)
	err := proto.UnmarshalOptions{Resolver: d.types}.Unmarshal(d.Source, m.Interface())
	d.Source = nil // nothing to quote
	switch {
	case err != nil:
		d.ReportAs(findings.Syntax, whole, "", "", "not an encoded DiscoveryResponse: %s", unprefixed(err))
	case len(m.GetUnknown()) > 0:
		d.ReportAs(findings.Syntax, whole, "", "", "not an encoded DiscoveryResponse: it has unknown fields")
	default:
		d.responseMessage(m)
	}
}

// responseMessage reads the resources of a response.
func (d *decoder) responseMessage(m protoreflect.Message) {
	in, resources := d.of(m, nil), get(m, "resources").List()
	if resources.Len() == 0 {
		d.WarnAs(findings.Empty, whole, "", "", "the DiscoveryResponse has no resources")
	}
	for i := range resources.Len() {
		path := fmt.Sprintf("resources[%d]", i)
		if inner := d.unpack(resources.Get(i).Message(), path); inner != nil {
			d.entryMessage(inner, path, in)
		}
	}
}

// entryMessage reads a resource, wrapped or not.
func (d *decoder) entryMessage(m protoreflect.Message, path string, in said) {
	if m.Descriptor().FullName() != wrapperName {
		d.add(whole, path, m.Interface(), &wrapped{}, in)
		return
	}
	f := m.Descriptor().Fields().ByName("resource")
	if !m.Has(f) {
		d.Report(whole, path, "", "the Resource has no field \"resource\"")
		return
	}
	if inner := d.unpack(m.Get(f).Message(), strings.TrimPrefix(path+".resource", ".")); inner != nil {
		var w wrapped
		w.says(m)
		d.add(whole, path, inner.Interface(), &w, in)
	}
}

// unpack returns the message in an Any.
func (d *decoder) unpack(a protoreflect.Message, path string) protoreflect.Message {
	url := get(a, "type_url").String()
	if !strings.HasPrefix(url, apis) {
		d.ReportAs(findings.NoType, whole, path, "", "type %q must be a full type URL, which begins with %s", url, apis)
		return nil
	}
	typ, err := d.types.FindMessageByURL(url)
	if err != nil {
		d.UnknownType(whole, url, path)
		return nil
	}
	m := typ.New()
	if err := (proto.UnmarshalOptions{Resolver: d.types}).Unmarshal(get(a, "value").Bytes(), m.Interface()); err != nil {
		d.Report(whole, path, "", "the value is not a valid %s: %s", m.Descriptor().Name(), unprefixed(err))
		return nil
	}
	return m
}
