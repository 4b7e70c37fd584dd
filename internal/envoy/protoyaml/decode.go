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

	// MaxProblems is how many errors, and as many warnings, are told of one file
	// unless a Decoder says otherwise.
	MaxProblems = 100

	// Aliases may multiply a file: this much more than it has bytes is taken
	// for anchors of anchors that are made to be slow.
	slack, expansion = 100_000, 10
)

// Types find message types by type URL. Names are those of all, which are looked at for
// what a wrong one may mean.
type Types interface {
	FindMessageByURL(url string) (protoreflect.MessageType, error)
	Names() iter.Seq[protoreflect.FullName]
}

// A Decoder decodes the nodes of one file and collects what is wrong with
// them. It is not safe for concurrent use.
type Decoder struct {
	File   string
	Source []byte
	Types  Types
	Words  map[string]string // type URLs by what else people call the types, in capitals
	Most   int               // how many errors, and as many warnings, Problems has; MaxProblems if zero, all if negative
	Ignore []findings.Code   // kinds that are neither told nor counted

	// Mend has nodes changed into what every reader takes, where a warning would say that
	// Envoy's own does not, or that Envoy's own alone does. Nodes that stand in several
	// places by aliases must be apart: see [Decoder.Plain].
	Mend bool

	// Lines reports whether lines of the file may be shown if nobody can read it. Nil: they
	// may not.
	Lines func(src []byte) bool

	// Problems are errors and warnings in the order they were found, the first
	// of each.
	Problems []findings.Problem

	visited, errors, warnings int

	secrets int // how many fields that are sensitive, or may have any, we are in or as good as in
	anys    int // how many Anys

	full   bool                // visited is beyond its limit
	merges map[*yaml.Node]bool // merge keys that were told
	meant  map[string]string   // hints at types, by what stands there

	above, from int // how many lines stand above the one that was quoted last, and where in Source that begins
}

// Errors returns the number of errors, those that Problems leaves out included.
func (d *Decoder) Errors() int { return d.errors }

// Warnings returns the number of warnings, those that Problems leaves out included.
func (d *Decoder) Warnings() int { return d.warnings }

// tells reports whether the nth of its kind is told.
func (d *Decoder) tells(n int) bool { return d.Most < 0 || n <= cmp.Or(d.Most, MaxProblems) }

// Report adds an error at a node: a value is not of the kind that is needed.
func (d *Decoder) Report(n *yaml.Node, path, hint, format string, args ...any) {
	d.ReportAs(findings.WrongValue, n, path, hint, format, args...)
}

// ReportAs adds an error of a kind at a node.
func (d *Decoder) ReportAs(code findings.Code, n *yaml.Node, path, hint, format string, args ...any) {
	if slices.Contains(d.Ignore, code) {
		return
	}
	if d.errors++; d.tells(d.errors) {
		if template(n) {
			hint = TemplateHint
		}
		d.add(n, findings.Problem{Path: path, Hint: hint, Code: code, Message: fmt.Sprintf(format, args...)})
	}
}

// WarnAs adds a warning of a kind at a node.
func (d *Decoder) WarnAs(code findings.Code, n *yaml.Node, path, hint, format string, args ...any) {
	if slices.Contains(d.Ignore, code) {
		return
	}
	if d.warnings++; d.tells(d.warnings) {
		d.add(n, findings.Problem{Path: path, Hint: hint, Code: code, Message: fmt.Sprintf(format, args...), Warning: true})
	}
}

// portable tells what one reader takes and another does not, or mends it.
func (d *Decoder) portable(code findings.Code, n *yaml.Node, path, hint, format string, mend func(), args ...any) {
	if d.Mend {
		mend()
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

// Any decodes a mapping that says its type under "@type". It returns nil if
// that cannot be told; mistakes further inside are only collected.
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
	if n = d.resolve(n, path); n != nil {
		d.message(n, m.ProtoReflect(), path, 0)
	}
}

// Flat returns a mapping as one that has each of its fields once, in place of
// aliases and merge keys. What is no mapping is reported, and nil returned.
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

// Get returns the node under a key of a mapping, with aliases followed; nil if
// there is none. It does not look behind merge keys: see [Decoder.Flat].
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

// enter counts a node and bounds depth and number.
func (d *Decoder) enter(n *yaml.Node, path string, depth int) bool {
	d.visited++
	switch limit := slack + expansion*len(d.Source); {
	case d.full:
	case d.visited > limit:
		d.full = true
		d.conceal(func() { d.Report(n, path, "", "more than %d values, aliases expanded", limit) })
	case depth > maxNesting:
		d.conceal(func() { d.Report(n, shorten(path), "", "nested more than %d deep", maxNesting) })
	default:
		return true
	}
	return false
}

// message decodes n into m, which may be a well-known type.
func (d *Decoder) message(n *yaml.Node, m protoreflect.Message, path string, depth int) {
	n = d.resolve(n, path)
	if !d.enter(n, path, depth) || d.wellKnown(n, m, path, depth) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.misshapen(n, path, "%s is a message and needs a mapping", m.Descriptor().Name())
		return
	}
	d.fields(d.pairs(n, path, depth), m, path, depth)
}

