package protoyaml

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// wellKnown decodes the messages that have their own form in protobuf's JSON mapping. It reports whether m
// is one of these.
func (d *Decoder) wellKnown(n *yaml.Node, m protoreflect.Message, path string, depth int) bool {
	name, ok := strings.CutPrefix(string(m.Descriptor().FullName()), "google.protobuf.")
	if !ok {
		return false
	}
	fields := m.Descriptor().Fields()
	switch name {
	case "Any":
		if inner := d.any(n, path, depth); inner != nil {
			d.pack(n, inner, m, path)
		}
	case "Duration":
		if n.Kind == yaml.MappingNode {
			d.messageForm(n, m, path, depth)
			return true
		}
		d.duration(n, m, path)
	case "Timestamp":
		if n.Kind == yaml.MappingNode {
			d.messageForm(n, m, path, depth)
			return true
		}
		t, err := time.Parse(time.RFC3339Nano, n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || !rfc3339.MatchString(n.Value) || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
			d.Report(n, path, "", "a time like 2006-01-02T15:04:05Z is needed, not %s", d.kind(n))
			return true
		}
		m.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(t.Unix()))
		m.Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(int32(t.Nanosecond())))
	case "FieldMask":
		if n.Kind != yaml.ScalarNode {
			d.Report(n, path, "", "a comma-separated list of paths is needed, not %s", d.kind(n))
			return true
		}
		l := m.Mutable(fields.ByName("paths")).List()
		for p := range strings.SplitSeq(n.Value, ",") {
			if p != "" {
				l.Append(protoreflect.ValueOfString(snake(p)))
			}
		}
	case "Struct":
		d.mapField(n, m, fields.ByName("fields"), path, depth)
	case "ListValue":
		if n.Kind != yaml.SequenceNode {
			d.listNeeded(n, fields.ByName("values"), path, "a list is needed")
			return true
		}
		d.field(n, m, fields.ByName("values"), path, depth)
	case "Value":
		d.value(n, m, path, depth)
	case "BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value", "StringValue", "UInt32Value", "UInt64Value":
		if n.Kind == yaml.MappingNode {
			d.messageForm(n, m, path, depth)
			return true
		}
		fd := fields.ByName("value")
		if v, ok := d.scalar(n, fd, path); ok {
			m.Set(fd, v)
		}
	default: // Empty and the descriptors have no special form
		return false
	}
	return true
}

// messageForm decodes the message form of a type that the JSON mapping writes as a scalar, such as {seconds:
// 2} or {value: 5}. Envoy's reader accepts both forms.
func (d *Decoder) messageForm(n *yaml.Node, m protoreflect.Message, path string, depth int) {
	before := d.errors
	d.fields(d.pairs(n, path, depth), m, path, depth)
	if d.errors > before {
		return
	}
	short := cmp.Or(Get(n, "value"), n) // {}: the zero value
	hint := "write the value alone: readers other than Envoy's need that"
	if fd := m.Descriptor().Fields().ByName("seconds"); fd != nil {
		seconds, nanos := m.Get(fd).Int(), m.Get(m.Descriptor().Fields().ByName("nanos")).Int()
		valid := validSeconds(seconds, nanos)
		text := formatSeconds(seconds, nanos)
		if m.Descriptor().Name() == "Timestamp" {
			t := time.Unix(seconds, nanos).UTC()
			valid = nanos >= 0 && nanos < 1e9 && t.Year() >= 1 && t.Year() <= 9999
			text = t.Format(time.RFC3339Nano)
		}
		if !valid {
			d.Report(n, path, "", "seconds and nanos are out of range")
			return
		}
		short = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Line: n.Line, Column: n.Column, Value: text}
		hint = "write " + d.quoted(text) + ": readers other than Envoy's need that"
	}
	d.notPortable(findings.EnvoyOnly, n, path, hint, "a mapping for %s", func() { *n = *short }, WithArticle(string(m.Descriptor().Name())))
}

