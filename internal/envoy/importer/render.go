package importer

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// render writes all outputs.
func (im *importer) render() {
	paths := files{usedNames{}}
	for _, e := range im.entries {
		if e.stays != "" || e.dropped {
			continue
		}
		r := Resource{Type: e.typ, Name: e.name, Notes: e.notes, Output: Output{Path: paths.assign(e.typ, e.name), Secret: im.hasSecret(e.msg)}}
		var err error
		r.Data, err = im.resource(e)
		if err != nil {
			e.Report(e.node, "", "", "%s %q cannot be written: %v", Kind(e.typ), e.name, err)
			continue
		}
		im.out.Resources = append(im.out.Resources, r)
	}
	slices.SortStableFunc(im.out.Resources, func(a, b Resource) int { return strings.Compare(a.Path, b.Path) })
	if im.boot != nil {
		im.renderBootstrap()
	}
}

// resource returns the file of a resource. It writes the node if that decodes to the same message, else
// it encodes the message again.
func (im *importer) resource(e *entry) ([]byte, error) {
	want, err := envoy.Marshal(e.msg.ProtoReflect())
	if err != nil {
		return nil, err
	}
	n := e.node
	if e.wrap != nil {
		n = e.wrap
	}
	if data, err := encode(n); err == nil && im.matches(data, want) {
		return data, nil
	}
	if e.wrap == nil {
		n, err = im.nodeOf(e.typ, e.msg)
		if err != nil {
			return nil, err
		}
		if data, err := encode(n); err == nil && im.matches(data, want) {
			return data, nil
		}
	}
	return nil, errors.New("the written file differs from the input")
}

// matches reports whether a file decodes to a resource, wrapped or not, of these bytes.
func (im *importer) matches(data, want []byte) bool {
	docs, err := protoyaml.ParseYAML("", data)
	if err != nil || len(docs) != 1 {
		return false
	}
	n := docs[0]
	if url := protoyaml.Get(n, "@type"); url != nil && url.Value == apis+wrapperName {
		n = protoyaml.Get(n, "resource")
		if n == nil {
			return false
		}
	}
	d := protoyaml.Decoder{Source: data, Types: im.Types, Ignore: []findings.Code{findings.ReadDifferently}}
	m := d.Any(without(n, extension), "")
	if m == nil || len(d.Problems) > 0 {
		return false
	}
	got, err := envoy.Marshal(m.ProtoReflect())
	return err == nil && bytes.Equal(got, want)
}

// nodeOf returns a new node of a message.
func (im *importer) nodeOf(t *xds.Type, m proto.Message) (*yaml.Node, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: im.Types}.Marshal(m)
	if err != nil {
		return nil, err
	}
	n, err := protoyaml.ParseJSON("", b)
	if err != nil {
		return nil, err
	}
	lead(n, "@type", text(t.URL))
	unquote(n)
	return n, nil
}

// renderBootstrap writes the remaining bootstrap.
func (im *importer) renderBootstrap() {
	md := im.Types.New(bootstrapName).Descriptor()
	static := mapping()
	in := md.Fields().ByName("static_resources").Message()
	for i := 0; i+1 < len(im.boot.Content); i += 2 {
		im.out.Stays = append(im.out.Stays, fieldOf(md, im.boot.Content[i].Value))
	}
	for _, list := range []struct {
		field string
		typ   *xds.Type
		one   string
	}{{"listeners", xds.Listener, "listener"}, {"clusters", xds.Cluster, "cluster"}, {"secrets", xds.Secret, "secret"}} {
		all := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range im.entries {
			if !e.typ.Is(list.typ) || e.dropped || e.stays == "" && (!e.typ.Is(xds.Secret) || !im.secretsStay[e.name]) {
				continue
			}
			all.Content = append(all.Content, without(e.node, "@type"))
			why := e.stays
			if why == "" {
				why = "the bootstrap needs it; it is served, too"
			}
			im.out.Stays = append(im.out.Stays, fmt.Sprintf("%s %q (%s)", list.one, e.name, why))
		}
		if len(all.Content) > 0 {
			put(static, in, list.field, all)
		}
	}
	if len(static.Content) > 0 {
		put(im.boot, md, "static_resources", static)
	}
	m := part(im.Types, im.boot, md)
	want, err := envoy.Marshal(m)
	if err != nil {
		im.bootFrom.Report(im.boot, "", "", "the bootstrap cannot be written: %v", err)
		return
	}
	data, err := encode(im.boot)
	if err != nil || !im.bootstrapMatches(data, want, md) {
		im.bootFrom.Report(im.boot, "", "", "the bootstrap cannot be written")
		return
	}
	head := "# The part of Envoy's bootstrap that no server can send. Use it with\n# chancery bootstrap envoy --from " + BootstrapFile + "\n"
	if len(im.boot.Content) == 0 {
		data = []byte("{}\n")
	}
	im.out.Bootstrap = &Output{Path: BootstrapFile, Data: append([]byte(head), data...), Secret: im.hasSecret(m.Interface())}
}

func (im *importer) bootstrapMatches(data, want []byte, md protoreflect.MessageDescriptor) bool {
	docs, err := protoyaml.ParseYAML("", data)
	if err != nil || len(docs) > 1 {
		return false
	}
	if len(docs) == 0 {
		return len(want) == 0
	}
	got, err := envoy.Marshal(part(im.Types, docs[0], md))
	return err == nil && bytes.Equal(got, want)
}

func encode(n *yaml.Node) ([]byte, error) {
	return yaml.Dump(n, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithCompactSeqIndent(true), yaml.WithLineWidth(-1))
}

// literal matches text that a YAML block can hold: its first line sets the indent, and it ends in at
// most one line feed.
var literal = regexp.MustCompile(`(?s)^[^ \n].*[^ \n]\n?$`)

// unquote gives nodes of JSON the usual style of YAML.
func unquote(n *yaml.Node) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str" && isPlain(n.Value):
		n.Style = 0
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.Contains(n.Value, "\n") && literal.MatchString(n.Value) &&
		!strings.ContainsFunc(n.Value, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }):
		n.Style = yaml.LiteralStyle
	}
	for _, c := range n.Content {
		unquote(c)
	}
}
