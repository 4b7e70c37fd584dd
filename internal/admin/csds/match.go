package csds

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// Limits for the matchers of a request.
const (
	maxMatchers = 64   // maximum of node matchers, of metadata matchers in a node matcher, and of alternatives
	maxSegments = 64   // maximum of segments in a path
	maxDeep     = 16   // maximum depth of nested matchers
	maxText     = 4096 // maximum bytes of a string
	maxRegex    = 1024 // maximum bytes of all regular expressions
	maxSteps    = 2000 // maximum instructions of a regular expression: a match takes at most this number of steps for each character
)

// A nodeMatcher is a compiled NodeMatcher.
type nodeMatcher struct {
	id       func(string) bool // nil: any
	metadata []structMatcher
}

// A structMatcher matches one value in a google.protobuf.Struct.
type structMatcher struct {
	path  []string
	value func(protoreflect.Message) bool // takes a google.protobuf.Value, or nil if the path does not exist
}

// matchers are the node matchers of a request: "The match follows OR semantics." Without any, all nodes
// match.
type matchers struct {
	types *envoy.Types
	any   []nodeMatcher
}

// match reports whether a node matches.
func (m *matchers) match(n *xds.Node) bool {
	if len(m.any) == 0 {
		return true
	}
	var metadata protoreflect.Message // decoded when the first metadata matcher needs it
	for i := range m.any {
		one := &m.any[i]
		if one.id != nil && !one.id(n.ID) {
			continue
		}
		if len(one.metadata) > 0 && metadata == nil {
			metadata = m.types.New("google.protobuf.Struct")
			_ = proto.Unmarshal(n.Metadata, metadata.Interface()) // unreadable fields count as missing
		}
		if one.matches(metadata) {
			return true
		}
	}
	return false
}

// matches reports whether all metadata matchers match: "The match follows AND semantics."
func (m *nodeMatcher) matches(metadata protoreflect.Message) bool {
	for _, s := range m.metadata {
		if !s.value(valueAt(metadata, s.path)) {
			return false
		}
	}
	return true
}

// valueAt returns the value at a path; nil if the path does not exist.
func valueAt(s protoreflect.Message, path []string) protoreflect.Message {
	for i, key := range path {
		fields := s.Get(s.Descriptor().Fields().ByName("fields")).Map()
		k := protoreflect.ValueOfString(key).MapKey()
		if !fields.Has(k) {
			return nil
		}
		v := fields.Get(k).Message()
		if i == len(path)-1 {
			return v
		}
		fd := v.Descriptor().Fields().ByName("struct_value")
		if !v.Has(fd) {
			return nil
		}
		s = v.Get(fd).Message()
	}
	return nil
}

// A compiler turns matcher messages into functions.
type compiler struct {
	regexes int // total bytes of regular expressions
}

// compile compiles the matchers of a ClientStatusRequest. An error names the invalid field.
func compile(types *envoy.Types, request protoreflect.Message) (*matchers, error) {
	c := compiler{}
	m := &matchers{types: types}
	all := list(request, "node_matchers")
	if all.Len() > maxMatchers {
		return nil, fmt.Errorf("node_matchers: %d matchers, the maximum is %d", all.Len(), maxMatchers)
	}
	for i := range all.Len() {
		one, err := c.node(all.Get(i).Message(), fmt.Sprintf("node_matchers[%d]", i))
		if err != nil {
			return nil, err
		}
		m.any = append(m.any, one)
	}
	return m, nil
}

func (c *compiler) node(m protoreflect.Message, at string) (n nodeMatcher, err error) {
	if id := sub(m, "node_id"); id != nil {
		n.id, err = c.text(id, at+".node_id")
		if err != nil {
			return n, err
		}
	}
	all := list(m, "node_metadatas")
	if all.Len() > maxMatchers {
		return n, fmt.Errorf("%s.node_metadatas: %d matchers, the maximum is %d", at, all.Len(), maxMatchers)
	}
	for i := range all.Len() {
		s, err := c.structure(all.Get(i).Message(), fmt.Sprintf("%s.node_metadatas[%d]", at, i))
		if err != nil {
			return n, err
		}
		n.metadata = append(n.metadata, s)
	}
	return n, nil
}

