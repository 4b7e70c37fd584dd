package dir

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits that turn a few lines of nested aliases into an error. What has no
// aliases is far from them: a byte of YAML becomes six of JSON at most ("<").
const (
	maxDepth = 500
	growth   = 8
	spare    = 16 << 20
)

// A text is a YAML tree written as JSON, a token on a line of its own, so that
// a line in an error of the JSON reader leads back to the YAML.
type text struct {
	buf   []byte
	lines []*yaml.Node // where each line comes from
	left  int          // bytes that may still be written, for all of a file
	depth int

	// The fields of mappings with merge keys: once each, since they may merge
	// one another over and over. Nil while they are being found.
	merged map[*yaml.Node]fields
}

// A field is a key of a mapping with its value.
type field struct{ key, value *yaml.Node }

type fields []field

func (f fields) get(key string) *yaml.Node {
	for _, p := range f {
		if p.key.Value == key {
			return resolve(p.value)
		}
	}
	return nil
}

func (f fields) without(keys ...string) fields {
	var rest fields
next:
	for _, p := range f {
		for _, k := range keys {
			if p.key.Value == k {
				continue next
			}
		}
		rest = append(rest, p)
	}
	return rest
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// pairs returns the fields of a mapping, merge keys ("<<") included.
func (t *text) pairs(n *yaml.Node) (fields, error) {
	m := resolve(n)
	if f, ok := t.merged[m]; ok {
		if f == nil {
			return nil, at(n, "merged into itself")
		}
		return f, nil
	}
	if m.Kind != yaml.MappingNode {
		return nil, at(n, "want a mapping, not %s", kind(m))
	}
	own := fields{}
	var merged []*yaml.Node
	seen := make(map[string]*yaml.Node, len(m.Content)/2)
	for i := 0; i < len(m.Content); i += 2 {
		key, value := resolve(m.Content[i]), m.Content[i+1]
		switch first := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			return nil, at(m.Content[i], "a key that is %s", kind(key))
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
			continue
		case first != nil:
			return nil, at(key, "key %q is already on line %d", key.Value, first.Line)
		}
		seen[key.Value] = key
		own = append(own, field{key, value})
	}
	if merged == nil {
		return own, nil
	}
	if t.merged == nil {
		t.merged = map[*yaml.Node]fields{}
	}
	t.merged[m] = nil
	for _, value := range merged {
		from := []*yaml.Node{value}
		if list := resolve(value); list.Kind == yaml.SequenceNode {
			from = list.Content
		}
		for _, n := range from {
			more, err := t.pairs(n)
			if err != nil {
				delete(t.merged, m)
				return nil, err
			}
			for _, f := range more {
				if seen[f.key.Value] == nil {
					seen[f.key.Value] = f.key
					own = append(own, f)
				}
			}
		}
	}
	t.merged[m] = own
	return own, nil
}

func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.ShortTag() == "!!null" {
		return "empty"
	}
	return "a scalar"
}

// mapping replaces the text by that of a mapping.
func (t *text) mapping(f fields) error {
	t.buf, t.lines, t.depth = t.buf[:0], t.lines[:0], 0
	return t.object(f)
}

func (t *text) object(f fields) error {
	t.buf = append(t.buf, '{')
	for i, p := range f {
		if i > 0 {
			t.buf = append(t.buf, ',')
		}
		t.line(p.key)
		if err := t.quote(p.key, p.key.Value); err != nil {
			return err
		}
		t.buf = append(t.buf, ':')
		if err := t.value(p.value); err != nil {
			return err
		}
	}
	t.buf = append(t.buf, '}')
	return nil
}

func (t *text) line(n *yaml.Node) {
	t.buf = append(t.buf, '\n')
	t.lines = append(t.lines, n)
}

func (t *text) value(n *yaml.Node) error {
	t.line(n)
	t.depth++
	defer func() { t.depth-- }()
	if t.depth > maxDepth {
		return at(n, "nested deeper than %d", maxDepth)
	}
	switch n = resolve(n); n.Kind {
	case yaml.MappingNode:
		f, err := t.pairs(n)
		if err != nil {
			return err
		}
		return t.object(f)
	case yaml.SequenceNode:
		t.buf = append(t.buf, '[')
		for i, item := range n.Content {
			if i > 0 {
				t.buf = append(t.buf, ',')
			}
			if err := t.value(item); err != nil {
				return err
			}
		}
		t.buf = append(t.buf, ']')
		return nil
	default:
		return t.scalar(n)
	}
}

// number is how JSON writes numbers.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func (t *text) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		return t.add(n, "null")
	case "!!bool":
		return t.add(n, strings.ToLower(n.Value))
	case "!!int", "!!float":
		if number.MatchString(n.Value) {
			return t.add(n, n.Value)
		}
		return t.number(n)
	case "!!str", "!!timestamp":
		return t.quote(n, n.Value)
	case "!!binary": // base64, over several lines
		return t.quote(n, strings.Join(strings.Fields(n.Value), ""))
	}
	return at(n, "tag %s has no meaning here", n.Tag)
}

// number writes a number that YAML can write and JSON cannot: 0x1f, 1_000, .5,
// .inf.
func (t *text) number(n *yaml.Node) error {
	var i int64
	if n.Decode(&i) == nil {
		return t.add(n, strconv.FormatInt(i, 10))
	}
	var f float64
	switch err := n.Decode(&f); {
	case err != nil:
		return at(n, "%q is no number", n.Value)
	case math.IsNaN(f):
		return t.add(n, `"NaN"`)
	case math.IsInf(f, 0):
		return t.add(n, map[bool]string{true: `"Infinity"`, false: `"-Infinity"`}[f > 0])
	}
	return t.add(n, strconv.FormatFloat(f, 'g', -1, 64))
}

func (t *text) quote(n *yaml.Node, s string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return t.add(n, string(b))
}

func (t *text) add(n *yaml.Node, token string) error {
	if t.left -= len(token) + 1; t.left < 0 {
		return at(n, "the file's aliases repeat too much: more than %d MiB", spare>>20)
	}
	t.buf = append(t.buf, token...)
	return nil
}

var jsonLine = regexp.MustCompile(`\(line (\d+):\d+\): ?`)

// locate puts an error of the JSON reader at its place in the YAML.
func (t *text) locate(err error) error {
	s := err.Error()
	found := jsonLine.FindStringSubmatchIndex(s)
	if found == nil {
		return err
	}
	line, _ := strconv.Atoi(s[found[2]:found[3]])
	// The first line holds the opening brace only.
	if i := line - 2; i >= 0 && i < len(t.lines) {
		return at(t.lines[i], "%s", s[found[1]:])
	}
	return err
}
