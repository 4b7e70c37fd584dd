package protoyaml

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

const (
	maxNesting = 200 // of messages, lists and maps

	// MaxProblems is the default limit for the errors, and for the warnings, of one file.
	MaxProblems = 100

	// Aliases may multiply the size of a file. The limit of values is slack plus expansion times the
	// file's bytes. A file with more values is rejected: nested aliases may be an attack.
	slack, expansion = 100_000, 10
)

// Types finds message types by type URL. Names returns the names of all types, to suggest one for a
// wrong name.
type Types interface {
	FindMessageByURL(url string) (protoreflect.MessageType, error)
	Names() iter.Seq[protoreflect.FullName]
}

// A Decoder decodes the nodes of one file and collects its problems. It is not safe for concurrent use.
type Decoder struct {
	File   string
	Source []byte
	Types  Types
	Words  map[string]string // key: another name of a type, in capitals; value: the type URL
	Most   int               // the limit for errors, and for warnings, in Problems; 0 means MaxProblems, negative means no limit
	Ignore []findings.Code   // kinds of problems to neither report nor count

	// Rewrite makes the decoder rewrite the nodes that Envoy's own reader understands differently, so that
	// every reader understands them. Without Rewrite the decoder warns. Nodes that several aliases share must be copied first: see
	// [Decoder.Plain].
	Rewrite bool

	// Lines reports whether problems may quote lines of a file with a syntax error. Nil means no.
	Lines func(src []byte) bool

	// Problems are the errors and warnings in the order of their discovery.
	Problems []findings.Problem

	visited, errors, warnings int

	secrets int // the number of enclosing fields that are, or may contain, secrets; problems inside quote nothing
	anys    int // the number of enclosing Anys
	nested  int // the number of enclosing messages within the innermost Any

	exceeded    bool                // visited is beyond its limit
	merges      map[*yaml.Node]bool // reported merge keys
	suggestions map[string]string   // suggestions for wrong type URLs

	quotedLine, quotedOffset int // the 0-based number of the line quoted last, and its offset in Source
}

// Errors returns the number of errors, including those beyond the limit of Problems.
func (d *Decoder) Errors() int { return d.errors }

// Warnings returns the number of warnings, including those beyond the limit of Problems.
func (d *Decoder) Warnings() int { return d.warnings }

// reports reports whether the nth error, or the nth warning, is within the limit.
func (d *Decoder) reports(n int) bool { return d.Most < 0 || n <= cmp.Or(d.Most, MaxProblems) }

// Report adds an error with the code WrongValue at a node.
func (d *Decoder) Report(n *yaml.Node, path, hint, format string, args ...any) {
	d.ReportAs(findings.WrongValue, n, path, hint, format, args...)
}

// ReportAs adds an error with a code at a node.
func (d *Decoder) ReportAs(code findings.Code, n *yaml.Node, path, hint, format string, args ...any) {
	if slices.Contains(d.Ignore, code) {
		return
	}
	d.errors++
	if d.reports(d.errors) {
		if template(n) {
			hint = TemplateHint
		}
		d.add(n, findings.Problem{Path: path, Hint: hint, Code: code, Message: fmt.Sprintf(format, args...)})
	}
}

// WarnAs adds a warning with a code at a node.
func (d *Decoder) WarnAs(code findings.Code, n *yaml.Node, path, hint, format string, args ...any) {
	if slices.Contains(d.Ignore, code) {
		return
	}
	d.warnings++
	if d.reports(d.warnings) {
		d.add(n, findings.Problem{Path: path, Hint: hint, Code: code, Message: fmt.Sprintf(format, args...), Warning: true})
	}
}

// notPortable warns about a notation that readers understand differently. With Rewrite it calls
// rewrite instead.
func (d *Decoder) notPortable(code findings.Code, n *yaml.Node, path, hint, format string, rewrite func(), args ...any) {
	if d.Rewrite {
		rewrite()
		return
	}
	d.WarnAs(code, n, path, hint, format, args...)
}

func (d *Decoder) add(n *yaml.Node, p findings.Problem) {
	p.File, p.Pos = d.File, findings.Pos{Line: n.Line, Column: n.Column}
	if d.secrets == 0 {
		p.Excerpt, p.Caret = d.excerpt(n)
	}
	d.Problems = append(d.Problems, p)
}