func (c *compiler) structure(m protoreflect.Message, at string) (s structMatcher, err error) {
	path := list(m, "path")
	if n := path.Len(); n == 0 || n > maxSegments {
		return s, fmt.Errorf("%s.path: %d segments, there must be 1 to %d", at, n, maxSegments)
	}
	for i := range path.Len() {
		key := str(path.Get(i).Message(), "key")
		if key == "" || len(key) > maxText {
			return s, fmt.Errorf("%s.path[%d].key: must have 1 to %d bytes", at, i, maxText)
		}
		s.path = append(s.path, key)
	}
	value := sub(m, "value")
	if value == nil {
		return s, fmt.Errorf("%s.value: must be set", at)
	}
	s.value, err = c.value(value, at+".value", 0)
	return s, err
}

// value compiles a ValueMatcher.
func (c *compiler) value(m protoreflect.Message, at string, deep int) (func(protoreflect.Message) bool, error) {
	if deep == maxDeep {
		return nil, fmt.Errorf("%s: more than %d nested matchers", at, maxDeep)
	}
	set := m.WhichOneof(m.Descriptor().Oneofs().ByName("match_pattern"))
	if set == nil {
		return nil, fmt.Errorf("%s: match_pattern must be set", at)
	}
	v := m.Get(set)
	at += "." + string(set.Name())
	switch set.Name() {
	case "null_match":
		return func(v protoreflect.Message) bool { k, _ := kind(v); return k == "null_value" }, nil
	case "double_match":
		match, err := number(v.Message(), at)
		return func(v protoreflect.Message) bool {
			k, v2 := kind(v)
			return k == "number_value" && match(v2.Float())
		}, err
	case "string_match":
		match, err := c.text(v.Message(), at)
		return func(v protoreflect.Message) bool {
			k, v2 := kind(v)
			return k == "string_value" && match(v2.String())
		}, err
	case "bool_match":
		want := v.Bool()
		return func(v protoreflect.Message) bool { k, v2 := kind(v); return k == "bool_value" && v2.Bool() == want }, nil
	case "present_match":
		want := v.Bool()
		return func(v protoreflect.Message) bool { return want && primitive(v) }, nil
	case "list_match":
		one := sub(v.Message(), "one_of")
		if one == nil {
			return nil, fmt.Errorf("%s.one_of: must be set", at)
		}
		match, err := c.value(one, at+".one_of", deep+1)
		return func(v protoreflect.Message) bool { return anyOf(v, match) }, err
	case "or_match":
		return c.or(v.Message(), at, deep)
	}
	return nil, fmt.Errorf("%s: this matcher is not supported", at)
}

func (c *compiler) or(m protoreflect.Message, at string, deep int) (func(protoreflect.Message) bool, error) {
	all := list(m, "value_matchers")
	if n := all.Len(); n < 2 || n > maxMatchers {
		return nil, fmt.Errorf("%s.value_matchers: %d matchers, there must be 2 to %d", at, n, maxMatchers)
	}
	var some []func(protoreflect.Message) bool
	for i := range all.Len() {
		match, err := c.value(all.Get(i).Message(), fmt.Sprintf("%s.value_matchers[%d]", at, i), deep+1)
		if err != nil {
			return nil, err
		}
		some = append(some, match)
	}
	return func(v protoreflect.Message) bool {
		for _, match := range some {
			if match(v) {
				return true
			}
		}
		return false
	}, nil
}

// text compiles a StringMatcher.
func (c *compiler) text(m protoreflect.Message, at string) (func(string) bool, error) {
	set := m.WhichOneof(m.Descriptor().Oneofs().ByName("match_pattern"))
	if set == nil {
		return nil, fmt.Errorf("%s: match_pattern must be set", at)
	}
	at += "." + string(set.Name())
	switch set.Name() {
	case "safe_regex":
		return c.regex(m.Get(set).Message(), at)
	case "custom":
		return nil, fmt.Errorf("%s: this matcher is not supported", at)
	}
	want, fold := m.Get(set).String(), m.Get(m.Descriptor().Fields().ByName("ignore_case")).Bool()
	if len(want) > maxText || want == "" && set.Name() != "exact" {
		return nil, fmt.Errorf("%s: must have 1 to %d bytes", at, maxText)
	}
	if fold {
		want = lower(want)
	}
	match := map[protoreflect.Name]func(s, want string) bool{
		"exact": func(s, want string) bool { return s == want }, "prefix": strings.HasPrefix, "suffix": strings.HasSuffix, "contains": strings.Contains,
	}[set.Name()]
	if match == nil {
		return nil, fmt.Errorf("%s: this matcher is not supported", at)
	}
	return func(s string) bool {
		if fold {
			s = lower(s)
		}
		return match(s, want)
	}, nil
}

