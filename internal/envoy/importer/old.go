package importer

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

// old refuses resources with messages of v2 in them, where they stand: what is imported is
// served to clients of v3, which take none.
func (im *importer) old() {
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
	for _, v := range im.finder.Find(im.bootMessage).V2 { // an old Envoy may run with it
		im.note("%s in %s is of the v2 API, which Envoy has not accepted since 1.18: %s", v.Path, BootstrapFile, im.remedyOf(v.Type))
	}
}

// remedyOf says what to write for a message of v2.
func (im *importer) remedyOf(name protoreflect.FullName) string {
	next := im.Types.Successor(name)
	if next == "" {
		return "use the v3 message that replaces it: see Envoy's documentation"
	}
	return `write "@type": ` + apis + string(next) + "; then import again: it reports the fields that v3 does not have"
}

// nameOf returns the message that a type URL names.
func nameOf(url string) protoreflect.FullName {
	return protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:])
}
