package secret

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Hidden stands where a sensitive text was.
const Hidden = "[redacted]"

// Redacted returns a copy of a message without what is sensitive: texts are
// [Hidden], all else in a sensitive field is empty. What cannot be read may be
// sensitive: fields that are not known here are gone, and so is what is in an Any or
// a TypedStruct whose type is not linked.
func Redacted(m proto.Message) proto.Message {
	m = proto.Clone(m)
	(&redactor{}).message(m.ProtoReflect())
	return m
}

type redactor struct{ anys int }

func (r *redactor) message(m protoreflect.Message) {
	m.SetUnknown(nil)
	switch name := m.Descriptor().FullName(); {
	case name == anyName:
		r.any(m)
		return
	case typedStructs[name]:
		known := typeOf(m.Get(m.Descriptor().Fields().ByName("type_url")).String()) != nil
		if !known || len(Find(m.Interface()).Values) > 0 {
			m.Clear(m.Descriptor().Fields().ByName("value"))
		}
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case Marked(fd):
			hide(m, fd)
		case messageOf(fd) == nil:
		case fd.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				r.message(v.Message())
				return true
			})
		case fd.IsList():
			for i := range v.List().Len() {
				r.message(v.List().Get(i).Message())
			}
		default:
			r.message(v.Message())
		}
		return true
	})
}

// hide empties a field, and leaves it set where it can be.
func hide(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	m.Clear(fd)
	switch {
	case fd.IsMap(), fd.IsList():
	case fd.Message() != nil:
		m.Set(fd, m.NewField(fd))
	case fd.Kind() == protoreflect.StringKind:
		m.Set(fd, protoreflect.ValueOfString(Hidden))
	case fd.Kind() == protoreflect.BytesKind:
		m.Set(fd, protoreflect.ValueOfBytes([]byte(Hidden)))
	}
}

// any packs what is in an Any again, redacted.
func (r *redactor) any(m protoreflect.Message) {
	value := m.Descriptor().Fields().ByName("value")
	_, inner, _ := unpack(m)
	if inner == nil || r.anys == Deepest {
		m.Clear(value)
		return
	}
	r.anys++
	r.message(inner)
	r.anys--
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(inner.Interface())
	if err != nil { // nothing that was read cannot be written; if so, it is not shown
		b = nil
	}
	m.Set(value, protoreflect.ValueOfBytes(b))
}
