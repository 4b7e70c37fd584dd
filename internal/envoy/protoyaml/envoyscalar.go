package protoyaml

import (
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Envoy reads a YAML file in two steps. The first step turns each scalar into a JSON value, without
// knowledge of the field: see [EnvoyScalar]. The second step is protobuf's JSON reader. Everything here
// was observed with Envoy 1.40, and a test compares it with a real Envoy.

const (
	anyQuotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

	// jsonStyle marks a number of a JSON file. Envoy reads such a file without its YAML reader.
	jsonStyle = yaml.FlowStyle
)

// EnvoyScalar returns the value that Envoy's own YAML reader makes of a scalar: nil, a bool, an int64 or
// a string. Envoy ignores tags, but a tagged scalar in quotes is not text. An integer beyond 32 bits is
// an int64 here. Envoy passes it on as text.
func EnvoyScalar(n *yaml.Node) any {
	tagged := n.Style&yaml.TaggedStyle != 0
	switch {
	case n.Style&anyQuotes != 0 && !tagged:
		return n.Value
	case isNull(n): // without a tag: see normalize
		return nil
	}
	if b, ok := yaml11Bool(n.Value); ok {
		return b
	}
	if i, ok := cInteger(n.Value); ok {
		return i
	}
	return n.Value
}

// yaml11Bool returns the truth value of a word of YAML 1.1. The word is in lower case, in upper case, or has
// one capital at its beginning.
func yaml11Bool(s string) (b, ok bool) {
	if len(s) == 0 || len(s) > 5 {
		return false, false
	}
	low := strings.ToLower(s)
	if s != low && s != strings.ToUpper(s) && s[1:] != low[1:] {
		return false, false
	}
	switch low {
	case "y", "yes", "true", "on":
		return true, true
	case "n", "no", "false", "off":
		return false, true
	}
	return false, false
}

// cInteger parses an integer of 64 bits as the C library does: 0 begins an octal number, 0x a hexadecimal one.
func cInteger(s string) (int64, bool) {
	digits := strings.TrimLeft(s, "+-")
	if digits == "" || digits[0] < '0' || digits[0] > '9' {
		return 0, false
	}
	base := 10
	if digits[0] == '0' && len(digits) > 1 {
		base = 8
		if digits[1] == 'x' || digits[1] == 'X' {
			base, s = 16, s[:len(s)-len(digits)]+digits[2:]
			if len(digits) == 2 || digits[2] == '+' || digits[2] == '-' {
				return 0, false
			}
		}
	}
	i, err := strconv.ParseInt(s, base, 64)
	return i, err == nil
}

// asEnvoy returns a scalar as Envoy's YAML reader passes it on: text in quotes, true, false, null, or an
// integer of 32 bits.
func asEnvoy(n *yaml.Node) *yaml.Node {
	if n.Style&jsonStyle != 0 || n.Style&anyQuotes != 0 && n.Style&yaml.TaggedStyle == 0 {
		return n
	}
	if n.Style == 0 && n.Tag == "!!int" && len(n.Value) < 10 && n.Value[0] >= '1' && n.Value[0] <= '9' {
		return n
	}
	as := *n
	as.Tag, as.Style = "!!str", yaml.DoubleQuotedStyle
	switch v := EnvoyScalar(n).(type) {
	case nil:
		return n
	case bool:
		as.Tag, as.Style, as.Value = "!!bool", 0, strconv.FormatBool(v)
	case int64:
		as.Value = strconv.FormatInt(v, 10)
		if v >= math.MinInt32 && v <= math.MaxInt32 {
			as.Tag, as.Style = "!!int", 0
		}
	case string:
		as.Value = v
	}
	return &as
}

// CoreScalar returns the value of a scalar by the core schema of YAML 1.2: a string, a float64 or a bool; nil for
// null, for another node, and for a number that JSON does not have.
func CoreScalar(n *yaml.Node) any {
	switch n.Tag {
	case "!!str", "!!timestamp":
		return n.Value
	case "!!bool":
		switch strings.ToLower(n.Value) {
		case "true":
			return true
		case "false":
			return false
		}
	case "!!int", "!!float":
		if f, ok := float(n); ok && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
	}
	return nil
}

// coreTag returns the tag of a plain scalar that begins like a number, by the core schema of YAML 1.2.
func coreTag(s string) string {
	unsigned := strings.TrimPrefix(strings.TrimPrefix(s, "-"), "+")
	if len(s)-len(unsigned) > 1 {
		return "!!str"
	}
	if octal, ok := strings.CutPrefix(s, "0o"); ok && octal != "" && strings.Trim(octal, "01234567") == "" {
		return "!!int"
	}
	if hex, ok := strings.CutPrefix(s, "0x"); ok && hex != "" && strings.Trim(hex, "0123456789abcdefABCDEF") == "" {
		return "!!int"
	}
	switch unsigned {
	case ".inf", ".Inf", ".INF":
		return "!!float"
	case ".nan", ".NaN", ".NAN":
		if s == unsigned {
			return "!!float"
		}
	}
	whole := strings.TrimLeft(unsigned, "0123456789")
	if whole == "" && unsigned != "" {
		return "!!int"
	}
	rest, digits := whole, len(unsigned)-len(whole)
	if fraction, ok := strings.CutPrefix(whole, "."); ok {
		rest = strings.TrimLeft(fraction, "0123456789")
		digits += len(fraction) - len(rest)
	}
	if digits == 0 {
		return "!!str"
	}
	if rest == "" {
		return "!!float"
	}
	if rest[0] != 'e' && rest[0] != 'E' {
		return "!!str"
	}
	rest = rest[1:]
	if rest != "" && (rest[0] == '+' || rest[0] == '-') {
		rest = rest[1:]
	}
	if rest == "" || strings.Trim(rest, "0123456789") != "" {
		return "!!str"
	}
	return "!!float"
}
