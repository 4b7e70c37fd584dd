package dir

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/check/validate"
	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	envoysecrets "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/refs"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A Loaded is a resource and its place.
type Loaded struct {
	*xds.Resource
	Pos

	// Secret is the path of a secret in the resource, such as "generic_secret.secret"; "" if it has
	// none.
	Secret string

	certificates []envoysecrets.Certificate
	v2           []envoysecrets.V2
	claims       []claim // of a listener, virtual host or route configuration; nil after a restore
	refused      bool    // Envoy would refuse it; only checked if Options.Validate is set

	version string      // version_info of the response that contains it
	doc     int         // index of the document in the file
	groups  *groupNames // the groups of the resource; nil: that of its file
}

// A groupNames has the groups that a resource names, with their places and quotes in the file.
type groupNames struct {
	names []string
	at    []findings.Problem
}

// With returns another resource at the place of l, and in the same groups. [Options.Review] uses it
// for the resources that it adds.
func (l Loaded) With(r *xds.Resource) Loaded {
	return Loaded{Resource: r, Pos: l.Pos, groups: l.groups}
}

const (
	apis         = "type.googleapis.com/"
	responseName = "envoy.service.discovery.v3.DiscoveryResponse"
	wrapperName  = "envoy.service.discovery.v3.Resource"
	response     = apis + responseName
	wrapper      = apis + wrapperName
)

// forms are the decoders of file formats, by the ending of the file name.
var forms = map[string]func(*decoder){
	".yaml":      (*decoder).yaml,
	".yml":       (*decoder).yaml,
	".json":      (*decoder).json,
	".txtpb":     (*decoder).text,
	".textproto": (*decoder).text,
	".pb_text":   (*decoder).text,
	".pb":        (*decoder).binary,
}

// form returns the decoder of a file; nil if the file name has no known ending.
func form(path string) func(*decoder) {
	if path == stdinName {
		return (*decoder).yaml
	}
	return forms[strings.ToLower(filepath.Ext(path))]
}

// A decoder decodes a file into resources, and collects all its mistakes.
type decoder struct {
	protoyaml.Decoder
	*reader
	doc      int
	loaded   []Loaded
	panicked *panics.Panic // the panic of the decoder; nil: there was none
}

// A reader has the configuration for decoding files.
type reader struct {
	types   *envoyapi.Types
	secrets *envoysecrets.Finder
	most    int             // how many mistakes of a file are reported: Options.MaxProblems
	ignore  []findings.Code // kinds of problems that are not reported

	lines     func(src []byte) bool // reports whether an error may quote lines of an unreadable file; nil: it may not
	validator *validate.Validator   // nil: no check of what Envoy refuses

	maxProgram int // the limit of Envoy for the size of a regular expression
}

func newReader(types *envoyapi.Types, most int) *reader {
	return &reader{types: types, secrets: envoysecrets.NewFinder(types), most: most, maxProgram: math.MaxInt}
}

// words are the type URLs by the short names of the types, such as CDS.
var words = sync.OnceValue(func() map[string]string {
	byWord := map[string]string{}
	for _, t := range xds.Types() {
		byWord[strings.ToUpper(t.Short)] = t.URL
	}
	return byWord
})

// decode decodes a file and returns the decoder with the results.
func (rd *reader) decode(path string, data []byte) *decoder {
	d := &decoder{Decoder: protoyaml.Decoder{File: path, Source: data, Types: rd.types, Words: words(), Most: rd.most, Ignore: rd.ignore, Lines: rd.lines}, reader: rd}
	// A file must not end the program if a decoder panics.
	if p := panics.Do(d.decode); p != nil {
		d.ReportAs(findings.Other, &yaml.Node{}, "", "", "%s: %s", readerFailed, p.Value)
		d.panicked = p
	}
	return d
}

func (d *decoder) decode() {
	if len(bytes.TrimSpace(d.Source)) == 0 {
		d.WarnAs(findings.EmptyFile, &yaml.Node{}, "", "", "the file is empty; a running server rejects a file that has become empty")
		return
	}
	form(d.File)(d)
}

