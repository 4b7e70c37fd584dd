// Package apitest has for tests what is written with generated code, where they hold it
// against what is known by descriptors only.
package apitest

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// Dynamic returns a message of generated code as the command has it.
func Dynamic(t testing.TB, m proto.Message) proto.Message {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := envoy.Envoy().New(m.ProtoReflect().Descriptor().FullName()).Interface()
	if err := (proto.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Text returns a message in protobuf's text format, and what is in each Any.
func Text(m proto.Message) string {
	return prototext.MarshalOptions{Multiline: true, AllowPartial: true, EmitUnknown: true, Resolver: envoy.Envoy()}.Format(m)
}

// JSON returns a message in JSON.
func JSON(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{Resolver: envoy.Envoy()}.Marshal(m)
}
