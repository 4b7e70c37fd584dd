package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

// The text that Envoy's admin interface writes instead of a secret, and its base64 form for bytes. For
// a private key in a file, it also replaces the path.
const (
	redactedText  = "[redacted]"
	redactedBytes = "W3JlZGFjdGVkXQ=="
)

const (
	fromFile   = "import the file that Envoy was started with, which has it"
	fromDump   = `save the config_dump, replace "[redacted]" with the secret (or "filename" and the path of the key), and import that file`
	leavingOut = "--without-redacted leaves the %s out"
)

// checkRedacted reports redacted values in the output, or leaves out their resources with WithoutRedacted. Only the
// first value of each resource gets the hint.
func (im *importer) checkRedacted() {
	for _, e := range im.entries {
		hidden := redactedIn(e.node, "")
		switch {
		case e.dropped || len(hidden) == 0:
		case im.WithoutRedacted:
			e.dropped = true
			if e.typ.Is(xds.Cluster) {
				im.out.Clusters = slices.DeleteFunc(im.out.Clusters, func(name string) bool { return name == e.name })
			}
			im.note("%s", leftOut(e, hidden))
		default:
			remedy := fromFile
			if im.isConfigDump {
				remedy += "; or " + fromDump
			}
			reportRedacted(e.source, hidden, remedy+"; or "+fmt.Sprintf(leavingOut, Kind(e.typ)), fmt.Sprintf("%s %q", Kind(e.typ), e.name))
		}
	}
	if im.boot != nil {
		reportRedacted(im.bootFrom, redactedIn(im.boot, ""), fromFile, "the bootstrap")
	}
}

// reportRedacted reports each redacted value.
func reportRedacted(s *source, hidden []redactedField, remedy, what string) {
	for _, h := range hidden {
		s.ReportAs(findings.Other, h.node, h.path, remedy, "%s has \"[redacted]\" here: Envoy's admin interface does not show secrets", what)
		remedy = ""
	}
}

// leftOut returns the note for a resource that is left out, with the manual step that replaces it.
func leftOut(e *entry, hidden []redactedField) string {
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

// A redactedField is a redacted value and its path.
type redactedField struct {
	node *yaml.Node
	path string
}

// redactedIn returns the redacted values in a node.
func redactedIn(n *yaml.Node, path string) (hidden []redactedField) {
	if n.Kind == yaml.ScalarNode && (n.Value == redactedText || n.Value == redactedBytes) {
		return []redactedField{{n, path}}
	}
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			hidden = append(hidden, redactedIn(c, path+"["+strconv.Itoa(i)+"]")...)
		case n.Kind == yaml.MappingNode && i%2 == 1:
			hidden = append(hidden, redactedIn(c, strings.TrimPrefix(path+"."+n.Content[i-1].Value, "."))...)
		}
	}
	return hidden
}