const readerFailed = "the reader gave up"

func (d *decoder) yaml() {
	if !d.IsText() {
		return
	}
	docs, err := protoyaml.ParseYAML(d.File, d.Source)
	d.syntax(err)
	d.PortableText()
	for _, n := range docs {
		d.document(n)
		d.doc++
	}
}

func (d *decoder) json() {
	if !d.IsText() {
		return
	}
	n, err := protoyaml.ParseJSON(d.File, d.Source)
	if err != nil {
		d.syntax(err)
		return
	}
	d.byteOrderMark()
	d.document(n)
}

// byteOrderMark warns about a mark at the head of a file that is not YAML.
func (d *decoder) byteOrderMark() {
	if len(protoyaml.WithoutBOM(d.Source)) < len(d.Source) {
		d.WarnAs(findings.Portability, &yaml.Node{Line: 1, Column: 1}, "", "save the file without it: Envoy's own reader accepts it only in a YAML file", "a byte order mark")
	}
}

func (d *decoder) syntax(err error) {
	if p, ok := errors.AsType[findings.Problem](err); ok {
		d.Syntax(p)
	}
}

// document decodes a resource, a response or a wrapper.
func (d *decoder) document(n *yaml.Node) {
	flat := d.Flat(n, "")
	if flat == nil {
		return
	}
	has := func(key string) bool { return protoyaml.Get(flat, key) != nil }
	url := protoyaml.Get(flat, "@type")
	switch {
	case url != nil && url.Value == response, url == nil && has("resources"):
		d.response(flat)
	case url != nil:
		d.entry(n, flat, "", responseInfo{})
	case has("static_resources"), has("dynamic_resources"), has("staticResources"), has("dynamicResources"):
		d.ReportAs(findings.NotResource, n, "", "chancery import "+shellWord(d.File)+" --out DIR converts it", "this is an Envoy bootstrap, not a resource")
	case has("configs"):
		d.ReportAs(findings.NotResource, n, "", "chancery import "+shellWord(d.File)+" --out DIR converts it", "this is a config_dump of Envoy, not a resource")
	default:
		hint := "it must be a resource, a DiscoveryResponse or the protocol's Resource"
		if base := filepath.Base(d.File); strings.TrimSuffix(base, filepath.Ext(base)) == "group" && (has("match") || has("include")) {
			hint = "rules of a group must be in a file with the name " + GroupFile
		} else if has("apiVersion") && has("kind") {
			hint = "this is a Kubernetes object: write the Envoy configuration that is in it to a file of its own"
		} else if meant := protoyaml.SuggestKey(flat); strings.HasPrefix(meant, "did you mean") {
			hint = meant
		}
		d.ReportAs(findings.NotResource, n, "", hint, `neither "@type" nor "resources"`)
	}
}