// A named field is one that is in the file, and how it is spelled there.
type named struct {
	field protoreflect.FieldDescriptor
	oneof protoreflect.OneofDescriptor // which it chooses; nil: none
	as    string
}

// fields decodes a message's fields.
func (d *Decoder) fields(pairs []pair, m protoreflect.Message, path string, depth int) {
	var few [16]named
	set := few[:0]
	for _, p := range pairs {
		fd := field(m.Descriptor(), p.key.Value)
		if fd == nil {
			if p.key.Value == "@type" {
				d.Report(p.key, path, "", `"@type" is only allowed in a google.protobuf.Any, and this is %s`, Spoken(string(m.Descriptor().Name())))
				continue
			}
			d.unknownField(p.key, m.Descriptor(), path)
			continue
		}
		if i := slices.IndexFunc(set, func(n named) bool { return n.field == fd }); i >= 0 {
			d.ReportAs(findings.DuplicateKey, p.key, path, "", "duplicate field %q, first as %q", p.key.Value, set[i].as)
			continue
		}
		set = append(set, named{field: fd, as: p.key.Value})
		value := d.resolve(p.value, path)
		if isNull(value) && !takesNull(fd) {
			continue // as in protobuf's JSON mapping: not set
		}
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if i := slices.IndexFunc(set, func(n named) bool { return n.oneof == o }); i >= 0 {
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
	if secrets.Marked(fd) || secrets.Spells(fd) {
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
				d.message(c, l.AppendMutable().Message(), at, depth+1)
			} else if v, ok := d.scalar(c, fd, at); ok {
				l.Append(v)
			}
		}
	case fd.Message() != nil:
		d.message(n, m.Mutable(fd).Message(), path, depth)
	default:
		if v, ok := d.scalar(n, fd, path); ok {
			m.Set(fd, v)
		}
	}
}

// single reports whether something may stand for a list with it alone. "Envoy's reader
// takes a value for a list of one": of messages a mapping, of other values any.
func (d *Decoder) single(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) bool {
	if fd.Message() != nil && n.Kind != yaml.MappingNode || n.Kind != yaml.MappingNode && n.Kind != yaml.ScalarNode {
		d.unlisted(n, fd, path, "a list is needed")
		return false
	}
	d.conceal(func() {
		d.portable(findings.EnvoyOnly, n, path, `put "- " before it: readers other than Envoy's need a list`, "%s for a list", func() { *n = listOf(n) }, d.kind(n))
	})
	return true
}

// listOf returns a list that has a node alone.
func listOf(n *yaml.Node) yaml.Node {
	only := *n
	return yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: n.Style & yaml.FlowStyle, Line: n.Line, Column: n.Column, Content: []*yaml.Node{&only}}
}

func (d *Decoder) mapField(n *yaml.Node, m protoreflect.Message, fd protoreflect.FieldDescriptor, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		d.unlisted(n, fd.MapValue(), path, "a mapping is needed")
		return
	}
	out := m.Mutable(fd).Map()
	for _, p := range d.pairs(n, path, depth) {
		at := fmt.Sprintf("%s[%s]", path, d.quoted(p.key.Value))
		key := *p.key // keys are words; protobuf wants some of them as numbers
		if fd.MapKey().Kind() == protoreflect.StringKind {
			key.Tag, key.Style = "!!str", yaml.DoubleQuotedStyle
		}
		k, ok := d.scalar(&key, fd.MapKey(), at)
		if !ok {
			continue
		}
		v := d.resolve(p.value, at)
		if fd.MapValue().Message() != nil {
			mv := out.NewValue()
			d.message(v, mv.Message(), at, depth+1)
			out.Set(k.MapKey(), mv)
		} else if sv, ok := d.scalar(v, fd.MapValue(), at); ok {
			out.Set(k.MapKey(), sv)
		}
	}
}

// Field returns the field of a message with the name of either spelling, as in the file;
// nil if there is none.
func Field(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	return field(md, name)
}

// field returns the field with the name of either spelling.
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
