package protoyaml

import (
	"bytes"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
)

// Files may contain text that is not configuration: templates and merge conflicts. Readers of YAML and
// JSON do not know these, so the hints depend on how the lines look.

const (
	// TemplateHint is the hint for a template that was not rendered.
	TemplateHint = "this is a template: check its output instead, as in: helm template . | chancery check -"

	conflictHint = "a merge conflict: keep one of the two sides, and remove the marker lines"
	starHint     = `"*" needs quotes`
	spaceHint    = "this line contains a no-break space: replace it by a normal space"
	listHint     = `write several resources as documents separated by ---, or as a list below "resources:"`
)

var (
	conflictMark = regexp.MustCompile(`(?m)^(<{7} .*|\|{7} .*|={7}|>{7} .*)\r?$`)
	templateMark = regexp.MustCompile(`\{\{|\{%|<%`)
)

// cause returns the likely cause of a syntax error as a hint, and its position, which may differ from
// the parser's; "" if unknown.
func cause(src []byte, at findings.Pos) (hint string, pos findings.Pos) {
	if i := conflictMark.FindIndex(src); i != nil {
		return conflictHint, placeOf(src, i[0])
	}
	line := sourceLine(src, at.Line)
	switch {
	case templateMark.MatchString(line):
		return TemplateHint, at
	case strings.ContainsRune(line, '\u00a0'):
		return spaceHint, at
	}
	return "", at
}

// template reports whether a node is the YAML reading of {{ .Values.name }}: a mapping whose key is a
// mapping.
func template(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 && len(n.Content) == 2 && n.Content[0].Kind == yaml.MappingNode
}

var bom = []byte("\ufeff")

// WithoutBOM returns a file without the UTF-8 byte order mark that some editors write.
func WithoutBOM(src []byte) []byte { return bytes.TrimPrefix(src, bom) }

// Encoding returns a hint for a file that is not UTF-8; "" if there is none.
func Encoding(src []byte) string {
	wide := len(src) > 1 && (src[0] == 0 && src[1] != 0 || src[0] != 0 && src[1] == 0)
	if wide || bytes.HasPrefix(src, []byte("\xff\xfe")) || bytes.HasPrefix(src, []byte("\xfe\xff")) {
		return "it looks like UTF-16: save it as UTF-8"
	}
	return ""
}

// jsonHint returns a hint for common JSON mistakes, such as comments; "" if there is none.
func jsonHint(src []byte, at int64) string {
	if at < 0 || at >= int64(len(src)) {
		return ""
	}
	before := bytes.TrimRight(src[:at], " \t\r\n")
	switch c := src[at]; {
	case templateMark.Match(src[max(at-1, 0):min(at+2, int64(len(src)))]):
		return TemplateHint
	case (c == '}' || c == ']') && bytes.HasSuffix(before, []byte(",")):
		return "remove the comma before " + string(c)
	case c == '/' || c == '#':
		return "JSON has no comments: use a .yaml file, with # comments"
	case c == '\'':
		return `JSON allows only " as quotes`
	}
	return ""
}
