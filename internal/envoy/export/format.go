package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// A Format is an encoding of a DiscoveryResponse. "Binary protobufs, JSON, YAML and proto text are
// supported formats for the DiscoveryResponse."
//
// A response is written in pieces, one for each resource, so an unchanged resource is encoded only
// once.
type Format struct {
	name, ext string

	piece func(*envoy.Types, *anypb.Any) ([]byte, error)
	whole func(version, typeURL string, pieces [][]byte) []byte

	lossless bool // keeps fields that this program does not know
}

// String returns "yaml", "json", "pb_text" or "pb".
func (f *Format) String() string { return f.name }

// Envoy chooses the reader by the end of a file's name. It reads text with another ending, such as .txtpb,
// as YAML.
var formats = []*Format{
	{name: "yaml", ext: ".yaml", piece: yamlPiece, whole: yamlWhole},
	{name: "json", ext: ".json", piece: jsonPiece, whole: jsonWhole},
	{name: "pb_text", ext: ".pb_text", piece: textPiece, whole: textWhole},
	{name: "pb", ext: ".pb", piece: binaryPiece, whole: binaryWhole, lossless: true},
}

// ParseFormat returns the format with a name.
func ParseFormat(name string) (*Format, error) {
	for _, f := range formats {
		if f.name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("must be yaml, json, pb_text or pb, not %q", name)
}

// A response consists of a head and one piece for each resource. In the binary and the text format,
// concatenated responses are one response with the resources of all.

const responseName = "envoy.service.discovery.v3.DiscoveryResponse"

// Field numbers of a DiscoveryResponse.
const (
	responseVersion   = 1
	responseResources = 2
	responseTypeURL   = 4
)

func binaryPiece(_ *envoy.Types, a *anypb.Any) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	return protowire.AppendBytes(protowire.AppendTag(nil, responseResources, protowire.BytesType), b), err
}

func binaryWhole(version, typeURL string, pieces [][]byte) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, responseVersion, protowire.BytesType), version)
	b = protowire.AppendString(protowire.AppendTag(b, responseTypeURL, protowire.BytesType), typeURL)
	return append(b, bytes.Join(pieces, nil)...)
}

func textPiece(types *envoy.Types, a *anypb.Any) ([]byte, error) {
	m := types.New(responseName)
	resource := m.Mutable(m.Descriptor().Fields().ByName("resources")).List().AppendMutable().Message()
	set(resource, "type_url", protoreflect.ValueOfString(a.TypeUrl))
	set(resource, "value", protoreflect.ValueOfBytes(a.Value))
	return prototext.MarshalOptions{Multiline: true, Indent: "  ", Resolver: types}.Marshal(m.Interface())
}

func textWhole(version, typeURL string, pieces [][]byte) []byte {
	head := fmt.Sprintf("version_info: %s\ntype_url: %s\n", strconv.Quote(version), strconv.Quote(typeURL))
	return append([]byte(head), bytes.Join(pieces, nil)...)
}

func jsonPiece(types *envoy.Types, a *anypb.Any) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: types}.Marshal(a)
	if err != nil {
		return nil, err
	}
	// protojson adds spaces at random.
	var out bytes.Buffer
	err = json.Indent(&out, b, "    ", "  ")
	return out.Bytes(), err
}

func jsonWhole(version, typeURL string, pieces [][]byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"version_info\": %s,\n  \"type_url\": %s,\n  \"resources\": [", jsonString(version), jsonString(typeURL))
	for i, p := range pieces {
		b.WriteString([]string{"\n    ", ",\n    "}[min(i, 1)])
		b.Write(p)
	}
	if len(pieces) > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("]\n}\n")
	return b.Bytes()
}

func jsonString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot fail for a string
	}
	return string(b)
}

func yamlPiece(types *envoy.Types, a *anypb.Any) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: types}.Marshal(a)
	if err != nil {
		return nil, err
	}
	w := yamlWriter{json: json.NewDecoder(bytes.NewReader(b))}
	w.json.UseNumber()
	err = w.item(0)
	return w.out.Bytes(), err
}

func yamlWhole(version, typeURL string, pieces [][]byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "version_info: %s\ntype_url: %s\nresources:", quote(version), quote(typeURL))
	if len(pieces) == 0 {
		b.WriteString(" []")
	}
	b.WriteByte('\n')
	for _, p := range pieces {
		b.Write(p)
	}
	return b.Bytes()
}
