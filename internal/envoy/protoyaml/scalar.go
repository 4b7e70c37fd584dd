package protoyaml

import (
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

const bareNumber = "put it in quotes: Envoy's own reader refuses a bare number or word for a string"

// scalar decodes a field that is not a message. It returns ok=false after adding a problem.
func (d *Decoder) scalar(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) (v protoreflect.Value, ok bool) {
	if n.Kind != yaml.ScalarNode {
		d.Report(n, path, "", "%s is needed, not %s", neededValue(fd), d.kind(n))
		return v, false
	}
	fail := func(hint string) (protoreflect.Value, bool) {
		d.Report(n, path, hint, "%s is needed, not %s", neededValue(fd), d.kind(n))
		return v, false
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		if !quoted(n) {
			if isNull(n) {
				return fail("")
			}
			d.notPortable(findings.Portability, n, path, bareNumber, "%s for a string", func() { n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle }, d.kind(n))
		} else if n.Style == 0 && yaml11Bool.MatchString(n.Value) {
			d.notPortable(findings.Portability, n, path, "put it in quotes: Envoy's own reader reads it as true or false, and refuses it", "the bare word %s for a string", func() { n.Style = yaml.DoubleQuotedStyle }, d.quoted(n.Value))
		}
		d.templated(n, string(fd.Name()), path)
		return protoreflect.ValueOfString(n.Value), true
	case protoreflect.BytesKind:
		b, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			b, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(n.Value), "="))
		}
		if !quoted(n) || err != nil {
			return fail("bytes are written in base64")
		}
		return protoreflect.ValueOfBytes(b), true
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(strings.ToLower(n.Value))
		if n.Tag != "!!bool" || err != nil {
			b, ok = envoyBool(n)
			if !ok {
				return fail("")
			}
			d.notPortable(findings.EnvoyOnly, n, path, "write "+strconv.FormatBool(b)+": readers other than Envoy's need that", "%s for true or false", func() {
				n.Tag, n.Style, n.Value = "!!bool", 0, strconv.FormatBool(b)
			}, d.kind(n))
		}
		return protoreflect.ValueOfBool(b), true
	case protoreflect.EnumKind:
		return d.enum(n, fd, path)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		f, ok := float(n)
		if !ok || fd.Kind() == protoreflect.FloatKind && !math.IsInf(f, 0) && math.Abs(f) > math.MaxFloat32 {
			return fail("")
		}
		if fd.Kind() == protoreflect.FloatKind {
			return protoreflect.ValueOfFloat32(float32(f)), true
		}
		return protoreflect.ValueOfFloat64(f), true
	}
	i, ok := integer(n, fd.Kind())
	if !ok {
		return fail("")
	}
	return i, true
}

// quoted reports whether YAML reads a scalar as text.
func quoted(n *yaml.Node) bool { return n.Tag == "!!str" || n.Tag == "!!timestamp" }

// yaml11Bool matches words that are booleans in YAML 1.1, which Envoy reads, and text in YAML 1.2. An
// example is the country code "no".
var yaml11Bool = regexp.MustCompile(`^([yY]|[nN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)$`)

// envoyBool returns the boolean that Envoy's reader makes of a text. Envoy accepts more words than
// the JSON mapping, in any case, and the words of YAML 1.1 without quotes.
func envoyBool(n *yaml.Node) (b, ok bool) {
	if n.Tag != "!!str" {
		return false, false
	}
	switch word := strings.ToLower(n.Value); word {
	case "true", "t", "yes", "y", "1":
		return true, true
	case "false", "f", "no", "n", "0":
		return false, true
	case "on", "off":
		return word == "on", n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
	}
	return false, false
}

