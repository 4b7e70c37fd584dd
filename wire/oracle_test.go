package wire

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/chancery-xds/chancery/xds"
)

// The oracle is the protobuf library with a schema that has only the fields of the decoder: metadata is opaque,
// and the message of an error may be any bytes.
const oracleSchema = `
name: "oracle.proto" syntax: "proto3" package: "oracle"
message_type { name: "DiscoveryRequest"
  field { name: "version_info" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "node" number: 2 type: TYPE_MESSAGE type_name: ".oracle.Node" label: LABEL_OPTIONAL }
  field { name: "resource_names" number: 3 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "type_url" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "response_nonce" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "error_detail" number: 6 type: TYPE_MESSAGE type_name: ".oracle.Status" label: LABEL_OPTIONAL }
  field { name: "resource_locators" number: 7 type: TYPE_MESSAGE type_name: ".oracle.ResourceLocator" label: LABEL_REPEATED } }
message_type { name: "DeltaDiscoveryRequest"
  field { name: "node" number: 1 type: TYPE_MESSAGE type_name: ".oracle.Node" label: LABEL_OPTIONAL }
  field { name: "type_url" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "resource_names_subscribe" number: 3 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "resource_names_unsubscribe" number: 4 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "initial_resource_versions" number: 5 type: TYPE_MESSAGE type_name: ".oracle.DeltaDiscoveryRequest.Entry" label: LABEL_REPEATED }
  field { name: "response_nonce" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "error_detail" number: 7 type: TYPE_MESSAGE type_name: ".oracle.Status" label: LABEL_OPTIONAL }
  field { name: "resource_locators_subscribe" number: 8 type: TYPE_MESSAGE type_name: ".oracle.ResourceLocator" label: LABEL_REPEATED }
  field { name: "resource_locators_unsubscribe" number: 9 type: TYPE_MESSAGE type_name: ".oracle.ResourceLocator" label: LABEL_REPEATED }
  nested_type { name: "Entry"
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL } } }
message_type { name: "ResourceLocator"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
message_type { name: "Status"
  field { name: "code" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "message" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL } }
message_type { name: "Node"
  field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "cluster" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "metadata" number: 3 type: TYPE_BYTES label: LABEL_REPEATED }
  field { name: "locality" number: 4 type: TYPE_MESSAGE type_name: ".oracle.Locality" label: LABEL_OPTIONAL }
  field { name: "user_agent_name" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "user_agent_version" number: 7 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "user_agent_build_version" number: 8 type: TYPE_MESSAGE type_name: ".oracle.Build" label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "client_features" number: 10 type: TYPE_STRING label: LABEL_REPEATED }
  oneof_decl { name: "v" } }
message_type { name: "Locality"
  field { name: "region" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "zone" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "sub_zone" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL } }
message_type { name: "Build"
  field { name: "version" number: 1 type: TYPE_MESSAGE type_name: ".oracle.Semantic" label: LABEL_OPTIONAL } }
message_type { name: "Semantic"
  field { name: "major_number" number: 1 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "minor_number" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "patch" number: 3 type: TYPE_UINT32 label: LABEL_OPTIONAL } }
`

var oracleFile = func() protoreflect.FileDescriptor {
	var f descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(oracleSchema), &f); err != nil {
		panic(err)
	}
	d, err := protodesc.NewFile(&f, nil)
	if err != nil {
		panic(err)
	}
	return d
}()

// oracle decodes a request with the protobuf library.
func oracle(v xds.Variant, b []byte) (xds.Request, error) {
	name := protoreflect.Name("DiscoveryRequest")
	if v == xds.Delta {
		name = "DeltaDiscoveryRequest"
	}
	m := dynamicpb.NewMessage(oracleFile.Messages().ByName(name))
	if err := proto.Unmarshal(b, m); err != nil {
		return xds.Request{}, err
	}
	return fromMessage(m), nil
}

