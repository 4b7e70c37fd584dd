// Package secrettest makes messages with secrets for tests.
package secrettest

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// Canary is the value of each secret.
const Canary = "canary-of-a-secret"

// Every calls f for each field that Envoy's API marks as sensitive, with a message that sets only this
// field. It repeats the call for each choice of the oneofs below the field. All texts in the message
// are the [Canary], except keys of maps. Every returns the number of fields. The names of the subtests
// contain rules, the requirement IDs.
func Every(t *testing.T, rules string, marked func(protoreflect.FieldDescriptor) bool, f func(t *testing.T, m proto.Message, fd protoreflect.FieldDescriptor)) int {
	types := map[protoreflect.FullName]protoreflect.MessageType{}
	envoy.Envoy().RangeMessages(func(mt protoreflect.MessageType) bool {
		types[mt.Descriptor().FullName()] = mt
		return true
	})
	n := 0
	for _, name := range slices.Sorted(maps.Keys(types)) {
		fields := types[name].Descriptor().Fields()
		for i := range fields.Len() {
			fd := fields.Get(i)
			if !marked(fd) {
				continue
			}
			n++
			t.Run(rules+" "+string(fd.FullName()), func(t *testing.T) {
				tried := map[string]bool{}
				for only := range 5 { // for each field of the oneofs below
					m := types[name].New()
					set(m, fd, only, 4)
					text := prototext.Format(m.Interface())
					if tried[text] {
						continue
					}
					tried[text] = true
					f(t, m.Interface(), fd)
				}
				if len(tried) == 0 {
					t.Error("nothing was tried")
				}
			})
		}
	}
	return n
}

// fill sets every field of a message to the Canary. Of a oneof it sets the field with the index only,
// so several messages are needed to cover all fields.
func fill(m protoreflect.Message, only, depth int) {
	fields := m.Descriptor().Fields()
	switch m.Descriptor().FullName() {
	case "google.protobuf.Any":
		b, _ := proto.Marshal(wrapperspb.String(Canary))
		m.Set(fields.ByName("type_url"), protoreflect.ValueOfString("type.googleapis.com/google.protobuf.StringValue"))
		m.Set(fields.ByName("value"), protoreflect.ValueOfBytes(b))
		return
	case "google.protobuf.Struct":
		all := m.Mutable(fields.ByName("fields")).Map()
		value := all.Mutable(protoreflect.ValueOfString("password").MapKey()).Message()
		value.Set(value.Descriptor().Fields().ByName("string_value"), protoreflect.ValueOfString(Canary))
		return
	}
	for i := range fields.Len() {
		if fd := fields.Get(i); fd.ContainingOneof() == nil || fd.Index() == only {
			set(m, fd, only, depth)
		}
	}
}

func set(m protoreflect.Message, fd protoreflect.FieldDescriptor, only, depth int) {
	if depth == 0 {
		return
	}
	one := func(fd protoreflect.FieldDescriptor, empty func() protoreflect.Value) (v protoreflect.Value, ok bool) {
		switch {
		case fd.Message() != nil:
			v = empty()
			fill(v.Message(), only, depth-1)
			return v, true
		case fd.Kind() == protoreflect.StringKind:
			return protoreflect.ValueOfString(Canary), true
		case fd.Kind() == protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte(Canary)), true
		}
		return v, false
	}
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		if v, ok := one(fd.MapValue(), entries.NewValue); ok {
			entries.Set(protoreflect.ValueOfString("k").MapKey(), v)
		}
	case fd.IsList():
		l := m.Mutable(fd).List()
		if v, ok := one(fd, l.NewElement); ok {
			l.Append(v)
		}
	default:
		if v, ok := one(fd, func() protoreflect.Value { return m.NewField(fd) }); ok {
			m.Set(fd, v)
		}
	}
}
