package protoyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
)

// ParseYAML returns the documents of a YAML file. Its error is a Problem that quotes nothing, because
// any text of an unreadable file may be a secret.
func ParseYAML(file string, src []byte) ([]*yaml.Node, error) {
	if last := src[bytes.LastIndexByte(src, '\n')+1:]; len(bytes.TrimLeft(last, " ")) == 0 {
		src = src[:len(src)-len(last)] // the parser would take the spaces for a line of a block
	}
	var docs []*yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(src))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, syntax(file, src, err)
		}
		if bad := normalize(&n); bad != nil {
			return nil, findings.Problem{File: file, Pos: findings.Pos{Line: bad.Line, Column: bad.Column}, Message: "a tag has no meaning here", Hint: tagHint}
		}
		if len(n.Content) > 0 && !isNull(n.Content[0]) {
			docs = append(docs, n.Content[0])
		}
	}
}

// Ignored is Envoy's tag of a key that it leaves out. The value may hold anchors.
const Ignored = "!ignore"

// normalize drops ignored keys, and tags numbers by the core schema of YAML 1.2: the parser also accepts
// numbers of YAML 1.1, such as 1_000. It returns a node with a tag that YAML itself does not know, or nil.
func normalize(n *yaml.Node) (unknownTag *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!" { // "! 5" is the text 5
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && n.Value != "" && strings.IndexByte("0123456789+-.", n.Value[0]) >= 0 && n.Tag != "!!timestamp" {
		n.Tag = coreTag(n.Value)
		return nil
	}
	switch n.ShortTag() {
	case "!!null":
		if n.Style&yaml.TaggedStyle != 0 { // Envoy takes the text
			return n
		}
	case "", "!!bool", "!!int", "!!float", "!!str", "!!timestamp", "!!binary", "!!map", "!!seq", "!!merge":
	default:
		return n
	}
	dropped := 0
	for i, c := range n.Content {
		drop := n.Kind == yaml.MappingNode && n.Content[i&^1].Tag == Ignored
		if drop {
			dropped++
		} else {
			n.Content[i-dropped] = c
		}
		if drop && i&1 == 0 {
			continue
		}
		if bad := normalize(c); bad != nil {
			return bad
		}
	}
	n.Content = n.Content[:len(n.Content)-dropped]
	return nil
}

// YAML reads text that begins with "!" as a tag, even if it was meant to be a password.
const tagHint = `text that begins with "!" needs quotes`

// An unknown anchor may be a password that begins with "*", so its name must not be quoted.
var unknownAnchor = regexp.MustCompile(`^unknown anchor '.*' referenced$`)

// reserved finds a key or a value that begins with a character that YAML forbids there: "The reserved
// indicators can't start a plain scalar" (YAML 1.2.2, 5.3), and % begins a directive.
var reserved = regexp.MustCompile("(?:^|[\\s\\[{,:-])([@`%])")

// syntax converts an error of the YAML reader to a Problem.
func syntax(file string, src []byte, err error) findings.Problem {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return findings.Problem{File: file, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	p := findings.Problem{File: file, Pos: findings.Pos{Line: e.Mark.Line, Column: e.Mark.Column}, Message: e.Message}
	from := findings.Pos{Line: e.ContextMark.Line, Column: e.ContextMark.Column}
	line := sourceLine(src, p.Pos.Line)
	at := reserved.FindStringSubmatchIndex(line)
	switch {
	case strings.HasSuffix(e.Message, "cannot start any token") && at != nil:
		p.Pos.Column, p.Hint = 1+utf8.RuneCountInString(line[:at[2]]), "text that begins with '"+line[at[2]:at[3]]+"' needs quotes"
	case unknownAnchor.MatchString(e.Message):
		p.Message, p.Hint = "this alias has no anchor", `text that begins with "*" needs quotes`
	case strings.ContainsRune(line, '\t'):
		p.Hint = "YAML does not allow tabs for indentation: use spaces"
	case e.Message == "did not find expected alphabetic or numeric character" && strings.Contains(line, "*"):
		p.Hint = starHint
	case e.ContextMsg == "while scanning a simple key": // the reader has read past the mistake
		p.Pos = from
	case strings.HasPrefix(e.Message, "mapping values are not allowed"):
		p.Hint = `text that contains ": " needs quotes; all keys of a mapping must begin in the same column`
	default:
		p.Hint = enclosing(e.ContextMsg, from)
	}
	if end := endOf(src); p.Pos.Line > end.Line {
		p.Pos = end
		if p.Hint == "" {
			p.Hint = "the file ends here"
		}
	}
	if p.Pos.Line == 0 { // the reader gives no position for control characters
		i := bytes.IndexFunc(src, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r) })
		p.Pos = placeOf(src, max(i, 0))
	}
	if hint, pos := cause(src, p.Pos); hint != "" {
		p.Hint, p.Pos = hint, pos
	}
	return p
}

// endOf returns the position after the last text of a file.
func endOf(src []byte) findings.Pos {
	return placeOf(src, len(bytes.TrimRight(src, " \t\r\n")))
}

// placeOf returns the position of a byte.
func placeOf(src []byte, i int) findings.Pos {
	src = src[:i]
	return findings.Pos{Line: 1 + bytes.Count(src, []byte("\n")), Column: 1 + utf8.RuneCount(src[bytes.LastIndexByte(src, '\n')+1:])}
}

