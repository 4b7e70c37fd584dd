package dir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A jsonReader reads JSON into the tree that YAML is read into. JSON is nearly
// YAML, but not where it matters here: tabs, escapes, what is a number.
type jsonReader struct {
	data  []byte
	dec   *json.Decoder
	off   int // up to which line and start are counted
	line  int // from 0
	start int // of the line
}

func newJSON(data []byte) *jsonReader {
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	return r
}

// Decode reads the next document into a *[yaml.Node], as the YAML decoder does;
// [io.EOF] means there is none.
func (r *jsonReader) Decode(to any) error {
	if r.off == 0 && !utf8.Valid(r.data) {
		return errors.New("not UTF-8")
	}
	root, err := r.node(0)
	if err != nil {
		return err
	}
	*to.(*yaml.Node) = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}}
	return nil
}

func (r *jsonReader) node(depth int) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode}
	n.Line, n.Column = r.place(r.begin())
	if depth > maxDepth {
		return nil, at(n, "nested deeper than %d", maxDepth)
	}
	token, err := r.dec.Token()
	if err != nil {
		if depth > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, r.fail(err)
	}
	switch v := token.(type) {
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for r.dec.More() {
			child, err := r.node(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		if _, err := r.dec.Token(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, r.fail(err)
		}
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v)
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// begin returns where the next token begins.
func (r *jsonReader) begin() int {
	off := int(r.dec.InputOffset())
	return off + len(r.data[off:]) - len(bytes.TrimLeft(r.data[off:], " \t\r\n,:"))
}

// place returns the line and column of an offset, which must not be before that
// of an earlier call.
func (r *jsonReader) place(off int) (line, col int) {
	off = min(off, len(r.data))
	if off > r.off {
		passed := r.data[r.off:off]
		r.line += bytes.Count(passed, []byte{'\n'})
		if i := bytes.LastIndexByte(passed, '\n'); i >= 0 {
			r.start = r.off + i + 1
		}
		r.off = off
	}
	return r.line + 1, r.off - r.start + 1
}

func (r *jsonReader) fail(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	line, col := r.place(r.begin())
	return mistake{line, col, err.Error()}
}