// validSeconds reports whether protobuf allows a duration: up to 10,000 years, with one sign.
func validSeconds(seconds, nanos int64) bool {
	const most = 315_576_000_000
	return seconds >= -most && seconds <= most && nanos > -1e9 && nanos < 1e9 && (seconds == 0 || nanos == 0 || seconds < 0 == (nanos < 0))
}

// formatSeconds returns a duration in the form of protobuf's JSON mapping.
func formatSeconds(seconds, nanos int64) string {
	sign := ""
	if seconds < 0 || nanos < 0 { // seconds and nanos have the same sign
		sign, seconds, nanos = "-", -seconds, -nanos
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, seconds, nanos), "0"), ".") + "s"
}

// takesNull reports whether null is a value of the field, instead of an unset field.
func takesNull(fd protoreflect.FieldDescriptor) bool {
	if m := fd.Message(); m != nil {
		return m.FullName() == "google.protobuf.Value"
	}
	return fd.Enum() != nil && fd.Enum().FullName() == "google.protobuf.NullValue"
}

// duration decodes "1.5s". It also accepts Go's form ("5m"), with a warning.
func (d *Decoder) duration(n *yaml.Node, m protoreflect.Message, path string) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		d.Report(n, path, secondsHint, "a duration is needed, not %s", d.kind(n))
		return
	}
	var seconds, nanos int64
	if part := secondsOnly.FindStringSubmatch(n.Value); part != nil {
		var err error
		seconds, err = strconv.ParseInt(part[1]+part[2], 10, 64)
		nanos, _ = strconv.ParseInt(part[1]+(part[3] + "000000000")[:9], 10, 64)
		if err != nil || !validSeconds(seconds, nanos) {
			d.Report(n, path, "", "the duration %s is out of range", d.quoted(n.Value))
			return
		}
	} else {
		v, err := time.ParseDuration(n.Value)
		if err != nil {
			d.Report(n, path, secondsHint, "a duration is needed, not %s", d.kind(n))
			return
		}
		seconds, nanos = int64(v/time.Second), int64(v%time.Second)
		d.notPortable(findings.Portability, n, path, "write seconds: Envoy's own reader accepts only seconds", "the duration %s", func() {
			n.Value = formatSeconds(seconds, nanos)
		}, d.quoted(n.Value))
	}
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(seconds))
	m.Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(int32(nanos)))
}

const secondsHint = `write seconds: "0.25s", "300s"`

