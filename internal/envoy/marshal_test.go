package envoy

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// Marshal gives the same bytes as generated code, so a resource's version does not depend on who
// encoded it. The test compares random messages of all linked types.
func TestMarshalEqualsGenerated(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	n := 0
	protoregistry.GlobalTypes.RangeMessages(func(generated protoreflect.MessageType) bool {
		name := generated.Descriptor().FullName()
		mt, err := Envoy().FindMessageByName(name)
		if err != nil { // Go's own types
			return true
		}
		for range 3 {
			n++
			m := mt.New()
			randomize(rnd, m, 5)
			same(t, m, generated.New())
		}
		return true
	})
	if n < 1000 {
		t.Errorf("%d messages", n)
	}
}

func same(t *testing.T, m, generated protoreflect.Message) {
	t.Helper()
	got, err := Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(got, generated.Interface()); err != nil {
		t.Fatal(m.Descriptor().FullName(), err)
	}
	for _, other := range []protoreflect.Message{m, generated} {
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(other.Interface())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: %T has other bytes\n%x\n%x", m.Descriptor().FullName(), other, got, want)
		}
	}
	again := m.New()
	if err := proto.Unmarshal(got, again.Interface()); err != nil || !proto.Equal(m.Interface(), again.Interface()) {
		t.Fatalf("%s: %v: decodes to another message", m.Descriptor().FullName(), err)
	}
}

// randomize sets some fields of a message.
func randomize(rnd *rand.Rand, m protoreflect.Message, depth int) {
	if rnd.IntN(8) == 0 {
		m.SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.VarintType), rnd.Uint64()))
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if rnd.IntN(3) == 0 && f.Cardinality() != protoreflect.Required || f.Message() != nil && !f.IsMap() && depth == 0 {
			continue
		}
		value := func(f protoreflect.FieldDescriptor, empty func() protoreflect.Value) protoreflect.Value {
			if f.Message() == nil {
				return scalar(rnd, f)
			}
			v := empty()
			if depth > 0 {
				randomize(rnd, v.Message(), depth-1-rnd.IntN(3)*depth/3)
			}
			return v
		}
		switch {
		case f.IsList():
			for l := m.Mutable(f).List(); l.Len() < rnd.IntN(3); {
				l.Append(value(f, l.NewElement))
			}
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range rnd.IntN(4) {
				entries.Set(scalar(rnd, f.MapKey()).MapKey(), value(f.MapValue(), entries.NewValue))
			}
		default:
			m.Set(f, value(f, func() protoreflect.Value { return m.NewField(f) }))
		}
	}
}

func scalar(rnd *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	n := rnd.Int64() >> rnd.IntN(64)
	if rnd.IntN(4) == 0 {
		n = -n
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n % 100))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32([]float32{0, float32(math.Copysign(0, -1)), 1.5, float32(n)}[n&3])
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, math.Copysign(0, -1), 1.5, float64(n)}[n&3])
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprint(string(rune('a'+n&15)), "é", n)[:1+n&1*2])
	}
	return protoreflect.ValueOfBytes([]byte(fmt.Sprint(n)[:n&1]))
}

// Lengths of more than one byte are correct at each level.
func TestMarshalLongFields(t *testing.T) {
	for _, n := range []int{100, 127, 128, 200, 16_383, 16_384, 3_000_000} {
		v := structpb.NewStringValue(string(bytes.Repeat([]byte("x"), n)))
		s := &structpb.Struct{Fields: map[string]*structpb.Value{"b": v, "a": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v, v}})}}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Marshal(s.ProtoReflect())
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d: %v, %d bytes, want %d", n, err, len(got), len(want))
		}
		if cap(got) > len(got)+len(got)/4+64 {
			t.Errorf("%d bytes have the capacity %d", len(got), cap(got))
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	if _, err := Marshal(structpb.NewStringValue("\xff").ProtoReflect()); err == nil {
		t.Error("accepted invalid UTF-8")
	}
	if _, err := Marshal((&descriptorpb.UninterpretedOption_NamePart{}).ProtoReflect()); err == nil {
		t.Error("accepted a missing required field")
	}
	old, err := Envoy().With(encode(t, `file { name: "a.proto" package: "a" syntax: "proto2" message_type { name: "A" field { name: "s" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } } }`))
	if err != nil {
		t.Fatal(err)
	}
	m := old.New("a.A")
	m.Set(m.Descriptor().Fields().ByName("s"), protoreflect.ValueOfString("\xff"))
	if b, err := Marshal(m); err != nil || string(b) != "\x0a\x01\xff" {
		t.Error("FILE-6 a proto2 string without UTF-8:", b, err)
	}
	if b, err := Marshal(Envoy().New("envoy.config.cluster.v3.Cluster")); err != nil || b == nil || len(b) > 0 {
		t.Error("an empty message:", b, err)
	}
}
