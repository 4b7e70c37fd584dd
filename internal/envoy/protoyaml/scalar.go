package protoyaml

import (
	"encoding/base64"
	"fmt"
	"math"
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
	as := asEnvoy(n)
	switch fd.Kind() {
	case protoreflect.StringKind:
		if isNull(n) {
			return fail("")
		}
		d.bareText(n, as, path)
		d.templated(n, string(fd.Name()), path)
		if as.Tag == "!!str" {
			return protoreflect.ValueOfString(as.Value), true
		}
		return protoreflect.ValueOfString(n.Value), true
	case protoreflect.BytesKind:
		text := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(n.Value), "=")
		padded := len(text) < len(n.Value)
		b, err := base64.RawStdEncoding.DecodeString(text)
		if !quoted(n) || err != nil || len(b) == 0 && n.Value != "" || padded && len(n.Value)%4 != 0 || strings.ContainsAny(text, "\r\n") {
			return fail("bytes are written in base64")
		}
		d.bareText(n, as, path)
		return protoreflect.ValueOfBytes(b), true
	case protoreflect.BoolKind:
		b, ok := envoyBool(as)
		if !ok {
			return fail("")
		}
		if n.Tag != "!!bool" {
			d.notPortable(findings.EnvoyOnly, n, path, "write "+strconv.FormatBool(b)+": readers other than Envoy's need that", "%s for true or false", func() {
				n.Tag, n.Style, n.Value = "!!bool", 0, strconv.FormatBool(b)
			}, d.kind(n))
		}
		return protoreflect.ValueOfBool(b), true
	case protoreflect.EnumKind:
		return d.enum(n, fd, path)
	}
	return d.number(n, as, fd, path)
}

// bareText reports a bare word or number for a string; as is the value that Envoy reads.
func (d *Decoder) bareText(n, as *yaml.Node, path string) {
	quote := func() { n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle }
	switch {
	case as.Tag == "!!bool" && n.Tag != "!!bool":
		d.bareBool(n, path, "a string")
	case as.Tag != "!!str":
		d.notPortable(findings.Portability, n, path, bareNumber, "%s for a string", quote, d.kind(n))
	case as.Value != n.Value:
		d.notPortable(findings.ReadDifferently, n, path, "put it in quotes", "%s for a string: Envoy's own reader writes the number in decimal", func() { *n = *as }, d.kind(n))
	case !quoted(n):
		d.notPortable(findings.EnvoyOnly, n, path, "put it in quotes: readers other than Envoy's refuse a bare number for a string", "%s for a string", quote, d.kind(n))
	}
}

// bareBool reports a word without quotes that Envoy's own reader reads as true or false.
func (d *Decoder) bareBool(n *yaml.Node, path, needed string) {
	d.notPortable(findings.Portability, n, path, "put it in quotes: Envoy's own reader reads it as true or false, and refuses it", "the bare word %s for %s", func() {
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	}, d.quoted(n.Value), needed)
}

// number decodes a number as Envoy reads it. It reports a number that readers of YAML 1.2 read
// differently, and accepts their numbers that Envoy refuses.
func (d *Decoder) number(n, as *yaml.Node, fd protoreflect.FieldDescriptor, path string) (protoreflect.Value, bool) {
	if i, ok := cInteger(n.Value); ok && as.Tag == "!!str" && strings.ContainsAny(n.Value, "xX") {
		decimal := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(i, 10), Line: n.Line, Column: n.Column}
		if v, ok := numberOf(decimal, fd.Kind()); ok {
			d.notPortable(findings.EnvoyOnly, n, path, "write the number in decimal: readers other than Envoy's need that", "%s for a number", func() { *n = *decimal }, d.kind(n))
			return v, true
		}
	}
	v, ok := numberOf(as, fd.Kind())
	if ok && as == n {
		return v, true
	}
	core, readable := numberOf(n, fd.Kind())
	switch {
	case ok && (!readable || !core.Equal(v)):
		written := "the number in decimal"
		if d.secrets == 0 {
			written = v.String()
		}
		d.notPortable(findings.ReadDifferently, n, path, "write "+written, "Envoy and Chancery read %s as %s: other readers of YAML read another value", func() { *n = *as }, d.kind(n), written)
	case !ok && readable:
		d.notPortable(findings.Portability, n, path, "write the number in decimal: Envoy's own reader refuses this form", "%s for a number", func() {}, d.kind(n))
		return core, true
	case !ok:
		d.Report(n, path, "", "%s is needed, not %s", neededValue(fd), d.kind(n))
	}
	return v, ok
}

