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

// Problems are told to logs, terminals and pages of build systems. So they quote what
// is wrong, and no more of the file: what stands in the same line may be a secret.
// Within a field that Envoy's API marks as sensitive nothing is quoted, nor within the
// JSON of a TypedStruct. Nor is text where a message is needed: it may be a secret that
// stands a level too high.
// Of a file that nobody can read a whole line may be shown: see [Decoder.Syntax].

// kind names what stands there, for people.
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

// conceal has report quote nothing.
func (d *Decoder) conceal(report func()) {
	d.secrets++
	report()
	d.secrets--
}

// misshapen reports what is needed where something else stands that may be a secret.
func (d *Decoder) misshapen(n *yaml.Node, path, format string, args ...any) {
	d.conceal(func() { d.Report(n, path, "", format+", not %s", append(args, d.kind(n))...) })
}

// unlisted reports that a list or a map of what the field describes is needed.
func (d *Decoder) unlisted(n *yaml.Node, of protoreflect.FieldDescriptor, path, need string) {
	if of.Message() != nil {
		d.misshapen(n, path, "%s", need)
		return
	}
	d.Report(n, path, "", "%s, not %s", need, d.kind(n))
}

// unknownField reports a key. Where secrets are, a key that is no slip of a field's name
// may be one itself: {secret} is a mapping that YAML reads as {secret: null}.
func (d *Decoder) unknownField(key *yaml.Node, md protoreflect.MessageDescriptor, path string) {
	if !d.tells(d.errors + 1) { // what it may mean is not looked for
		d.ReportAs(findings.UnknownField, key, path, "", "")
		return
	}
	hint, slip := "", false
	if near := Nearest(key.Value, fieldNames(md)); near != "" {
		hint, slip = fmt.Sprintf("did you mean %q?", near), distance(key.Value, near, 2) <= 2
	}
	if gone := formerly(protoreflect.Name(key.Value), md); gone != "" {
		hint, slip = gone, true // the API's own word, and no secret
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

// maxQuoted is how many bytes are quoted of a word.
const maxQuoted = 60

func shorten(s string) string { return text.Head(s, maxQuoted) }

// typeURL matches the types of messages.
var typeURL = regexp.MustCompile(`^type\.googleapis\.com/(envoy|xds|udpa|google)\.[\w.]{1,150}$`)

// ownKey matches the key of the value that begins where the text ends.
var ownKey = regexp.MustCompile(`("[^"]*"|'[^']*'|[\w.@/-]+)[ \t]*:[ \t]*$`)

const left = "…" // for what is left out

// excerpt returns the line of a node with what a problem may quote of it: the node and
// its key. Caret is where the node begins, in characters.
func (d *Decoder) excerpt(n *yaml.Node) (text string, caret int) {
	if n.Line < 1 || n.Column < 1 || n.Kind == 0 {
		return "", 0
	}
	before, after, ok := around(readable(d.line(n.Line)), n.Column-1)
	if !ok {
		return "", 0
	}
	near := before[max(0, len(before)-2*maxQuoted):]
	if key := ownKey.FindString(near); len(near) < len(before) || strings.Trim(strings.TrimSuffix(near, key), " \t-") != "" {
		before = left + " " + key
	}
	own, rest := token(n, after)
	switch rest = strings.TrimSpace(rest); {
	case rest == "" || rest == "," || rest[0] == '#':
	case rest[0] == ':':
		own += ": " + left
	default:
		own += " " + left
	}
	if strings.Trim(before+own, " \t-"+left) == "" { // nothing that tells more than the place
		return "", 0
	}
	before = visible(before)
	return before + visible(own), utf8.RuneCountInString(before)
}

// line returns a line of the source, which counts from 1; nil if there is none. It goes there from the one
// that was quoted last, which mostly is near: a file may have a million lines and one mistake.
func (d *Decoder) line(n int) []byte {
	for d.above < n-1 {
		next := bytes.IndexByte(d.Source[d.from:], '\n')
		if next < 0 {
			return nil
		}
		d.above, d.from = d.above+1, d.from+next+1
	}
	for d.above > n-1 {
		d.above, d.from = d.above-1, bytes.LastIndexByte(d.Source[:d.from-1], '\n')+1
	}
	line, _, _ := bytes.Cut(d.Source[d.from:], []byte("\n"))
	return line
}

// around cuts a line before a character.
func around(line string, character int) (before, after string, ok bool) {
	for i := range line {
		if character == 0 {
			return line[:i], line[i:], true
		}
		character--
	}
	return "", "", false
}

// token returns how a node is spelled in its line, and what follows it.
func token(n *yaml.Node, line string) (own, rest string) {
	switch {
	case n.Kind == yaml.MappingNode && strings.HasPrefix(line, "{"):
		return "{" + left + "}", ""
	case n.Kind == yaml.SequenceNode && strings.HasPrefix(line, "["):
		return "[" + left + "]", ""
	case n.Kind == yaml.ScalarNode && n.Value != "":
		for _, quote := range []string{"", `"`, "'"} {
			if rest, ok := strings.CutPrefix(line, quote+n.Value+quote); ok {
				if typeURL.MatchString(n.Value) { // the end of which says most
					return quote + n.Value + quote, rest
				}
				return quote + shorten(n.Value) + quote, rest
			}
		}
	}
	return left, ""
}

// readable returns a line without its end.
func readable(line []byte) string {
	return strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "\uFFFD")
}
