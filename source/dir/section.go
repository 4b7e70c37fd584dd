package dir

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// section parses only the lines of one resource, because a file may have thousands of others. It
// returns nil if the lines do not show where the resource ends, as in JSON, or if the resource refers
// to YAML anchors elsewhere in the file.
func section(l Loaded, data []byte) *yaml.Node {
	if strings.HasSuffix(strings.ToLower(l.File), ".json") || l.Line < 1 || l.Col < 1 {
		return nil
	}
	text := indented(data, l.Line, l.Col-1)
	if text == nil {
		return nil
	}
	docs, err := protoyaml.ParseYAML(l.File, text)
	if err != nil || len(docs) != 1 || docs[0].Line != 1 || docs[0].Column != l.Col || docs[0].Kind != yaml.MappingNode {
		return nil
	}
	moveDown(docs[0], l.Line-1)
	return docs[0]
}

// moveDown adds to the line numbers of all nodes.
func moveDown(n *yaml.Node, by int) {
	n.Line += by
	for _, c := range n.Content {
		moveDown(c, by)
	}
}

// indented returns the lines from first on, as long as they have at least the indent. In the first
// line, only spaces and dashes may come before the indent; it replaces them by spaces.
func indented(data []byte, first, indent int) (out []byte) {
	at := 0
	for line := range bytes.Lines(data) {
		at++
		body := bytes.TrimLeft(line, " ")
		in := len(line) - len(body)
		switch blank := len(bytes.TrimSpace(body)) == 0 || body[0] == '#'; { // comments may have any indent
		case at < first:
		case at == first:
			if len(line) <= indent || len(bytes.Trim(line[:indent], " -")) > 0 {
				return nil
			}
			out = append(bytes.Repeat([]byte(" "), indent), line[indent:]...)
		case blank:
			out = append(out, line...)
		case in < indent, indent == 0 && (bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("..."))):
			return out
		default:
			out = append(out, line...)
		}
	}
	return out
}