// shellWord returns a path, quoted for a shell if necessary.
func shellWord(path string) string {
	if path == stdinName {
		return Stdin
	}
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// response decodes Envoy's DiscoveryResponse, as in the files that Envoy itself reads.
func (d *decoder) response(flat *yaml.Node) {
	m := d.types.New(responseName)
	d.Message(without(flat, "@type", "resources"), m.Interface(), "")
	in := d.responseInfo(m, cmp.Or(protoyaml.Get(flat, "type_url"), protoyaml.Get(flat, "typeUrl")))
	list := protoyaml.Get(flat, "resources")
	switch {
	case list == nil || list.ShortTag() == "!!null":
	case list.Kind == yaml.MappingNode:
		d.WarnAs(findings.EnvoyOnly, list, "resources", `put "- " before it: readers other than Envoy's need a list`, "a mapping for a list")
		if flat := d.Flat(list, "resources"); flat != nil {
			d.entry(list, flat, "resources", in)
		}
	case list.Kind != yaml.SequenceNode:
		d.Report(list, "resources", "", "a list is needed")
	default:
		for i, n := range list.Content {
			path := fmt.Sprintf("resources[%d]", i)
			if flat := d.Flat(n, path); flat != nil {
				d.entry(n, flat, path, in)
			}
		}
	}
}

// entry decodes a resource of a response, with or without a wrapper.
func (d *decoder) entry(n, flat *yaml.Node, path string, in responseInfo) {
	before := d.Errors()
	var w wrapperFields
	inner, at := flat, path
	if url := protoyaml.Get(flat, "@type"); url != nil && url.Value == wrapper {
		m := d.types.New(wrapperName)
		d.Message(without(d.extras(flat, path, &w), "@type", "resource"), m.Interface(), path)
		w.read(m)
		w.nameAt, w.ttlAt = protoyaml.Get(flat, "name"), protoyaml.Get(flat, "ttl")
		at = strings.TrimPrefix(path+".resource", ".")
		r := protoyaml.Get(flat, "resource")
		if r == nil || r.ShortTag() == "!!null" {
			d.Report(n, path, "", "the Resource has no field \"resource\"")
			return
		}
		inner = d.Flat(r, at)
		if inner == nil {
			return
		}
	}
	if m := d.single(inner, at, &w); m != nil && d.Errors() == before {
		d.add(n, path, m, &w, in)
	}
}

// single decodes a resource without a wrapper.
func (d *decoder) single(flat *yaml.Node, path string, w *wrapperFields) proto.Message {
	flat = d.extras(flat, path, w)
	switch url := protoyaml.Get(flat, "@type"); {
	case url == nil:
		d.ReportAs(findings.NotResource, flat, path, protoyaml.SuggestKey(flat), `no "@type"`)
	case url.Kind != yaml.ScalarNode || !strings.HasPrefix(url.Value, apis):
		hint := cmp.Or(d.SuggestType(url.Value), `for example "@type": `+apis+"envoy.config.cluster.v3.Cluster")
		d.ReportAs(findings.UnknownType, url, path, hint, `"@type" must be a full type URL, which begins with %s`, apis)
	default:
		return d.Any(flat, path)
	}
	return nil
}

// extension is a key next to "@type" for settings of the server that are not part of the resource. It
// may be in a wrapper or in the wrapped resource.
const extension = "x-chancery"

// extras decodes the extension, and returns the mapping without it.
func (d *decoder) extras(flat *yaml.Node, path string, w *wrapperFields) *yaml.Node {
	n := protoyaml.Get(flat, extension)
	if n == nil {
		return flat
	}
	rest := without(flat, extension)
	path = strings.TrimPrefix(path+"."+extension, ".")
	known := d.Flat(n, path)
	if known == nil {
		return rest
	}
	for i := 0; i < len(known.Content); i += 2 {
		k, v := known.Content[i], known.Content[i+1]
		switch {
		case k.Value == "groups":
			w.groups = d.groups(v, path+".groups", cmp.Or(w.groups, &groupNames{}))
		case k.Value != "on_demand":
			d.Report(k, path, "the keys are groups and on_demand", "unknown key %q", k.Value)
		case v.ShortTag() != "!!bool":
			d.Report(v, path+".on_demand", "", "true or false is needed")
		default:
			w.onDemand = w.onDemand || strings.EqualFold(v.Value, "true")
		}
	}
	return rest
}

// without returns a flat mapping without some keys.
func without(flat *yaml.Node, keys ...string) *yaml.Node {
	rest := *flat
	rest.Content = nil
	for i := 0; i < len(flat.Content); i += 2 {
		if !slices.Contains(keys, flat.Content[i].Value) {
			rest.Content = append(rest.Content, flat.Content[i], flat.Content[i+1])
		}
	}
	return &rest
}

// add adds a decoded resource. The wrapper and the response have more about it.
func (d *decoder) add(n *yaml.Node, path string, m proto.Message, w *wrapperFields, in responseInfo) {
	fail := func(hint, format string, args ...any) {
		d.ReportAs(findings.Unusable, n, path, hint, format, args...)
	}
	name := m.ProtoReflect().Descriptor().FullName()
	t := xds.TypeOf(apis + string(name))
	as := w.name
	if as == "" && t.Is(xds.VirtualHost) {
		// The name of a virtual host need not be the name of the resource, but Envoy takes it as such.
		as = m.ProtoReflect().Get(m.ProtoReflect().Descriptor().Fields().ByName("name")).String()
	}
	switch {
	case in.typeURL != "" && in.typeURL != t.URL:
		fail("", "%s, in a response whose type_url is %s", t.URL, in.typeURL)
		return
	case t.Is(xds.VirtualHost) && !strings.Contains(as, "/"):
		hint := ""
		if w.name == "" {
			hint = `change its name, or put it into a Resource ("@type": ` + wrapper + ") with name and resource"
		}
		fail(hint, "the name of a VHDS resource must be ROUTE/HOST (the name of the route configuration, and the host), not %q", as)
		return
	case as == "" && t.Name == "":
		fail(`put it into a Resource ("@type": `+wrapper+") with name and resource",
			"%s has no field for its name", protoyaml.WithArticle(string(name.Name())))
		return
	}
	if w.unsupported != "" {
		fail("", "%s of a Resource is not supported", w.unsupported)
		return
	}
	if slices.Contains(w.aliases, "") || slices.Contains(w.aliases, xds.Wildcard) {
		fail("", `an alias must not be empty or "*"`)
		return
	}
	if as == "" {
		as = ownName(t, m.ProtoReflect())
	}
	if as == "" {
		fail("", "%s resource without a name", t)
		return
	}
	body, err := envoyapi.Marshal(m.ProtoReflect())
	if err != nil {
		fail("", "%s resource %q: %v", t, as, err)
		return
	}
	id, err := wire.ResourceName(t, xds.CanonicalName(as), body)
	if err != nil {
		d.ReportAs(findings.Unusable, cmp.Or(w.nameAt, n), path, "", "%s resource %q: %v", t, as, err)
		return
	}
	r := xds.NewResource(t, id, body)
	if w.ttl != nil {
		r.TTL = *w.ttl
		if r.TTL <= 0 {
			d.Report(cmp.Or(w.ttlAt, n), path, "", "ttl must be more than 0s, not %v", r.TTL)
			return
		}
	}
	for _, a := range w.aliases {
		r.Aliases = append(r.Aliases, xds.CanonicalName(a))
	}
	if w.aliases != nil || w.ttl != nil || w.version != "" {
		r.Seal(w.version)
	}
	r.OnDemand = w.onDemand
	d.refer(r, t, m)
	l := Loaded{Resource: r, Pos: Pos{d.File, n.Line, n.Column, path}, version: in.version, doc: d.doc, groups: w.groups}
	if p := d.inspect(&l, m); p.Message != "" {
		at, whole := d.place(n, path, m.ProtoReflect().Descriptor(), p.Path)
		at.Secret = true // or it is near one
		d.ReportAt(at, cmp.Or(p.Code, findings.Unusable), whole, "", p.Message)
		return
	}
	d.claims(&l, n, path, m)
	d.refused(&l, n, path, m)
	d.loaded = append(d.loaded, l)
}

// ownName returns the name in the message of a resource; "" if it has none.
func ownName(t *xds.Type, m protoreflect.Message) string {
	f := m.Descriptor().Fields().ByName(protoreflect.Name(t.Name))
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return m.Get(f).String()
}

// refer sets the references and addresses of a resource.
func (rd *reader) refer(r *xds.Resource, t *xds.Type, m proto.Message) {
	r.Addresses = wire.Addresses(t, r.Body)
	if t.V2 { // only these references are known for v2
		r.Refs = wire.Refs(t, r.Name, r.Body)
	} else {
		r.Refs = refs.With(rd.types, m)
	}
}