// Any decodes a mapping that names its type in "@type". It returns nil if the type is not known, or
// if the file exceeds the limit of values. Other mistakes are only collected.
func (d *Decoder) Any(n *yaml.Node, path string) proto.Message {
	n = d.resolve(n, path)
	if n == nil || !d.enter(n, path, 0) {
		return nil
	}
	m := d.any(n, path, 0)
	if m == nil {
		return nil
	}
	return m.Interface()
}

// Message decodes a mapping into a message.
func (d *Decoder) Message(n *yaml.Node, m proto.Message, path string) {
	n = d.resolve(n, path)
	if n != nil {
		d.message(n, m.ProtoReflect(), path, 0)
	}
}

// Flat returns a mapping with aliases and merge keys resolved, so that each key occurs once. If the
// node is not a mapping, it reports that and returns nil.
func (d *Decoder) Flat(n *yaml.Node, path string) *yaml.Node {
	m := d.resolve(n, path)
	if m.Kind != yaml.MappingNode {
		hint := ""
		if path == "" && m.Kind == yaml.SequenceNode {
			hint = listHint
		}
		d.conceal(func() { d.Report(m, path, hint, "a mapping is needed, not %s", d.kind(m)) })
		return nil
	}
	flat := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column}
	for _, p := range d.pairs(m, path, 0) {
		flat.Content = append(flat.Content, p.key, p.value)
	}
	return flat
}

// Get returns the value of a key of a mapping, with aliases resolved; nil if the key is missing. It
// ignores merge keys: see [Decoder.Flat].
func Get(n *yaml.Node, key string) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			v := n.Content[i+1]
			for v.Kind == yaml.AliasNode {
				v = v.Alias
			}
			return v
		}
	}
	return nil
}

// resolve follows aliases.
func (d *Decoder) resolve(n *yaml.Node, path string) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// enter counts a node, and limits the nesting and the number of nodes.
func (d *Decoder) enter(n *yaml.Node, path string, depth int) bool {
	d.visited++
	switch limit := slack + expansion*len(d.Source); {
	case d.exceeded:
	case d.visited > limit:
		d.exceeded = true
		d.conceal(func() { d.Report(n, path, "", "more than %d values, aliases expanded", limit) })
	case depth > maxNesting:
		d.conceal(func() { d.Report(n, shorten(path), "", "nested more than %d deep", maxNesting) })
	default:
		return true
	}
	return false
}

// nest decodes n into m, a message inside another one.
func (d *Decoder) nest(n *yaml.Node, m protoreflect.Message, path string, depth int) {
	d.within(n, path, func() { d.message(n, m, path, depth) })
}

// within calls do for the content of a message inside another one, unless clients cannot decode such a message.
func (d *Decoder) within(n *yaml.Node, path string, do func()) {
	if d.nested >= secrets.MaxMessages {
		d.conceal(func() {
			d.Report(d.resolve(n, path), shorten(path), "in a Struct, a mapping adds 3 messages, and a list adds 2", "more than %d messages inside each other, which clients cannot decode", secrets.MaxMessages)
		})
		return
	}
	d.nested++
	do()
	d.nested--
}

// message decodes n into m, which may be a well-known type.
func (d *Decoder) message(n *yaml.Node, m protoreflect.Message, path string, depth int) {
	n = d.resolve(n, path)
	if !d.enter(n, path, depth) || d.wellKnown(n, m, path, depth) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.wrongShape(n, path, "%s is a message and needs a mapping", m.Descriptor().Name())
		return
	}
	d.fields(d.pairs(n, path, depth), m, path, depth)
}

// A setField is a field that the file sets, with its spelling there.
type setField struct {
	field protoreflect.FieldDescriptor
	oneof protoreflect.OneofDescriptor // the oneof that it belongs to; nil: none
	as    string
}

// fields decodes a message's fields.
func (d *Decoder) fields(pairs []pair, m protoreflect.Message, path string, depth int) {
	var few [16]setField
	set := few[:0]
	for _, p := range pairs {
		fd := field(m.Descriptor(), p.key.Value)
		if fd == nil {
			if p.key.Value == "@type" {
				d.Report(p.key, path, "", `"@type" is only allowed in a google.protobuf.Any, and this is %s`, WithArticle(string(m.Descriptor().Name())))
				continue
			}
			d.unknownField(p.key, m.Descriptor(), path)
			continue
		}
		if i := slices.IndexFunc(set, func(n setField) bool { return n.field == fd }); i >= 0 {
			d.ReportAs(findings.DuplicateKey, p.key, path, "", "duplicate field %q, first as %q", p.key.Value, set[i].as)
			continue
		}
		set = append(set, setField{field: fd, as: p.key.Value})
		value := d.resolve(p.value, path)
		if isNull(value) && !takesNull(fd) {
			continue // unset, as in protobuf's JSON mapping
		}
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if i := slices.IndexFunc(set, func(n setField) bool { return n.oneof == o }); i >= 0 {
				d.ReportAs(findings.DuplicateKey, p.key, path, "", "%q and %q exclude each other", set[i].as, p.key.Value)
				continue
			}
			set[len(set)-1].oneof = o
		}
		d.field(value, m, fd, join(path, string(fd.Name())), depth+1)
	}
}

