package protofile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// ParseYAML returns the documents of a YAML file. Its error is a Problem, which quotes
// nothing of the file: nobody knows what is a secret in what cannot be read.
func ParseYAML(file string, src []byte) ([]*yaml.Node, error) {
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
		if bad := tagged(&n); bad != nil {
			return nil, Problem{File: file, Pos: Pos{bad.Line, bad.Column}, Message: "a tag has no meaning here", Hint: tagHint}
		}
		if len(n.Content) > 0 && !isNull(n.Content[0]) {
			docs = append(docs, n.Content[0])
		}
	}
}

// tagged returns a node with a tag that YAML itself does not know, or nil.
func tagged(n *yaml.Node) *yaml.Node {
	switch n.ShortTag() {
	case "", "!!null", "!!bool", "!!int", "!!float", "!!str", "!!timestamp", "!!binary", "!!map", "!!seq", "!!merge":
	default:
		return n
	}
	for _, c := range n.Content {
		if bad := tagged(c); bad != nil {
			return bad
		}
	}
	return nil
}

// What begins with "!" is a tag, also where it was meant to be a password.
const tagHint = `text that begins with "!" wants quotes`

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

// What the reader says of the first line, it says without a line.
var ofFirstLine = regexp.MustCompile(`^(found|could not find|mapping values|block)`)

// reserved finds where a key or a value begins with a character of which "The reserved
// indicators can't start a plain scalar" (YAML 1.2.2, 5.3) or that directives have.
var reserved = regexp.MustCompile("(?:^|[\\s\\[{,:-])([@`%])")

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax makes a Problem of a YAML reader's error, which says its line in words.
func syntax(file string, src []byte, err error) Problem {
	msg, p, line := err.Error(), Problem{File: file}, []byte(nil)
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		msg = msg[len(m[0]):]
		p.Pos.Line, _ = strconv.Atoi(m[1])
		if m[1] == "" && ofFirstLine.MatchString(msg) || strings.HasPrefix(msg, "did not find") {
			p.Pos.Line++ // the reader counts the lines of these from 0, and says nothing of that
		}
		p.Pos.Line = min(p.Pos.Line, 1+bytes.Count(src, []byte("\n")))
		line = []byte(sourceLine(src, p.Pos.Line))
		if bytes.ContainsRune(line, '\t') {
			p.Hint = "YAML is not indented with tabs"
		}
	}
	if at := reserved.FindSubmatchIndex(line); at != nil && strings.HasSuffix(msg, "cannot start any token") {
		p.Pos.Column, p.Hint = 1+utf8.RuneCount(line[:at[2]]), "what begins with '"+string(line[at[2]:at[3]])+"' wants quotes"
	}
	p.Message = msg
	if m := unknownAnchor.FindStringSubmatch(msg); m != nil { // which may be a password that begins with *
		p.Message, p.Hint = "an alias of an anchor that there is not", `text that begins with "*" wants quotes`
		if i := bytes.Index(src, []byte("*"+m[1])); i >= 0 {
			p.Pos.Line = 1 + bytes.Count(src[:i], []byte("\n"))
		}
	}
	return p
}

// ParseJSON returns a JSON file as the tree that ParseYAML makes. Its error is
// a Problem, which quotes a character of the file at most.
func ParseJSON(file string, src []byte) (*yaml.Node, error) {
	p := jsonParser{dec: json.NewDecoder(bytes.NewReader(src)), src: src, line: 1}
	p.dec.UseNumber()
	n, err := p.value(0)
	if err == nil {
		if _, more := p.dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more after the end of the value")
		}
	}
	if err == nil {
		return n, nil
	}
	at := p.dec.InputOffset()
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		// Of the offending character, or of white space before it; inside a word
		// it may count from anywhere.
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
	return nil, Problem{File: file, Pos: pos, Message: err.Error()}
}

type jsonParser struct {
	dec *json.Decoder
	src []byte

	// where the last position was computed, so that all take one pass
	offset    int64
	line, col int // from 1 and from 0
}

func (p *jsonParser) pos(at int64) Pos {
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
	return Pos{p.line, p.col + 1}
}

// next returns the position of the token that is read next.
func (p *jsonParser) next() Pos {
	at := p.dec.InputOffset()
	for at < int64(len(p.src)) && bytes.IndexByte([]byte(" \t\r\n:,"), p.src[at]) >= 0 {
		at++
	}
	return p.pos(at)
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("nested more than %d deep", maxNesting)
	}
	pos := p.next()
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
		n.Kind, n.Tag, n.Style, n.Value = yaml.ScalarNode, "!!str", yaml.DoubleQuotedStyle, v
	case json.Number:
		n.Kind, n.Tag, n.Value = yaml.ScalarNode, "!!int", v.String()
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

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
