package importer

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

// reportV2 reports messages of the v2 API inside resources. Imported resources are served to v3
// clients, which reject v2 messages.
func (im *importer) reportV2() {
	for _, e := range im.entries {
		if e.msg == nil {
			continue
		}
		for _, v := range im.finder.Find(e.msg).V2 {
			at := e.Place(e.node, im.descriptor(e.typ), v.Path)
			e.ReportAs(findings.V2, at.Node, v.Path, im.remedyOf(v.Type), "%s is of the v2 API, which Envoy no longer supports", v.Type)
		}
	}
	if im.bootMessage == nil {
		return
	}
	for _, v := range im.finder.Find(im.bootMessage).V2 { // allowed: an old Envoy may use the bootstrap
		im.note("%s in %s is of the v2 API, which Envoy has not accepted since 1.18: %s", v.Path, BootstrapFile, im.remedyOf(v.Type))
	}
}

// remedyOf returns the hint for a message of the v2 API.
func (im *importer) remedyOf(name protoreflect.FullName) string {
	next := im.Types.Successor(name)
	if next == "" {
		return "use the v3 message that replaces it: see Envoy's documentation"
	}
	return `write "@type": ` + apis + string(next) + "; then import again: it reports the fields that v3 does not have"
}

// nameOf returns the message name of a type URL.
func nameOf(url string) protoreflect.FullName {
	return protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:])
}