// enum decodes the name of a value, as declared in the proto file, or its number.
func (d *Decoder) enum(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) (v protoreflect.Value, ok bool) {
	values := fd.Enum().Values()
	if ev := values.ByName(protoreflect.Name(n.Value)); ev != nil {
		return protoreflect.ValueOfEnum(ev.Number()), true
	}
	if ev := foldedValue(values, n.Value); ev != nil {
		name := string(ev.Name())
		d.notPortable(findings.EnvoyOnly, n, path, "write "+name+": readers other than Envoy's need it as it is declared", "%s for a value of %s", func() { n.Value = name }, d.quoted(n.Value), fd.Enum().Name())
		return protoreflect.ValueOfEnum(ev.Number()), true
	}
	if isNull(n) && fd.Enum().FullName() == "google.protobuf.NullValue" {
		return protoreflect.ValueOfEnum(0), true
	}
	if n.Tag == "!!int" {
		if i, err := strconv.ParseInt(n.Value, 0, 32); err == nil {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(i)), true
		}
	}
	if i, err := strconv.ParseInt(n.Value, 10, 32); err == nil && quoted(n) {
		d.notPortable(findings.EnvoyOnly, n, path, "write it without quotes: readers other than Envoy's need that", "%s for a value of %s", func() { n.Tag, n.Style = "!!int", 0 }, d.kind(n), fd.Enum().Name())
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(i)), true
	}
	hint := ""
	if !d.reports(d.errors + 1) { // past the limit: skip the search for a suggestion
		d.Report(n, path, "", "")
		return v, false
	}
	names := func(yield func(string) bool) {
		for i := range values.Len() {
			if !yield(string(values.Get(i).Name())) {
				return
			}
		}
	}
	if s := Nearest(n.Value, names); s != "" {
		hint = fmt.Sprintf("did you mean %s?", s)
	} else if values.Len() <= 10 {
		var all []string
		for s := range names {
			all = append(all, s)
		}
		hint = "one of " + strings.Join(all, ", ")
	}
	d.Report(n, path, hint, "%s has no value %s", fd.Enum().Name(), d.quoted(n.Value))
	return v, false
}

// foldedValue returns the value whose name equals name except for case, as Envoy's reader accepts it; nil if
// there is none, or if there are several.
func foldedValue(values protoreflect.EnumValueDescriptors, name string) (found protoreflect.EnumValueDescriptor) {
	for i := range values.Len() {
		if ev := values.Get(i); strings.EqualFold(string(ev.Name()), name) {
			if found != nil {
				return nil
			}
			found = ev
		}
	}
	return found
}

func float(n *yaml.Node) (float64, bool) {
	switch n.Value {
	case "NaN", ".nan", ".NaN", ".NAN":
		return math.NaN(), true
	case "Infinity", ".inf", ".Inf", ".INF", "+.inf":
		return math.Inf(1), true
	case "-Infinity", "-.inf", "-.Inf", "-.INF":
		return math.Inf(-1), true
	}
	if n.Tag == "!!int" { // YAML's own 0x10 and 0o10
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil && strings.TrimLeft(n.Value, "+-0123456789_") != "" {
			return float64(i), true
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
	return f, err == nil && n.Tag != "!!bool" && n.Tag != "!!null" && !math.IsInf(f, 0) && !math.IsNaN(f)
}

// integer decodes an integer. The JSON mapping also allows a string, or a float without a fraction.
func integer(n *yaml.Node, k protoreflect.Kind) (v protoreflect.Value, ok bool) {
	s := strings.TrimPrefix(n.Value, "+")
	if n.Tag == "!!bool" || n.Tag == "!!null" {
		return v, false
	}
	base := 10
	if n.Tag == "!!int" {
		base = 0 // YAML's own 0x10 and 0o10
		if len(s) > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9' {
			base = 10
		}
	}
	if strings.ContainsAny(s, ".eE") && base == 10 {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<63 {
			return v, false
		}
		s = strconv.FormatFloat(f, 'f', 0, 64)
	}
	switch k {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		i, err := strconv.ParseInt(s, base, 32)
		return protoreflect.ValueOfInt32(int32(i)), err == nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		i, err := strconv.ParseInt(s, base, 64)
		return protoreflect.ValueOfInt64(i), err == nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		i, err := strconv.ParseUint(s, base, 32)
		return protoreflect.ValueOfUint32(uint32(i)), err == nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		i, err := strconv.ParseUint(s, base, 64)
		return protoreflect.ValueOfUint64(i), err == nil
	}
	return v, false
}

// neededValue describes the values that a field takes, for messages.
func neededValue(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.BytesKind:
		return "base64 text"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		return WithArticle(string(fd.Enum().Name()))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return "a whole number from 0 (" + fd.Kind().String() + ")"
	}
	return "a whole number (" + fd.Kind().String() + ")"
}
