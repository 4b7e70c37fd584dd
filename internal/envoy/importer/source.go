package importer

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// A source is a decoded file with its problems.
type source struct {
	*protoyaml.Decoder
	restyle bool // the nodes come from JSON, so their style may change
}

// read reads the contents of a file.
func (im *importer) read(f File) {
	s := &source{Decoder: &protoyaml.Decoder{File: f.Name, Source: f.Data, Types: im.Types, Rewrite: true}}
	docs, err := im.parse(s, f)
	if err != nil {
		if f.Loose && hasNoEnvoyKey(f.Data) {
			im.note("%s is ignored: it is not an Envoy configuration", f.Name)
			return
		}
		im.files = append(im.files, s)
		if p, ok := errors.AsType[findings.Problem](err); ok {
			s.Report(&yaml.Node{Line: p.Pos.Line, Column: p.Pos.Column}, p.Path, p.Hint, "%s", p.Message)
		} else {
			s.Report(&yaml.Node{}, "", "", "%v", err)
		}
		return
	}
	if f.Loose && !slices.ContainsFunc(docs, func(doc *yaml.Node) bool { return im.readerOf(doc) != nil }) {
		if len(docs) > 0 {
			im.note("%s is ignored: it is not an Envoy configuration", f.Name)
		}
		return
	}
	im.files = append(im.files, s)
	for _, doc := range docs {
		kind := im.readerOf(doc)
		if kind == nil {
			s.Report(doc, "", im.hintFor(doc), "neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource")
			return
		}
		n := s.Plain(doc)
		if s.Errors() > 0 {
			return
		}
		if s.restyle {
			unquote(n)
		}
		if kind(s, n) && len(docs) > 1 {
			im.note("%s: only the first document is imported, because Envoy reads only that one", f.Name)
			return
		}
	}
}

// hasNoEnvoyKey reports whether an unreadable file contains none of the keys typical of Envoy.
func hasNoEnvoyKey(data []byte) bool {
	for _, word := range []string{"@type", "static_resources", "staticResources", "dynamic_resources", "dynamicResources"} {
		if bytes.Contains(data, []byte(word)) {
			return false
		}
	}
	return true
}

func (im *importer) parse(s *source, f File) ([]*yaml.Node, error) {
	switch ext := strings.ToLower(filepath.Ext(f.Name)); ext {
	case ".pb", ".pb_text":
		data, err := im.asJSON(ext, f.Data)
		if err != nil {
			return nil, err
		}
		s.restyle, s.Source = true, data
		n, err := protoyaml.ParseJSON(f.Name, data)
		return []*yaml.Node{n}, err
	}
	// JSON gives better positions than YAML. A "{" may also begin a YAML flow mapping.
	if b := bytes.TrimSpace(f.Data); len(b) > 0 && b[0] == '{' { // JSON has better positions than YAML; not all that begins so is JSON
		if n, err := protoyaml.ParseJSON(f.Name, f.Data); err == nil {
			s.restyle = true
			return []*yaml.Node{n}, nil
		} else if docs, again := protoyaml.ParseYAML(f.Name, f.Data); again == nil { // like Envoy, accept a trailing comma
			return docs, nil
		} else if strings.EqualFold(filepath.Ext(f.Name), ".json") {
			return nil, err
		}
	}
	return protoyaml.ParseYAML(f.Name, f.Data)
}

// asJSON converts a DiscoveryResponse or a bootstrap in the binary or text format to JSON.
func (im *importer) asJSON(ext string, data []byte) ([]byte, error) {
	var first error
	for _, name := range []protoreflect.FullName{responseName, bootstrapName} {
		m := im.Types.New(name).Interface()
		var err error
		if ext == ".pb" {
			err = proto.UnmarshalOptions{Resolver: im.Types}.Unmarshal(data, m)
		} else {
			err = prototext.UnmarshalOptions{Resolver: im.Types}.Unmarshal(data, m)
		}
		if err == nil && isPlausible(m.ProtoReflect()) {
			return protojson.MarshalOptions{UseProtoNames: true, Resolver: im.Types}.Marshal(m)
		}
		if first == nil {
			first = errors.New("neither a DiscoveryResponse nor a bootstrap") // the error of the parser may quote a secret
		}
	}
	return nil, first
}

// isPlausible reports whether a message has the type that it was decoded as. In the binary format, many
// messages also decode as another type.
func isPlausible(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return false
	}
	if m.Descriptor().FullName() != responseName {
		return true
	}
	all := field(m, "resources").List()
	for i := range all.Len() {
		if !strings.Contains(field(all.Get(i).Message(), "type_url").String(), "/") {
			return false
		}
	}
	return true
}

// hintFor guesses what an unrecognized document was meant to be; "" if unknown.
func (im *importer) hintFor(doc *yaml.Node) string {
	if protoyaml.Get(doc, "apiVersion") != nil && protoyaml.Get(doc, "kind") != nil {
		return "this is a Kubernetes object: write the Envoy configuration that is in it to a file of its own"
	}
	if doc.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i < len(doc.Content); i += 2 {
		word := doc.Content[i].Value
		if near := protoyaml.Nearest(word, slices.Values([]string{"static_resources", "dynamic_resources", "resources", "@type"})); near != "" {
			return fmt.Sprintf("did you mean %q and not %q?", near, word)
		}
	}
	return ""
}

