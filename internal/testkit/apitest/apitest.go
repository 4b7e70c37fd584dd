// Package apitest converts messages of generated code to dynamic ones in tests, and formats messages as
// text or JSON.
package apitest

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// Dynamic returns a generated message as a dynamic message, as the chancery command uses it.
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

// Text returns a message in protobuf's text format, with the content of each Any.
func Text(m proto.Message) string {
	return prototext.MarshalOptions{Multiline: true, AllowPartial: true, EmitUnknown: true, Resolver: envoy.Envoy()}.Format(m)
}

// JSON returns a message as JSON.
func JSON(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{Resolver: envoy.Envoy()}.Marshal(m)
}