// regex compiles a RegexMatcher: "The regex is matched against the full string".
func (c *compiler) regex(m protoreflect.Message, at string) (func(string) bool, error) {
	text := str(m, "regex")
	c.regexes += len(text)
	if text == "" || c.regexes > maxRegex {
		return nil, fmt.Errorf("%s.regex: must not be empty; all regular expressions of a request may have %d bytes", at, maxRegex)
	}
	parsed, err := syntax.Parse(text, syntax.Perl) // parse the text alone, because the wrapping below would make ")|(" valid
	if err != nil {
		return nil, fmt.Errorf("%s.regex: %w", at, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, fmt.Errorf("%s.regex: %w", at, err)
	}
	if n := len(program.Inst); n > maxSteps {
		return nil, fmt.Errorf("%s.regex: too complex: %d instructions, the maximum is %d", at, n, maxSteps)
	}
	re, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("%s.regex: %w", at, err)
	}
	return re.MatchString, nil
}

// number compiles a DoubleMatcher. A range does not include its end.
func number(m protoreflect.Message, at string) (func(float64) bool, error) {
	set := m.WhichOneof(m.Descriptor().Oneofs().ByName("match_pattern"))
	if set == nil {
		return nil, fmt.Errorf("%s: match_pattern must be set", at)
	}
	if set.Name() == "exact" {
		want := m.Get(set).Float()
		return func(n float64) bool { return n == want }, nil
	}
	r := m.Get(set).Message()
	fields := r.Descriptor().Fields()
	start, end := r.Get(fields.ByName("start")).Float(), r.Get(fields.ByName("end")).Float()
	if math.IsNaN(start) || math.IsNaN(end) {
		return nil, fmt.Errorf("%s.%s: not a range", at, set.Name())
	}
	return func(n float64) bool { return n >= start && n < end }, nil
}

// lower lowers ASCII letters only, as Envoy does.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// kind returns the kind and the content of a google.protobuf.Value; "" for nil.
func kind(v protoreflect.Message) (protoreflect.Name, protoreflect.Value) {
	if v == nil {
		return "", protoreflect.Value{}
	}
	fd := v.WhichOneof(v.Descriptor().Oneofs().ByName("kind"))
	if fd == nil {
		return "", protoreflect.Value{}
	}
	return fd.Name(), v.Get(fd)
}

// primitive reports whether a value is primitive: "If the path is referring to a non-primitive value, the
// result is always not matched."
func primitive(v protoreflect.Message) bool {
	switch k, _ := kind(v); k {
	case "null_value", "number_value", "string_value", "bool_value":
		return true
	}
	return false
}

// anyOf reports whether a value is a list with a matching element.
func anyOf(v protoreflect.Message, match func(protoreflect.Message) bool) bool {
	k, in := kind(v)
	if k != "list_value" {
		return false
	}
	values := list(in.Message(), "values")
	for i := range values.Len() {
		if match(values.Get(i).Message()) {
			return true
		}
	}
	return false
}

// list, sub and str return the value of a field: a list, a message or nil, a string.
func list(m protoreflect.Message, field protoreflect.Name) protoreflect.List {
	return m.Get(m.Descriptor().Fields().ByName(field)).List()
}

func sub(m protoreflect.Message, field protoreflect.Name) protoreflect.Message {
	fd := m.Descriptor().Fields().ByName(field)
	if !m.Has(fd) {
		return nil
	}
	return m.Get(fd).Message()
}

func str(m protoreflect.Message, field protoreflect.Name) string {
	return m.Get(m.Descriptor().Fields().ByName(field)).String()
}
