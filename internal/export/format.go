package export

import (
	"bytes"
	"encoding/json"
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// A Format is a way to write a DiscoveryResponse. "Binary protobufs, JSON, YAML
// and proto text are supported formats for the DiscoveryResponse."
//
// A response is written in pieces, one for each resource, so that a resource is
// encoded once for as long as it does not change.
type Format struct {
	name, ext string

	piece func(*anypb.Any) ([]byte, error)
	whole func(version, typeURL string, pieces [][]byte) []byte

	lossless bool // fields that nobody knows here are written too
}

// String returns "yaml", "json", "pb_text" or "pb".
func (f *Format) String() string { return f.name }

// By the end of a file's name Envoy tells how to read it: text that ends
// otherwise (.txtpb) is read as YAML.
var formats = []*Format{
	{name: "yaml", ext: ".yaml", piece: yamlPiece, whole: yamlWhole},
	{name: "json", ext: ".json", piece: jsonPiece, whole: jsonWhole},
	{name: "pb_text", ext: ".pb_text", piece: textPiece, whole: textWhole},
	{name: "pb", ext: ".pb", piece: binaryPiece, whole: binaryWhole, lossless: true},
}

// ParseFormat returns the format of a name.
func ParseFormat(name string) (*Format, error) {
	for _, f := range formats {
		if f.name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%q is none of yaml, json, pb_text and pb", name)
}

// one is a response with nothing but a resource. Responses of which one is
// appended to the other are one response with the resources of both, in the
// binary format and in text.
func one(a *anypb.Any) *discoveryv3.DiscoveryResponse {
	return &discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{a}}
}

func head(version, typeURL string) *discoveryv3.DiscoveryResponse {
	return &discoveryv3.DiscoveryResponse{VersionInfo: version, TypeUrl: typeURL}
}

func binaryPiece(a *anypb.Any) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(one(a))
}

func binaryWhole(version, typeURL string, pieces [][]byte) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(head(version, typeURL))
	if err != nil {
		panic(err) // two strings
	}
	return append(b, bytes.Join(pieces, nil)...)
}

var text = prototext.MarshalOptions{Multiline: true, Indent: "  "}

func textPiece(a *anypb.Any) ([]byte, error) { return text.Marshal(one(a)) }

func textWhole(version, typeURL string, pieces [][]byte) []byte {
	b, err := text.Marshal(head(version, typeURL))
	if err != nil {
		panic(err) // two strings
	}
	return append(b, bytes.Join(pieces, nil)...)
}

func jsonPiece(a *anypb.Any) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(a)
	if err != nil {
		return nil, err
	}
	// The writer adds spaces at random, lest anybody rely on its bytes.
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
		panic(err) // a string
	}
	return string(b)
}

func yamlPiece(a *anypb.Any) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(a)
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
