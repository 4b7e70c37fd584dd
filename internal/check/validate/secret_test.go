package validate

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// A user's own messages have rules too. A violation in a marked field does not quote even a number.
func TestMarkedFieldIsNotQuoted(t *testing.T) {
	rules := envoy.Envoy().New("validate.FieldRules")
	u := rules.Mutable(rules.Descriptor().Fields().ByName("uint32")).Message()
	u.Set(u.Descriptor().Fields().ByName("lte"), protoreflect.ValueOfUint32(5))
	encoded, err := proto.Marshal(rules.Interface())
	if err != nil {
		t.Fatal(err)
	}
	options := func(marked bool) *descriptorpb.FieldOptions {
		o := &descriptorpb.FieldOptions{DebugRedact: &marked}
		o.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, fieldRules, protowire.BytesType), encoded))
		return o
	}
	field := func(name string, number int32, marked bool) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: descriptorpb.FieldDescriptorProto_TYPE_UINT32.Enum(), Options: options(marked)}
	}
	inner := &descriptorpb.FieldDescriptorProto{Name: new("inner"), Number: new(int32(3)), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: new(".acme.Inner"),
		Options: &descriptorpb.FieldOptions{DebugRedact: new(true)}}
	file := &descriptorpb.FileDescriptorProto{Name: new("acme.proto"), Package: new("acme"), Syntax: new("proto3"), MessageType: []*descriptorpb.DescriptorProto{
		{Name: new("Filter"), Field: []*descriptorpb.FieldDescriptorProto{field("pin", 1, true), field("size", 2, false), inner}},
		{Name: new("Inner"), Field: []*descriptorpb.FieldDescriptorProto{field("size", 1, false)}}}}
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
	if err != nil {
		t.Fatal(err)
	}
	types, err := envoy.Envoy().With(set)
	if err != nil {
		t.Fatal(err)
	}
	m := types.New("acme.Filter")
	for i := range 2 {
		m.Set(m.Descriptor().Fields().Get(i), protoreflect.ValueOfUint32(4711))
	}
	below := m.Mutable(m.Descriptor().Fields().ByName("inner")).Message()
	below.Set(below.Descriptor().Fields().Get(0), protoreflect.ValueOfUint32(4711))
	got := strings.Join(lines(New(types).Validate(m.Interface())), "\n")
	if want := "XDS0301 inner.size: must be at most 5\nXDS0301 pin: must be at most 5\nXDS0301 size: must be at most 5, not 4711"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