var (
	// secondsOnly matches the durations of protobuf's JSON mapping.
	secondsOnly = regexp.MustCompile(`^(-?)([0-9]+)(?:\.([0-9]{1,9}))?s$`)

	// rfc3339 matches the times of protobuf's JSON mapping. Go's parser accepts more.
	rfc3339 = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`)
)

// value decodes a google.protobuf.Value, which takes any node.
func (d *Decoder) value(n *yaml.Node, m protoreflect.Message, path string, depth int) {
	fields := m.Descriptor().Fields()
	if n.Kind == yaml.ScalarNode {
		d.Portable(n, path)
		if as := asEnvoy(n); as.Tag == "!!int" && sameValue(n, as) {
			n = as // without the sign of -0
		}
	}
	switch {
	case n.Kind == yaml.MappingNode:
		d.nest(n, m.Mutable(fields.ByName("struct_value")).Message(), path, depth+1)
	case n.Kind == yaml.SequenceNode:
		d.nest(n, m.Mutable(fields.ByName("list_value")).Message(), path, depth+1)
	case n.Tag == "!!null":
		m.Set(fields.ByName("null_value"), protoreflect.ValueOfEnum(0))
	case n.Tag == "!!bool":
		fd := fields.ByName("bool_value")
		if v, ok := d.scalar(n, fd, path); ok {
			m.Set(fd, v)
		}
	case n.Tag == "!!int" || n.Tag == "!!float":
		f, ok := float(n)
		if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
			d.Report(n, path, "", "%s is not a JSON number", d.kind(n))
			return
		}
		m.Set(fields.ByName("number_value"), protoreflect.ValueOfFloat64(f))
	default:
		m.Set(fields.ByName("string_value"), protoreflect.ValueOfString(n.Value))
	}
}

// any decodes the message inside a google.protobuf.Any; it returns nil after an error.
func (d *Decoder) any(n *yaml.Node, path string, depth int) protoreflect.Message {
	if n.Kind != yaml.MappingNode {
		d.wrongShape(n, path, `a mapping with "@type" is needed`)
		return nil
	}
	pairs := d.pairs(n, path, depth)
	var rest []pair
	var typ *yaml.Node
	for _, p := range pairs {
		if p.key.Value == "@type" {
			typ = d.resolve(p.value, path)
		} else {
			rest = append(rest, p)
		}
	}
	if typ == nil {
		if len(rest) > 0 {
			d.ReportAs(findings.NotResource, n, path, SuggestKey(n), `"@type" is missing`)
		}
		return nil
	}
	slash := strings.LastIndexByte(typ.Value, '/')
	if typ.Kind != yaml.ScalarNode || slash < 1 {
		d.ReportAs(findings.UnknownType, typ, path, cmp.Or(d.SuggestType(typ.Value), "write type.googleapis.com/ and the message's full name"), "%s is not a type URL", d.kind(typ))
		return nil
	}
	mt, err := d.Types.FindMessageByURL(typ.Value)
	if err != nil {
		d.UnknownType(typ, typ.Value, path)
		return nil
	}
	if d.anys > secrets.MaxAnyDepth {
		d.Report(n, shorten(path), "", "google.protobuf.Any nested more than %d deep", secrets.MaxAnyDepth)
		return nil
	}
	d.anys++
	outer := d.nested
	d.nested = 0
	defer func() { d.anys, d.nested = d.anys-1, outer }()
	m := mt.New()
	if url := fullURL(m.Descriptor()); typ.Value != url {
		d.notPortable(findings.ReadDifferently, typ, path, "write "+url, "Envoy keeps the type URL %s, and Chancery writes %s", func() { typ.Value = url }, d.quoted(typ.Value), url)
	}
	if special(m.Descriptor()) {
		for _, p := range rest {
			if p.key.Value == "value" {
				d.message(p.value, m, join(path, "value"), depth+1)
			} else {
				d.Report(p.key, path, "", `%s allows only "value" next to "@type"`, WithArticle(string(m.Descriptor().Name())))
			}
		}
		if m.Descriptor().Name() == "Value" && len(rest) == 0 {
			d.Report(n, path, `null is "value: ~"`, `a google.protobuf.Value needs "value"`)
		}
		return m
	}
	d.fields(rest, m, path, depth)
	return m
}

// special reports whether a message has its own form. Inside an Any, such a message is the value of
// "value".
func special(md protoreflect.MessageDescriptor) bool {
	if md.ParentFile().Package() != "google.protobuf" {
		return false
	}
	switch md.Name() {
	case "Any", "Duration", "Timestamp", "FieldMask", "Struct", "ListValue", "Value":
		return true
	}
	return strings.HasSuffix(string(md.Name()), "Value")
}

func fullURL(md protoreflect.MessageDescriptor) string {
	return "type.googleapis.com/" + string(md.FullName())
}

// pack sets an Any to a message, encoded once.
func (d *Decoder) pack(n *yaml.Node, inner, m protoreflect.Message, path string) {
	b, err := envoy.Marshal(inner)
	if err != nil { // invalid UTF-8
		d.Report(n, path, "", "%v", err)
		return
	}
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("type_url"), protoreflect.ValueOfString(fullURL(inner.Descriptor())))
	m.Set(fields.ByName("value"), protoreflect.ValueOfBytes(b))
}

// snake turns the lowerCamelCase path of a field mask into proto names.
func snake(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
