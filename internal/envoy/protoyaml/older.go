package protoyaml

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
)

// Where anything may stand, as in a google.protobuf.Struct, Envoy's own reader takes words
// without quotes for what YAML 1.1 had them mean. Seen with 1.40: y, yes and on are true, n,
// no and off false, and 010 is 8. It also takes 0.5 and other numbers with a fraction or an
// exponent for text, of which nothing is said: they have no spelling that is a number for all.

// olderOctal matches numbers that are of base 8 in YAML 1.1 and of base 10 in YAML 1.2.
var olderOctal = regexp.MustCompile(`^[-+]?0[0-7]+$`)

// older tells what Envoy's own reader takes for something else. Who mends has what an Envoy
// read so, and gets what that was.
func (d *Decoder) older(n *yaml.Node, path string) {
	if n.Style != 0 {
		return
	}
	switch {
	case n.Tag == "!!str" && olderTruth.MatchString(n.Value):
		b, _ := wordOfTruth(n)
		truth := strconv.FormatBool(b)
		d.portable(findings.ReadDifferently, n, path, "write "+truth+", or put it in quotes", "Envoy's own reader takes the bare word %s for "+truth+", and it is text here", func() {
			n.Tag, n.Value = "!!bool", truth
		}, d.quoted(n.Value))
	case olderOctal.MatchString(n.Value):
		octal, err := strconv.ParseInt(n.Value, 8, 64)
		decimal, ok := float(n)
		if err != nil || ok && n.Tag != "!!str" && decimal == float64(octal) {
			return
		}
		d.portable(findings.ReadDifferently, n, path, "write a number without the 0 at its beginning, or put it in quotes", "Envoy's own reader takes %s for a number of base 8", func() {
			n.Tag, n.Value = "!!int", strconv.FormatInt(octal, 10)
		}, d.kind(n))
	}
}

// templated warns of a text that is wholly what a template is filled in at. Envoy's own
// formats write %...% and {...}, and a body or a script may have anything.
func (d *Decoder) templated(n *yaml.Node, field, path string) {
	s := n.Value
	dollar := strings.HasPrefix(s, "${") && strings.IndexByte(s, '}') == len(s)-1
	braces := strings.HasPrefix(s, "{{") && strings.HasSuffix(s, "}}") && len(s) > 4
	if !dollar && !braces || d.Mend || field == "inline_string" && d.secrets == 0 {
		return
	}
	d.WarnAs(findings.UnrenderedTemplate, n, path, "if the text is correct as it is, use --ignore "+string(findings.UnrenderedTemplate), "%s looks like a template that was not filled in", d.quoted(s))
}
