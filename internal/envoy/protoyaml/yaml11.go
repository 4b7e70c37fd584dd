package protoyaml

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
)

// Envoy's own reader follows YAML 1.1 for unquoted words in google.protobuf.Struct and the like.
// Observed with Envoy 1.40: y, yes and on are true; n, no and off are false; 010 is 8. It also reads
// 0.5 and other numbers with a fraction or an exponent as text. There is no warning for these, because
// no spelling of them is a number for every reader.

// yaml11Octal matches numbers that are octal in YAML 1.1 and decimal in YAML 1.2.
var yaml11Octal = regexp.MustCompile(`^[-+]?0[0-7]+$`)

// yaml11 warns about words and numbers that Envoy's own reader understands differently. With Rewrite it
// uses Envoy's meaning, because an Envoy has read the file before.
func (d *Decoder) yaml11(n *yaml.Node, path string) {
	if n.Style != 0 {
		return
	}
	switch {
	case n.Tag == "!!str" && yaml11Bool.MatchString(n.Value):
		b, _ := envoyBool(n)
		truth := strconv.FormatBool(b)
		d.notPortable(findings.ReadDifferently, n, path, "write "+truth+", or put it in quotes", "Envoy's own reader reads the bare word %s as "+truth+", and Chancery reads text", func() {
			n.Tag, n.Value = "!!bool", truth
		}, d.quoted(n.Value))
	case yaml11Octal.MatchString(n.Value):
		octal, err := strconv.ParseInt(n.Value, 8, 64)
		decimal, ok := float(n)
		if err != nil || ok && n.Tag != "!!str" && decimal == float64(octal) {
			return
		}
		d.notPortable(findings.ReadDifferently, n, path, "write a number without the 0 at its beginning, or put it in quotes", "Envoy's own reader reads %s as an octal number", func() {
			n.Tag, n.Value = "!!int", strconv.FormatInt(octal, 10)
		}, d.kind(n))
	}
}

// templated warns about a text that is only a template placeholder. It ignores Envoy's own formats,
// %...% and {...}, and inline_string, because a body or a script may contain any text.
func (d *Decoder) templated(n *yaml.Node, field, path string) {
	s := n.Value
	dollar := strings.HasPrefix(s, "${") && strings.IndexByte(s, '}') == len(s)-1
	braces := strings.HasPrefix(s, "{{") && strings.HasSuffix(s, "}}") && len(s) > 4
	if !dollar && !braces || d.Rewrite || field == "inline_string" && d.secrets == 0 {
		return
	}
	d.WarnAs(findings.UnrenderedTemplate, n, path, "if the text is correct as it is, use --ignore "+string(findings.UnrenderedTemplate), "%s looks like a template that was not filled in", d.quoted(s))
}