// enclosing returns a hint with the start of the structure that the reader was in. The mistake is often
// there, such as a bracket that is never closed.
func enclosing(what string, from findings.Pos) string {
	switch what {
	case "while parsing a flow sequence":
		what = "in the list whose [ is at %d:%d"
	case "while parsing a flow mapping":
		what = "in the mapping whose { is at %d:%d"
	case "while parsing a block mapping":
		return fmt.Sprintf("in the mapping that begins at %d:%d: each of its keys must begin in column %d", from.Line, from.Column, from.Column)
	case "while parsing a block collection":
		return fmt.Sprintf("in the list that begins at %d:%d: each of its - must be in column %d", from.Line, from.Column, from.Column)
	case "while scanning a quoted scalar":
		what = "in the text whose quotes begin at %d:%d"
	default:
		return ""
	}
	return fmt.Sprintf(what, from.Line, from.Column)
}

// ParseJSON returns a JSON file as the tree that ParseYAML makes. Its error is a Problem that quotes at
// most one character of the file.
func ParseJSON(file string, src []byte) (*yaml.Node, error) {
	src = WithoutBOM(src)
	p := jsonParser{dec: json.NewDecoder(bytes.NewReader(src)), src: src, line: 1}
	p.dec.UseNumber()
	n, err := p.value(0)
	if err == nil {
		behind := p.next()
		if _, more := p.dec.Token(); !errors.Is(more, io.EOF) {
			return nil, findings.Problem{File: file, Pos: behind, Message: "more after the end of the value"}
		}
		return n, nil
	}
	if surrogate, ok := errors.AsType[findings.Problem](err); ok {
		surrogate.File = file
		return nil, surrogate
	}
	at := p.dec.InputOffset()
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		// The offset is that of the offending character or of white space before it. Inside a word it
		// may be anything.
		space := " \t\r\n"
		if s.Offset-1 >= at {
			at = s.Offset - 1
		} else {
			space += ":,"
		}
		for at+1 < int64(len(src)) && strings.IndexByte(space, src[at]) >= 0 {
			at++
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends in the middle of a value")
		at = int64(len(src))
	}
	pos := p.pos(at)
	hint := jsonHint(src, at)
	if why, where := cause(src, pos); why == conflictHint {
		hint, pos = why, where
	}
	return nil, findings.Problem{File: file, Pos: pos, Message: err.Error(), Hint: hint}
}

type jsonParser struct {
	dec *json.Decoder
	src []byte

	// The last computed position, so that computing all positions needs one pass.
	offset    int64
	line, col int // line from 1, col from 0
}

func (p *jsonParser) pos(at int64) findings.Pos {
	at = min(at, int64(len(p.src)))
	if at < p.offset {
		p.offset, p.line, p.col = 0, 1, 0
	}
	for ; p.offset < at; p.offset++ {
		switch c := p.src[p.offset]; {
		case c == '\n':
			p.line, p.col = p.line+1, 0
		case utf8.RuneStart(c):
			p.col++
		}
	}
	return findings.Pos{Line: p.line, Column: p.col + 1}
}

// next returns the position of the next token.
func (p *jsonParser) next() findings.Pos { return p.pos(p.begin()) }

// begin returns the offset of the next token.
func (p *jsonParser) begin() int64 {
	at := p.dec.InputOffset()
	for at < int64(len(p.src)) && bytes.IndexByte([]byte(" \t\r\n:,"), p.src[at]) >= 0 {
		at++
	}
	return at
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("nested more than %d deep", maxNesting)
	}
	from := p.begin()
	pos := p.pos(from)
	n := &yaml.Node{Line: pos.Line, Column: pos.Column}
	tok, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := tok.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if v == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for p.dec.More() {
			c, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		_, err = p.dec.Token()
		return n, err
	case string:
		if strings.ContainsRune(v, utf8.RuneError) {
			if i := loneSurrogate(p.src[from:p.dec.InputOffset()]); i >= 0 {
				return nil, findings.Problem{Pos: p.pos(from + int64(i)), Message: "half of a surrogate pair", Hint: `a character beyond \uffff needs two escapes, such as \ud83d\ude00`}
			}
		}
		n.Kind, n.Tag, n.Style, n.Value = yaml.ScalarNode, "!!str", yaml.DoubleQuotedStyle, v
	case json.Number:
		n.Kind, n.Tag, n.Style, n.Value = yaml.ScalarNode, "!!int", jsonStyle, v.String()
		if _, err := v.Int64(); err != nil {
			n.Tag = "!!float"
		}
	case bool:
		n.Kind, n.Tag, n.Value = yaml.ScalarNode, "!!bool", strconv.FormatBool(v)
	case nil:
		n.Kind, n.Tag, n.Value = yaml.ScalarNode, "!!null", "null"
	}
	return n, nil
}

// loneSurrogate returns the offset of the first escape in a JSON string that is half of a surrogate pair; -1 if there
// is none. Go's decoder would replace it, and Envoy refuses the file.
func loneSurrogate(quoted []byte) int {
	unit := func(i int) rune {
		if i+6 > len(quoted) || quoted[i] != '\\' || quoted[i+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(quoted[i+2:i+6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(n)
	}
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case !utf16.IsSurrogate(u):
			i++ // past the escaped character, which may be a backslash
		case utf16.DecodeRune(u, unit(i+6)) == utf8.RuneError:
			return i
		default:
			i += 11
		}
	}
	return -1
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