// numberOf decodes a number by the core schema of YAML 1.2. Text follows protobuf's JSON mapping.
func numberOf(n *yaml.Node, k protoreflect.Kind) (v protoreflect.Value, ok bool) {
	switch k {
	case protoreflect.DoubleKind:
		f, ok := float(n)
		return protoreflect.ValueOfFloat64(f), ok
	case protoreflect.FloatKind:
		f, ok := float(n)
		return protoreflect.ValueOfFloat32(float32(f)), ok && (math.IsInf(f, 0) || !math.IsInf(float64(float32(f)), 0))
	}
	return integer(n, k)
}

// quoted reports whether YAML 1.2 reads a scalar as text.
func quoted(n *yaml.Node) bool { return n.Tag == "!!str" || n.Tag == "!!timestamp" }

// envoyBool returns the boolean that Envoy makes of a value of its YAML reader. Envoy accepts more words than
// the JSON mapping, in any case.
func envoyBool(as *yaml.Node) (b, ok bool) {
	if as.Tag == "!!bool" || as.Tag == "!!str" {
		switch strings.ToLower(as.Value) {
		case "true", "t", "yes", "y", "1":
			return true, true
		case "false", "f", "no", "n", "0":
			return false, true
		}
	}
	return false, false
}

// enum decodes the name of a value, as declared in the proto file, or its number.
func (d *Decoder) enum(n *yaml.Node, fd protoreflect.FieldDescriptor, path string) (v protoreflect.Value, ok bool) {
	values := fd.Enum().Values()
	if ev := values.ByName(protoreflect.Name(n.Value)); ev != nil {
		if asEnvoy(n).Tag == "!!bool" {
			d.bareBool(n, path, WithArticle(string(fd.Enum().Name())))
		}
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
	as := asEnvoy(n)
	if as.Tag == "!!int" || n.Tag == "!!int" {
		v, ok := d.number(n, as, fd, path)
		if ok {
			v = protoreflect.ValueOfEnum(protoreflect.EnumNumber(v.Int()))
		}
		return v, ok
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
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	if n.Tag == "!!float" {
		switch strings.ToLower(n.Value) {
		case ".nan":
			return math.NaN(), true
		case ".inf", "+.inf":
			return math.Inf(1), true
		case "-.inf":
			return math.Inf(-1), true
		}
	}
	if n.Tag == "!!int" && isPrefixed(n.Value) {
		i, err := strconv.ParseInt(n.Value, 0, 64)
		return float64(i), err == nil
	}
	f, err := strconv.ParseFloat(n.Value, 64)
	return f, err == nil && n.Tag != "!!bool" && n.Tag != "!!null" && !math.IsInf(f, 0) && !math.IsNaN(f) && !strings.Contains(n.Value, "_")
}

// isPrefixed reports whether an integer is one of YAML's 0x10 and 0o10.
func isPrefixed(s string) bool { return len(s) > 1 && s[0] == '0' && (s[1] == 'x' || s[1] == 'o') }

// integer decodes an integer. The JSON mapping also allows a string, or a float without a fraction.
func integer(n *yaml.Node, k protoreflect.Kind) (v protoreflect.Value, ok bool) {
	s := strings.TrimPrefix(n.Value, "+")
	if n.Tag == "!!bool" || n.Tag == "!!null" {
		return v, false
	}
	base := 10
	if n.Tag == "!!int" && isPrefixed(s) {
		base = 0
	}
	if strings.ContainsAny(s, ".eE") && base == 10 {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<63 || strings.Contains(s, "_") {
			return v, false
		}
		s = strconv.FormatFloat(f, 'f', 0, 64)
	}
	switch k {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.EnumKind:
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
