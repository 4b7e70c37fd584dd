package protoyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
)

// Portable reports a scalar of a field of any type, such as google.protobuf.Struct, that Envoy's own reader reads
// differently than Chancery does. Chancery follows YAML 1.2: for example yes is text, 010 is 10, and 0.5 is a number.
// With Rewrite, Portable sets the node to Envoy's value, because an Envoy has read the file before.
func (d *Decoder) Portable(n *yaml.Node, path string) {
	as := asEnvoy(n)
	if n.Kind != yaml.ScalarNode || sameValue(n, as) {
		return
	}
	if isNumber(n) && CoreScalar(n) == nil && !d.Rewrite {
		return // an error: JSON has no such number
	}
	hint, value, ours := "for text, put it in quotes", "text", "text"
	if core := CoreScalar(n); core != nil && n.Tag != "!!str" {
		b, _ := json.Marshal(core) // a number or a bool
		ours = string(b)
	}
	switch {
	case as.Tag != "!!str" && d.secrets > 0:
		value, ours = "one value", "another one"
	case as.Tag != "!!str":
		value = as.Value
		hint = "write " + value + ", or put it in quotes"
	case n.Tag == "!!float":
		hint += "; only a .json file has a number with a fraction or an exponent for every reader"
	}
	what := d.kind(n)
	if as.Tag == "!!bool" && n.Tag == "!!str" {
		what = "the bare word " + d.quoted(n.Value)
	}
	d.notPortable(findings.ReadDifferently, n, path, hint, "Envoy's own reader reads %s as %s, and Chancery reads %s", func() { *n = *as }, what, value, ours)
}

// isNumber reports whether a scalar is a number by YAML 1.2.
func isNumber(n *yaml.Node) bool { return n.Tag == "!!int" || n.Tag == "!!float" }

// sameValue reports whether Envoy reads a scalar n as the same value; as is Envoy's value.
func sameValue(n, as *yaml.Node) bool {
	switch {
	case as == n:
		return true
	case as.Tag == "!!str":
		return !isNumber(n) && n.Tag != "!!bool" && n.Tag != "!!null" && n.Value == as.Value
	case as.Tag == "!!bool":
		return n.Tag == "!!bool" && strings.EqualFold(n.Value, as.Value)
	}
	ours, ok := float(n)
	envoys, _ := float(as)
	return ok && ours == envoys && isNumber(n)
}

var (
	tabsOnly   = regexp.MustCompile(`(?m)^ *\t[ \t]*\r?$`)
	foldedKeep = regexp.MustCompile(`(?m)[ \t]>(?:\+[1-9]?|[1-9]\+)[ \t]*(?:#.*)?\r?$`)
	latin1Mark = regexp.MustCompile(`"(?:[^"\\]|\\[^N_])*?\\[N_]`)
)

// PortableText warns about text of a YAML file that Envoy's own reader refuses or reads differently: a line of
// tabs, folded text that keeps its last line feeds, the line breaks of YAML 1.1, and the escapes \N and \_, which
// become invalid UTF-8.
func (d *Decoder) PortableText() {
	if i := find(tabsOnly, d.Source, "\t"); i != nil {
		at := placeOf(d.Source, i[0])
		d.WarnAs(findings.Portability, &yaml.Node{Line: at.Line, Column: at.Column}, "", "remove the tabs: Envoy's own reader refuses them", "a line of tabs")
	}
	if i := find(foldedKeep, d.Source, ">"); i != nil {
		at := placeOf(d.Source, i[0]+1)
		d.WarnAs(findings.ReadDifferently, &yaml.Node{Line: at.Line, Column: at.Column}, "", "write the text in quotes", "Envoy's own reader leaves out a line feed at the end of a text with >+")
	}
	for _, r := range "\u0085\u2028\u2029" {
		if i := bytes.IndexRune(d.Source, r); i >= 0 {
			at := placeOf(d.Source, i)
			d.WarnAs(findings.ReadDifferently, &yaml.Node{Line: at.Line, Column: at.Column}, "", fmt.Sprintf(`write \u%04x in double quotes`, r), "Chancery reads the character %U as a line break, and Envoy's own reader does not", r)
		}
	}
	if i := find(latin1Mark, d.Source, `\`); i != nil {
		at := placeOf(d.Source, i[1]-2)
		d.WarnAs(findings.ReadDifferently, &yaml.Node{Line: at.Line, Column: at.Column}, "", `write \u0085 for \N, and \u00a0 for \_`, "Envoy's own reader does not read the escapes \\N and \\_ as Unicode")
	}
}

// find returns the place of the first match of an expression. Every match contains the text part. Most sources do not
// contain this text, and the search for the text is much faster than the search for the expression.
func find(e *regexp.Regexp, source []byte, part string) []int {
	if !bytes.Contains(source, []byte(part)) {
		return nil
	}
	return e.FindIndex(source)
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