// readerOf returns the method that reads a document; nil if it is not an Envoy configuration. The
// method reports whether the rest of the file is ignored.
func (im *importer) readerOf(doc *yaml.Node) func(*source, *yaml.Node) (whole bool) {
	has := func(key string) bool { return protoyaml.Get(doc, key) != nil }
	url := ""
	if n := protoyaml.Get(doc, "@type"); n != nil {
		url = n.Value
	}
	switch {
	case url == apis+"envoy.admin.v3.ConfigDump", url == "" && has("configs"):
		return im.dump
	case url == apis+bootstrapName:
		return im.bootstrap
	case url == apis+responseName, url == "" && has("resources") && im.looksLike(doc, responseName) && !isPathList(protoyaml.Get(doc, "resources")):
		return im.response
	case url != "":
		return im.single
	case im.looksLike(doc, bootstrapName):
		return im.bootstrap
	}
	return nil
}

// looksLike reports whether at least half of a document's keys are fields of a message. Then the other
// keys are likely typing errors.
func (im *importer) looksLike(doc *yaml.Node, name protoreflect.FullName) bool {
	if doc.Kind != yaml.MappingNode || len(doc.Content) == 0 {
		return false
	}
	md, known := im.Types.New(name).Descriptor(), 0
	for i := 0; i < len(doc.Content); i += 2 {
		if protoyaml.Field(md, doc.Content[i].Value) != nil {
			known++
		}
	}
	return known*4 >= len(doc.Content)
}

// isPathList reports whether a list of resources contains paths, as in a Kustomization.
func isPathList(list *yaml.Node) bool {
	all := items(list)
	return len(all) > 0 && all[0].Kind == yaml.ScalarNode && all[0].Tag != "!!null"
}

// bootstrap takes the static resources out of a bootstrap.
func (im *importer) bootstrap(s *source, n *yaml.Node) bool {
	n = without(n, "@type")
	md := im.Types.New(bootstrapName).Descriptor()
	if im.boot != nil {
		s.Report(n, "", "import one at a time", "another bootstrap, besides %s", im.bootFrom.File)
		return true
	}
	s.Message(n, im.Types.New(bootstrapName).Interface(), "")
	im.boot, im.bootFrom = n, s
	if s.Errors() > 0 {
		return true
	}
	im.dynamic = take(n, md, "dynamic_resources")
	static := take(n, md, "static_resources")
	if static == nil {
		return true
	}
	in := md.Fields().ByName("static_resources").Message()
	for _, list := range []struct {
		field string
		typ   *xds.Type
	}{{"listeners", xds.Listener}, {"clusters", xds.Cluster}, {"secrets", xds.Secret}} {
		if l := child(static, in, list.field); l != nil {
			for _, c := range l.Content {
				lead(c, "@type", text(list.typ.URL))
				im.add(s, c, nil)
			}
		}
	}
	return true
}

// response takes the resources of a DiscoveryResponse, the format of files that Envoy subscribes to.
func (im *importer) response(s *source, n *yaml.Node) bool {
	md := im.Types.New(responseName).Descriptor()
	s.Message(without(n, "@type", "resources"), im.Types.New(responseName).Interface(), "")
	list := child(n, md, "resources")
	if list == nil {
		return true
	}
	for _, c := range items(list) { // Envoy accepts a single resource for a list of one
		im.single(s, c)
	}
	return true
}

// single takes a resource, or the protocol's Resource around it.
func (im *importer) single(s *source, n *yaml.Node) bool {
	if url := protoyaml.Get(n, "@type"); url != nil && url.Value == apis+wrapperName {
		if inner := protoyaml.Get(n, "resource"); inner != nil {
			im.add(s, inner, n)
		} else {
			s.Report(n, "", "", "the Resource has no field \"resource\"")
		}
		return false
	}
	im.add(s, n, nil)
	return false
}

// add adds a resource, whose node has its "@type".
func (im *importer) add(s *source, n, wrap *yaml.Node) {
	url := protoyaml.Get(n, "@type")
	if url == nil {
		s.Report(n, "", "", `a resource without "@type"`)
		return
	}
	e := &entry{source: s, typ: xds.TypeOf(url.Value), node: n, wrap: wrap}
	if e.typ.V2 {
		s.ReportAs(findings.V2, url, "", im.remedyOf(nameOf(url.Value)), "%s is of the v2 API, which Envoy no longer supports", nameOf(url.Value))
		return
	}
	m := e.message()
	if m == nil || s.Errors() > 0 {
		return
	}
	if wrap != nil {
		w := im.Types.New(wrapperName)
		s.Message(without(wrap, "@type", "resource", extension), w.Interface(), "")
		e.name = w.Get(w.Descriptor().Fields().ByName("name")).String()
	}
	if f := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(e.typ.Name)); e.name == "" && f != nil {
		e.name = m.ProtoReflect().Get(f).String()
	}
	if e.name == "" && !e.typ.Is(xds.Listener) {
		s.Report(n, "", "", "%s without a name", Kind(e.typ))
		return
	}
	n.Style &^= yaml.FlowStyle
	im.entries = append(im.entries, e)
}