// field decodes the value of one field.
func (d *Decoder) field(n *yaml.Node, m protoreflect.Message, fd protoreflect.FieldDescriptor, path string, depth int) {
	if secrets.Marked(fd) || secrets.HoldsJSON(fd) {
		d.secrets++
		defer func() { d.secrets-- }()
	}
	switch {
	case fd.IsMap():
		d.mapField(n, m, fd, path, depth)
	case fd.IsList():
		if n.Kind != yaml.SequenceNode && !d.single(n, fd, path) {
			return
		}
		l := m.Mutable(fd).List()
		if n.Kind != yaml.SequenceNode {
			n = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}}
		}
		for i, c := range n.Content {
			c = d.resolve(c, path)
			at := path + "[" + strconv.Itoa(i) + "]"
			if isNull(c) && !takesNull(fd) {
				d.Report(c, at, "", "a list cannot hold null")
				continue
			}
			if fd.Message() != nil {
				d.nest(c, l.AppendMutable().Message(), at, depth+1)
			} else if v, ok := d.scalar(c, fd, at); ok {
				l.Append(v)
			}
		}
	case fd.Message() != nil:
		d.nest(n, m.Mutable(fd).Message(), path, depth)
	default:
		if v, ok := d.scalar(n, fd, path); ok {
			m.Set(fd, v)
		}
	}
}

// single reports whether a single value may replace a list. Envoy's reader accepts a single value
// as a list of one: a mapping for messages, and a scalar or a mapping for other fields.
func (d *Decoder) single(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) bool {
	if fd.Message() != nil && n.Kind != yaml.MappingNode || n.Kind != yaml.MappingNode && n.Kind != yaml.ScalarNode {
		d.listNeeded(n, fd, path, "a list is needed")
		return false
	}
	d.conceal(func() {
		d.notPortable(findings.EnvoyOnly, n, path, `put "- " before it: readers other than Envoy's need a list`, "%s for a list", func() { *n = listOf(n) }, d.kind(n))
	})
	return true
}

// listOf returns a list with one node.
func listOf(n *yaml.Node) yaml.Node {
	only := *n
	return yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: n.Style & yaml.FlowStyle, Line: n.Line, Column: n.Column, Content: []*yaml.Node{&only}}
}

func (d *Decoder) mapField(n *yaml.Node, m protoreflect.Message, fd protoreflect.FieldDescriptor, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		d.listNeeded(n, fd.MapValue(), path, "a mapping is needed")
		return
	}
	out := m.Mutable(fd).Map()
	for _, p := range d.pairs(n, path, depth) {
		at := fmt.Sprintf("%s[%s]", path, d.quoted(p.key.Value))
		key := *p.key // every YAML key is a string; protobuf needs numbers for some maps
		if fd.MapKey().Kind() != protoreflect.BoolKind {
			key.Tag, key.Style = "!!str", yaml.DoubleQuotedStyle
		}
		k, ok := d.scalar(&key, fd.MapKey(), at)
		if !ok {
			continue
		}
		v := d.resolve(p.value, at)
		d.within(v, at, func() {
			if fd.MapValue().Message() != nil {
				mv := out.NewValue()
				d.nest(v, mv.Message(), at, depth+1)
				out.Set(k.MapKey(), mv)
			} else if sv, ok := d.scalar(v, fd.MapValue(), at); ok {
				out.Set(k.MapKey(), sv)
			}
		})
	}
}

// Field returns the field with a proto or JSON name; nil if there is none.
func Field(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	return field(md, name)
}

// field returns the field with a proto or JSON name.
func field(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByTextName(name); fd != nil {
		return fd
	}
	return md.Fields().ByJSONName(name)
}

func fieldNames(md protoreflect.MessageDescriptor) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i := range md.Fields().Len() {
			if !yield(md.Fields().Get(i).TextName()) {
				return
			}
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
