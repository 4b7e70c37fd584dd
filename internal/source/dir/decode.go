package dir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/internal/refs"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A Loaded is a resource and the place where it stands.
type Loaded struct {
	*xds.Resource
	Type *xds.Type
	Pos

	version string // version_info of the response it stands in
	doc     int    // which document of the file
}

const (
	apis     = "type.googleapis.com/"
	response = apis + "envoy.service.discovery.v3.DiscoveryResponse"
	wrapper  = apis + "envoy.service.discovery.v3.Resource"
)

// decode returns the resources in a file and all its mistakes, one per resource
// at most. The name tells JSON from YAML.
func decode(path string, data []byte) ([]Loaded, []Error) {
	d := decoder{path: path, text: text{left: growth*len(data) + spare}}
	var docs interface{ Decode(any) error } = yaml.NewDecoder(bytes.NewReader(data))
	if strings.EqualFold(filepath.Ext(path), ".json") {
		docs = newJSON(data)
	}
	for ; ; d.doc++ {
		var n yaml.Node
		err := docs.Decode(&n)
		if errors.Is(err, io.EOF) {
			return d.loaded, d.errs
		}
		if err != nil {
			d.fail(syntax(err))
			return d.loaded, d.errs
		}
		if root := n.Content[0]; root.ShortTag() != "!!null" { // else nothing but comments
			d.document(root)
		}
	}
}

type decoder struct {
	path   string
	text   text
	doc    int
	loaded []Loaded
	errs   []Error
}

// A mistake is an error at a line and column of the file at hand.
type mistake struct {
	line, col int
	text      string
}

func (m mistake) Error() string { return m.text }

func at(n *yaml.Node, format string, args ...any) error {
	return mistake{n.Line, n.Column, fmt.Sprintf(format, args...)}
}

func (d *decoder) fail(err error) {
	m, ok := errors.AsType[mistake](err)
	if !ok {
		m.text = err.Error()
	}
	d.errs = append(d.errs, Error{Pos{d.path, m.line, m.col}, m.text})
}

// document reads a single resource, a response or a wrapper.
func (d *decoder) document(n *yaml.Node) {
	fields, err := d.text.pairs(n)
	if err != nil {
		d.fail(err)
		return
	}
	switch url := fields.get("@type"); {
	case fields.get("resources") != nil && (url == nil || url.Value == response):
		d.response(fields)
	case url != nil:
		d.entry(n, "", "")
	case fields.get("static_resources") != nil || fields.get("dynamic_resources") != nil:
		d.fail(at(n, `this is Envoy's bootstrap, not a resource: it belongs outside of this directory`))
	default:
		d.fail(at(n, `neither "@type" nor "resources": want a resource, a DiscoveryResponse or the protocol's Resource`))
	}
}

// response reads Envoy's DiscoveryResponse, as in the files Envoy itself reads.
func (d *decoder) response(fields fields) {
	var m discoveryv3.DiscoveryResponse
	if err := d.message(fields.without("@type", "resources"), &m); err != nil {
		d.fail(err)
		return
	}
	list := resolve(fields.get("resources"))
	if list.Kind != yaml.SequenceNode && list.ShortTag() != "!!null" {
		d.fail(at(list, "resources is not a list"))
		return
	}
	for _, n := range list.Content {
		d.entry(n, m.VersionInfo, m.TypeUrl)
	}
}

// entry reads a resource, wrapped or not. A non-empty only is the type that its
// response says it has.
func (d *decoder) entry(n *yaml.Node, version, only string) {
	l, err := d.resource(n)
	switch {
	case err != nil:
		d.fail(err)
	case only != "" && l.Type.URL != only:
		d.fail(at(n, "%s, in a response whose type_url is %s", l.Type.URL, only))
	default:
		l.Pos, l.version, l.doc = Pos{d.path, n.Line, n.Column}, version, d.doc
		d.loaded = append(d.loaded, l)
	}
}

func (d *decoder) resource(n *yaml.Node) (Loaded, error) {
	fields, err := d.text.pairs(n)
	if err != nil {
		return Loaded{}, err
	}
	url := fields.get("@type")
	if url == nil || url.Value != wrapper {
		return d.single(n, fields, "")
	}
	var w discoveryv3.Resource
	if err := d.message(fields.without("@type", "resource"), &w); err != nil {
		return Loaded{}, err
	}
	inner := fields.get("resource")
	if inner == nil {
		return Loaded{}, at(n, "a Resource without its resource")
	}
	if u := unsupported(&w); u != "" {
		return Loaded{}, at(n, "%s of a Resource is not supported", u)
	}
	if fields, err = d.text.pairs(inner); err != nil {
		return Loaded{}, err
	}
	l, err := d.single(inner, fields, w.Name)
	if err != nil {
		return Loaded{}, err
	}
	if w.Ttl != nil {
		if l.TTL = w.Ttl.AsDuration(); l.TTL <= 0 {
			return Loaded{}, at(n, "a ttl of %v: want more than zero", l.TTL)
		}
	}
	if slices.Contains(w.Aliases, "") || slices.Contains(w.Aliases, xds.Wildcard) {
		return Loaded{}, at(n, `an alias that is empty or "*"`)
	}
	l.Aliases = w.Aliases
	l.Seal(w.Version)
	return l, nil
}

// unsupported returns a field of a wrapper that would be lost, or "".
func unsupported(w *discoveryv3.Resource) (name protoreflect.Name) {
	w.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		switch f.Name() {
		case "name", "aliases", "version", "ttl":
		default:
			name = f.Name()
		}
		return true
	})
	return name
}

// single reads a resource that is not wrapped. An empty name means the one it
// has itself.
func (d *decoder) single(n *yaml.Node, fields fields, name string) (Loaded, error) {
	url := fields.get("@type")
	if url == nil {
		return Loaded{}, at(n, `no "@type"`)
	}
	if !strings.HasPrefix(url.Value, apis) {
		return Loaded{}, at(url, `type %q: want a URL that begins with %q`, url.Value, apis)
	}
	typ, err := protoregistry.GlobalTypes.FindMessageByURL(url.Value)
	if err != nil {
		return Loaded{}, at(url, "unknown type %q", url.Value)
	}
	m := typ.New().Interface()
	if err := d.message(fields.without("@type"), m); err != nil {
		return Loaded{}, err
	}
	t := xds.TypeOf(url.Value)
	if name == "" && t.Name == "" {
		return Loaded{}, at(n, `a %s is known to the protocol by a name that is none of its fields: put it into a Resource ("@type": %s) with name and resource`,
			m.ProtoReflect().Descriptor().Name(), wrapper)
	}
	r, err := wire.NewResource(t, name, m)
	if err != nil {
		return Loaded{}, at(n, "%v", err)
	}
	if r.Name == xds.Wildcard {
		return Loaded{}, at(n, `the name "*" is reserved: it subscribes to all resources`)
	}
	r.Refs = refs.Of(m)
	return Loaded{Resource: r, Type: t}, nil
}

// message reads fields into m. Unknown fields are errors: Envoy's own reader
// drops them silently, and a typo with them.
func (d *decoder) message(fields fields, m proto.Message) error {
	if err := d.text.mapping(fields); err != nil {
		return err
	}
	if err := protojson.Unmarshal(d.text.buf, m); err != nil {
		return d.text.locate(err)
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+)(?:, column (\d+))?: )?`)

// syntax puts an error of the YAML reader at its place.
func syntax(err error) error {
	found := yamlLine.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	line, _ := strconv.Atoi(found[1])
	col, _ := strconv.Atoi(found[2])
	return mistake{line, col, err.Error()[len(found[0]):]}
}
