package protoyaml

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/internal/text"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// Problems appear in logs, terminals and pages of build systems. So they quote the mistake and nothing
// else of the file: the same line may contain a secret. Problems inside a field that Envoy's API marks
// as sensitive, or inside a TypedStruct, quote nothing. Neither do problems about text in place of a
// message: the text may be a secret at the wrong level. A syntax error may show its whole line: see
// [Decoder.Syntax].

// kind describes a node for messages.
func (d *Decoder) kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "null"
	case d.secrets > 0 && n.Tag == "!!str":
		return "a string"
	case d.secrets > 0:
		return "a number or a bare word"
	case n.Tag == "!!str":
		return fmt.Sprintf("the string %q", shorten(n.Value))
	}
	return strings.TrimPrefix(n.Tag, "!!") + " " + shorten(n.Value)
}

// quoted returns a word in quotes, unless it may be a secret.
func (d *Decoder) quoted(s string) string {
	if d.secrets > 0 {
		return `"…"`
	}
	return fmt.Sprintf("%q", shorten(s))
}

// conceal calls report so that it quotes nothing.
func (d *Decoder) conceal(report func()) {
	d.secrets++
	report()
	d.secrets--
}

// wrongShape reports the required kind of value, without quoting the actual one, which may be a secret.
func (d *Decoder) wrongShape(n *yaml.Node, path, format string, args ...any) {
	d.conceal(func() { d.Report(n, path, "", format+", not %s", append(args, d.kind(n))...) })
}

// listNeeded reports that a list or a map is required.
func (d *Decoder) listNeeded(n *yaml.Node, of protoreflect.FieldDescriptor, path, need string) {
	if of.Message() != nil {
		d.wrongShape(n, path, "%s", need)
		return
	}
	d.Report(n, path, "", "%s, not %s", need, d.kind(n))
}

// unknownField reports an unknown key. Where secrets are possible, a key that does not resemble a field
// name may be a secret: YAML reads {secret} as {secret: null}.
func (d *Decoder) unknownField(key *yaml.Node, md protoreflect.MessageDescriptor, path string) {
	if !d.reports(d.errors + 1) { // past the limit: skip the search for a suggestion
		d.ReportAs(findings.UnknownField, key, path, "", "")
		return
	}
	hint, slip := "", false
	if near := Nearest(key.Value, fieldNames(md)); near != "" {
		hint, slip = fmt.Sprintf("did you mean %q?", near), distance(key.Value, near, 2) <= 2
	}
	if gone := formerField(protoreflect.Name(key.Value), md); gone != "" {
		hint, slip = gone, true // a word of the API, so not a secret
	}
	was := d.secrets
	defer func() { d.secrets = was }()
	switch {
	case slip:
		d.secrets = 0
	case secrets.Holds(md):
		d.secrets++
	}
	d.ReportAs(findings.UnknownField, key, path, hint, "unknown field %s in %s", d.quoted(key.Value), md.Name())
}

// maxQuoted is the maximum number of bytes quoted of a word.
const maxQuoted = 60

func shorten(s string) string { return text.Head(s, maxQuoted) }

// typeURL matches the type URLs of known APIs, which have at most maxTypeURL bytes. The regular expression has no
// limit, because each start of the program would compile each step of that.
var typeURL = regexp.MustCompile(`^type\.googleapis\.com/(envoy|xds|udpa|google)\.[\w.]+$`)

const maxTypeURL = 180

// ownKey matches a key at the end of a text, just before its value.
var ownKey = regexp.MustCompile(`("[^"]*"|'[^']*'|[\w.@/-]+)[ \t]*:[ \t]*$`)

const ellipsis = "…" // replaces omitted text

// excerpt returns the line of a node, reduced to the parts that a problem may quote: the node and its
// key. Caret is the column of the node, in characters.
func (d *Decoder) excerpt(n *yaml.Node) (text string, caret int) {
	if n.Line < 1 || n.Column < 1 || n.Kind == 0 {
		return "", 0
	}
	before, after, ok := splitAt(readable(d.line(n.Line)), n.Column-1)
	if !ok {
		return "", 0
	}
	near := before[max(0, len(before)-2*maxQuoted):]
	if key := ownKey.FindString(near); len(near) < len(before) || strings.Trim(strings.TrimSuffix(near, key), " \t-") != "" {
		before = ellipsis + " " + key
	}
	own, rest := token(n, after)
	switch rest = strings.TrimSpace(rest); {
	case rest == "" || rest == "," || rest[0] == '#':
	case rest[0] == ':':
		own += ": " + ellipsis
	default:
		own += " " + ellipsis
	}
	if strings.Trim(before+own, " \t-"+ellipsis) == "" { // the excerpt would show nothing but the position
		return "", 0
	}
	before = visible(before)
	return before + visible(own), utf8.RuneCountInString(before)
}

// line returns a line of the source, counted from 1; nil if there is none. It searches from the line
// quoted last, which is usually near: a file may have a million lines and one mistake.
func (d *Decoder) line(n int) []byte {
	for d.quotedLine < n-1 {
		next := bytes.IndexByte(d.Source[d.quotedOffset:], '\n')
		if next < 0 {
			return nil
		}
		d.quotedLine, d.quotedOffset = d.quotedLine+1, d.quotedOffset+next+1
	}
	for d.quotedLine > n-1 {
		d.quotedLine, d.quotedOffset = d.quotedLine-1, bytes.LastIndexByte(d.Source[:d.quotedOffset-1], '\n')+1
	}
	line, _, _ := bytes.Cut(d.Source[d.quotedOffset:], []byte("\n"))
	return line
}

// splitAt splits a line before a character.
func splitAt(line string, character int) (before, after string, ok bool) {
	for i := range line {
		if character == 0 {
			return line[:i], line[i:], true
		}
		character--
	}
	return "", "", false
}

// token returns the text of a node in its line, and the text after it.
func token(n *yaml.Node, line string) (own, rest string) {
	switch {
	case n.Kind == yaml.MappingNode && strings.HasPrefix(line, "{"):
		return "{" + ellipsis + "}", ""
	case n.Kind == yaml.SequenceNode && strings.HasPrefix(line, "["):
		return "[" + ellipsis + "]", ""
	case n.Kind == yaml.ScalarNode && n.Value != "":
		for _, quote := range []string{"", `"`, "'"} {
			if rest, ok := strings.CutPrefix(line, quote+n.Value+quote); ok {
				if len(n.Value) <= maxTypeURL && typeURL.MatchString(n.Value) { // its end is the most useful part
					return quote + n.Value + quote, rest
				}
				return quote + shorten(n.Value) + quote, rest
			}
		}
	}
	return ellipsis, ""
}

// readable returns a line without its line break.
func readable(line []byte) string {
	return strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "\uFFFD")
}
