package secrets

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Redacted stands in the place of a secret where a message is shown: Envoy's admin interface
// writes the same.
const Redacted = "[redacted]"

// leftOut is a message that can name any type and have nothing in it.
const leftOut = "type.googleapis.com/xds.type.v3.TypedStruct"

// Redact removes from a message all that may not be shown, and reports whether there was
// anything. Texts and bytes of a sensitive field become [Redacted]; numbers, words of enums and
// such are unset. A field that says where a value is, such as the name of a file, stays.
//
// What nobody can look into may have anything in it, and is left out: unknown fields, and what
// is in an Any or a TypedStruct that is of no known type, not of the type it says, or too deep.
// A TypedStruct with the type's URL, and nothing in it, stands there instead.
func (f *Finder) Redact(m proto.Message) (changed bool) {
	r := redactor{Finder: f}
	r.message(m.ProtoReflect())
	return r.changed
}

// Shown returns what may be shown of an encoded message, as [Finder.Redact] says; of one that is
// of no known type, or not of the type that the URL says, a TypedStruct with the URL. It returns nil
// only if that is not known either. The second result reports whether the bytes may be shown as
// they are.
func (f *Finder) Shown(url string, body []byte) (m proto.Message, asItIs bool) {
	if t, err := f.types.FindMessageByURL(url); err == nil {
		m := t.New().Interface()
		if (proto.UnmarshalOptions{Resolver: f.types}).Unmarshal(body, m) == nil {
			return m, !f.Redact(m)
		}
	}
	if s := f.nothing(url); s != nil {
		return s.Interface(), false
	}
	return nil, false
}

// nothing returns a TypedStruct that says of which type something is that is left out; nil if
// nobody knows TypedStructs.
func (f *Finder) nothing(url string) protoreflect.Message {
	t, err := f.types.FindMessageByURL(leftOut)
	if err != nil {
		return nil
	}
	m := t.New()
	m.Set(t.Descriptor().Fields().ByName("type_url"), protoreflect.ValueOfString(url))
	return m
}

// A redactor goes through a message, and through all of it: an unknown field can be anywhere.
type redactor struct {
	*Finder
	anys    int
	changed bool
}

func (r *redactor) message(m protoreflect.Message) {
	r.forget(m)
	switch name := m.Descriptor().FullName(); {
	case name == anyName:
		r.any(m)
		return
	case typedStructs[name]:
		r.typedStruct(m)
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if Marked(fd) && isValue(fd, v) {
			r.hide(m, fd, v)
		} else {
			messages(fd, v, r.message)
		}
		return true
	})
}

// forget removes unknown fields.
func (r *redactor) forget(m protoreflect.Message) {
	if len(m.GetUnknown()) > 0 {
		m.SetUnknown(nil)
		r.changed = true
	}
}

// messages calls f with each message in a field.
func messages(fd protoreflect.FieldDescriptor, v protoreflect.Value, f func(protoreflect.Message)) {
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() != nil {
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				f(v.Message())
				return true
			})
		}
	case fd.Message() == nil:
	case fd.IsList():
		for i := range v.List().Len() {
			f(v.List().Get(i).Message())
		}
	default:
		f(v.Message())
	}
}

// hide hides all that a field has. Keys of maps are names.
func (r *redactor) hide(m protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsMap() && fd.MapValue().Message() != nil, !fd.IsMap() && fd.Message() != nil:
		messages(fd, v, r.hideAll)
		return
	case fd.IsMap():
		if mark, ok := markOf(fd.MapValue()); ok {
			v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				v.Map().Set(k, mark)
				return true
			})
		} else {
			m.Clear(fd)
		}
	case fd.IsList():
		if mark, ok := markOf(fd); ok {
			for i := range v.List().Len() {
				v.List().Set(i, mark)
			}
		} else {
			m.Clear(fd)
		}
	default:
		if mark, ok := markOf(fd); ok {
			m.Set(fd, mark)
		} else {
			m.Clear(fd)
		}
	}
	r.changed = true
}

// markOf returns what stands for a secret; false if a field can have no such thing.
func markOf(fd protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(Redacted), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(Redacted)), true
	default:
		return protoreflect.Value{}, false
	}
}

// hideAll hides all that is in a message, unless it is a DataSource that says where its value is.
func (r *redactor) hideAll(m protoreflect.Message) {
	at := dataSources[m.Descriptor().FullName()] && !inline(m)
	r.forget(m)
	switch m.Descriptor().FullName() {
	case anyName:
		r.leave(m)
		return
	case "google.protobuf.Value":
		r.hideSpelled(nil, m)
		return
	case "google.protobuf.FieldMask": // JSON has no other text there
		r.empty(m)
		return
	}
	if at {
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		r.hide(m, fd, v)
		return true
	})
}

// empty unsets all that a message has.
func (r *redactor) empty(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		m.Clear(fd)
		r.changed = true
		return true
	})
}

// any looks into an Any.
func (r *redactor) any(m protoreflect.Message) {
	if r.anys == Deepest {
		r.leave(m)
		return
	}
	_, inner, err := r.unpack(m)
	if inner == nil || err != nil {
		r.leave(m)
		return
	}
	below := redactor{Finder: r.Finder, anys: r.anys + 1}
	if below.message(inner); below.changed {
		r.pack(m, "", inner)
	}
}

// leave leaves out what is in an Any.
func (r *redactor) leave(m protoreflect.Message) {
	url := m.Get(m.Descriptor().Fields().ByName("type_url")).String()
	if url == "" {
		r.empty(m)
		return
	}
	s := r.nothing(url)
	if s == nil {
		r.empty(m)
		return
	}
	r.pack(m, leftOut, s)
}

// pack sets what is in an Any, and its type if that is another one now.
func (r *redactor) pack(m protoreflect.Message, url string, inner protoreflect.Message) {
	r.changed = true
	fields := m.Descriptor().Fields()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(inner.Interface())
	if err != nil {
		r.empty(m)
		return
	}
	if url != "" {
		m.Set(fields.ByName("type_url"), protoreflect.ValueOfString(url))
	}
	m.Set(fields.ByName("value"), protoreflect.ValueOfBytes(b))
}
