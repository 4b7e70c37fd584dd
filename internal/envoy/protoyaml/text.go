package protoyaml

import (
	"bytes"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/findings"
)

// IsText reports whether the file is text, and adds an error at the first invalid byte.
func (d *Decoder) IsText() bool {
	line, col := 1, 1
	for i := 0; i < len(d.Source); {
		r, w := utf8.DecodeRune(d.Source[i:])
		switch {
		case r == utf8.RuneError && w == 1 || r == 0:
			d.ReportAs(findings.Syntax, &yaml.Node{Line: line, Column: col}, "", Encoding(d.Source), "this is not text: byte %#02x", d.Source[i])
			return false
		case r == '\n':
			line, col = line+1, 1
		default:
			col++
		}
		i += w
	}
	return true
}

// A Resolver finds the types and extensions for protobuf's text format.
type Resolver interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// Text reads the file as a message in protobuf's text format, and reports success. Errors about unknown
// names get the hint. Errors do not quote lines.
func (d *Decoder) Text(m proto.Message, r Resolver, hint string) bool {
	// RecursionLimit bounds the cost of nested Anys: the bytes of a message are encoded once for each
	// Any around it.
	err := (prototext.UnmarshalOptions{RecursionLimit: maxNesting, Resolver: r}).Unmarshal(d.Source, m)
	if err != nil {
		d.textError(err, hint)
	}
	return err == nil
}

// The reader writes some of its spaces as no-break spaces, at random.
var textError = regexp.MustCompile(`(?s)^proto:[\s\x{a0}]*(.*?)\(line (\d+):(\d+)\): (.*)$`)

func (d *Decoder) textError(err error, hint string) {
	found := textError.FindStringSubmatch(err.Error())
	switch {
	case found == nil && Unprefixed(err) == io.ErrUnexpectedEOF.Error():
		last := 1 + bytes.Count(d.Source, []byte("\n"))
		d.ReportAs(findings.Syntax, &yaml.Node{Line: last}, "", "", "the file ends in the middle of a value")
		return
	case found == nil && strings.Contains(err.Error(), "recursion depth"):
		d.Report(&yaml.Node{}, "", "", "nested more than %d deep", maxNesting)
		return
	case found == nil:
		d.ReportAs(findings.Syntax, &yaml.Node{}, "", hint, "%s", Unprefixed(err))
		return
	}
	line, _ := strconv.Atoi(found[2])
	col, _ := strconv.Atoi(found[3])
	d.Syntax(findings.Problem{Pos: findings.Pos{Line: line, Column: col}, Hint: hint, Message: strings.TrimSpace(found[1] + " " + unquoted(found[4]))})
}

var (
	readersQuote = regexp.MustCompile(`(?s)^((?:invalid|unexpected)[^:]*):.*$`)
	longQuote    = regexp.MustCompile(` "(?:\\.|[^"\\]){2,}"`)
)

// unquoted removes the quoted value, which may be a secret, from an error of the text reader.
func unquoted(message string) string {
	if strings.HasPrefix(message, "unknown field: ") { // the reader does not name the message
		return "unknown field"
	}
	message = readersQuote.ReplaceAllString(message, "$1")
	if strings.HasPrefix(message, "invalid") {
		message = longQuote.ReplaceAllString(message, "")
	}
	return message
}

// Unprefixed returns the text of an error of the protobuf library without its prefix.
func Unprefixed(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}
