package importer

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

// What Envoy's admin interface writes in the place of a secret: of a text, and of bytes in
// base64. Of a key in a file it writes so in the place of the path.
const (
	hiddenText  = "[redacted]"
	hiddenBytes = "W3JlZGFjdGVkXQ=="
)

const (
	fromFile   = "import the file that Envoy was started with, which has it"
	fromDump   = `save the config_dump, replace "[redacted]" with the secret (or "filename" and the path of the key), and import that file`
	leavingOut = "--without-redacted leaves the %s out"
)

// redacted refuses what Envoy has written in the place of secrets, or leaves the resources
// out that have it. The first place in each says what to do.
func (im *importer) redacted() {
	for _, e := range im.entries {
		hidden := hiddenIn(e.node, "")
		switch {
		case len(hidden) == 0:
		case im.WithoutRedacted:
			e.dropped = true
			im.note("%s", leftOut(e, hidden))
		default:
			remedy := fromFile
			if im.ofAdmin {
				remedy += "; or " + fromDump
			}
			hide(e.source, hidden, remedy+"; or "+fmt.Sprintf(leavingOut, Kind(e.typ)), fmt.Sprintf("%s %q", Kind(e.typ), e.name))
		}
	}
	if im.boot != nil {
		hide(im.bootFrom, hiddenIn(im.boot, ""), fromFile, "the bootstrap")
	}
}

// hide reports each place of what is hidden in something.
func hide(s *source, hidden []hiddenField, remedy, what string) {
	for _, h := range hidden {
		s.ReportAs(findings.Other, h.node, h.path, remedy, "%s has \"[redacted]\" here: Envoy's admin interface does not show secrets", what)
		remedy = ""
	}
}

// leftOut says of a resource that is left out what somebody has to do.
func leftOut(e *entry, hidden []hiddenField) string {
	remedy := "Write its file by hand, with the key or with a secret from the server (tls_certificate_sds_secret_configs)"
	if e.typ.Is(xds.Secret) {
		remedy = "Write its file before clients subscribe to it"
	}
	const most = 3
	var paths []string
	for _, h := range hidden[:min(len(hidden), most)] {
		paths = append(paths, h.path)
	}
	where := strings.Join(paths, ", ")
	if more := len(hidden) - len(paths); more > 0 {
		where += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s %q is left out: Envoy does not show %s (\"[redacted]\"). %s", Kind(e.typ), e.name, where, remedy)
}

// A hiddenField is a value and the path to it.
type hiddenField struct {
	node *yaml.Node
	path string
}

// hiddenIn returns what Envoy has replaced in a node.
func hiddenIn(n *yaml.Node, path string) (hidden []hiddenField) {
	if n.Kind == yaml.ScalarNode && (n.Value == hiddenText || n.Value == hiddenBytes) {
		return []hiddenField{{n, path}}
	}
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			hidden = append(hidden, hiddenIn(c, path+"["+strconv.Itoa(i)+"]")...)
		case n.Kind == yaml.MappingNode && i%2 == 1:
			hidden = append(hidden, hiddenIn(c, strings.TrimPrefix(path+"."+n.Content[i-1].Value, "."))...)
		}
	}
	return hidden
}