// fromMessage returns the request in a message of the oracle's schema or of the generated one.
func fromMessage(m protoreflect.Message) (r xds.Request) {
	field := func(m protoreflect.Message, name string) (protoreflect.Value, bool) {
		f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if f == nil {
			return protoreflect.Value{}, false
		}
		return m.Get(f), m.Has(f)
	}
	str := func(m protoreflect.Message, name string) string {
		if v, ok := field(m, name); ok {
			if s, ok := v.Interface().([]byte); ok {
				return strings.ToValidUTF8(string(s), "\uFFFD")
			}
			return v.String()
		}
		return ""
	}
	list := func(m protoreflect.Message, name string) (s []string) {
		if v, ok := field(m, name); ok {
			for i := range v.List().Len() {
				s = append(s, v.List().Get(i).String())
			}
		}
		return s
	}
	located := func(name string) (s []string) {
		if v, ok := field(m, name); ok {
			for i := range v.List().Len() {
				if name := str(v.List().Get(i).Message(), "name"); name != "" {
					s = append(s, name)
				}
			}
		}
		return s
	}
	if url := str(m, "type_url"); url != "" {
		r.Type = xds.TypeOf(url)
	}
	r.Nonce, r.Version, r.Names = str(m, "response_nonce"), str(m, "version_info"), append(list(m, "resource_names"), located("resource_locators")...)
	r.Subscribe = append(list(m, "resource_names_subscribe"), located("resource_locators_subscribe")...)
	r.Unsubscribe = append(list(m, "resource_names_unsubscribe"), located("resource_locators_unsubscribe")...)
	if v, ok := field(m, "initial_resource_versions"); ok {
		if f := m.Descriptor().Fields().ByName("initial_resource_versions"); f.IsMap() {
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				r.Initial = append(r.Initial, xds.Version{Name: k.String(), Version: v.String()})
				return true
			})
		} else {
			for i := range v.List().Len() {
				e := v.List().Get(i).Message()
				r.Initial = append(r.Initial, xds.Version{Name: str(e, "key"), Version: str(e, "value")})
			}
		}
	}
	if v, ok := field(m, "error_detail"); ok {
		code, _ := field(v.Message(), "code")
		r.Error = &xds.Status{Code: int32(code.Int()), Message: str(v.Message(), "message")}
	}
	if v, ok := field(m, "node"); ok {
		n := v.Message()
		r.Node = &xds.Node{ID: str(n, "id"), Cluster: str(n, "cluster"), UserAgentName: str(n, "user_agent_name"),
			UserAgentVersion: str(n, "user_agent_version"), ClientFeatures: list(n, "client_features")}
		if v, ok := field(n, "user_agent_build_version"); ok {
			if v, ok := field(v.Message(), "version"); ok {
				var p [3]uint64
				for i, name := range []string{"major_number", "minor_number", "patch"} {
					part, _ := field(v.Message(), name)
					p[i] = part.Uint()
				}
				r.Node.UserAgentVersion = fmt.Sprintf("%d.%d.%d", p[0], p[1], p[2])
			}
		}
		if v, ok := field(n, "locality"); ok {
			r.Node.Region, r.Node.Zone, r.Node.SubZone = str(v.Message(), "region"), str(v.Message(), "zone"), str(v.Message(), "sub_zone")
		}
		if v, ok := field(n, "metadata"); ok {
			if l, ok := v.Interface().(protoreflect.List); ok {
				for i := range l.Len() {
					r.Node.Metadata = append(r.Node.Metadata, l.Get(i).Bytes()...)
				}
			} else if b, err := proto.Marshal(v.Message().Interface()); err == nil {
				r.Node.Metadata = b
			}
		}
	}
	return r
}

// generated decodes a request with the generated code.
func generated(v xds.Variant, b []byte) (xds.Request, error) {
	var m proto.Message = &discovery.DiscoveryRequest{}
	if v == xds.Delta {
		m = &discovery.DeltaDiscoveryRequest{}
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return xds.Request{}, err
	}
	return fromMessage(m.ProtoReflect()), nil
}

// The oracle has the field numbers of the generated code.
func TestOracleSchema(t *testing.T) {
	real := map[string]protoreflect.MessageDescriptor{
		"DiscoveryRequest":      (&discovery.DiscoveryRequest{}).ProtoReflect().Descriptor(),
		"DeltaDiscoveryRequest": (&discovery.DeltaDiscoveryRequest{}).ProtoReflect().Descriptor(),
		"ResourceLocator":       (&discovery.ResourceLocator{}).ProtoReflect().Descriptor(),
		"Node":                  (&corev3.Node{}).ProtoReflect().Descriptor(),
		"Locality":              (&corev3.Locality{}).ProtoReflect().Descriptor(),
		"Build":                 (&corev3.BuildVersion{}).ProtoReflect().Descriptor(),
	}
	for name, d := range real {
		fields := oracleFile.Messages().ByName(protoreflect.Name(name)).Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if g := d.Fields().ByName(f.Name()); g == nil || g.Number() != f.Number() {
				t.Errorf("%s: field %s is not number %d", name, f.Name(), f.Number())
			}
		}
	}
}
