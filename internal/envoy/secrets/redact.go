package secrets

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Redacted replaces secrets in messages that are shown. Envoy's admin interface uses the same text.
const Redacted = "[redacted]"

// placeholderType is a message that can name any type and stay empty.
const placeholderType = "type.googleapis.com/xds.type.v3.TypedStruct"

// Redact removes everything from a message that may be a secret, and reports whether it changed the
// message. Text and bytes of a sensitive field become [Redacted]; other values are unset. A field that
// names a location, such as a file name, stays.
//
// Redact also removes data that it cannot decode: unknown fields, and the content of an Any or a
// TypedStruct of unknown type, of a wrong type, or nested too deep. An empty TypedStruct with the
// type's URL replaces such content.
func (f *Finder) Redact(m proto.Message) (changed bool) {
	r := redactor{Finder: f}
	r.message(m.ProtoReflect())
	return r.changed
}

// Shown decodes a message and redacts it as [Finder.Redact] does. If the type is unknown or wrong, it
// returns an empty TypedStruct with the URL. It returns nil only if TypedStruct is unknown too. The
// second result reports whether the original bytes contain nothing to redact.
func (f *Finder) Shown(url string, body []byte) (m proto.Message, asItIs bool) {
	if t, err := f.types.FindMessageByURL(url); err == nil {
		m := t.New().Interface()
		if (proto.UnmarshalOptions{Resolver: f.types}).Unmarshal(body, m) == nil {
			return m, !f.Redact(m)
		}
	}
	if s := f.placeholder(url); s != nil {
		return s.Interface(), false
	}
	return nil, false
}

// placeholder returns an empty TypedStruct that names the type of removed content; nil if TypedStruct
// is unknown.
func (f *Finder) placeholder(url string) protoreflect.Message {
	t, err := f.types.FindMessageByURL(placeholderType)
	if err != nil {
		return nil
	}
	m := t.New()
	m.Set(t.Descriptor().Fields().ByName("type_url"), protoreflect.ValueOfString(url))
	return m
}

// A redactor visits every part of a message, because an unknown field can be anywhere.
type redactor struct {
	*Finder
	anys    int
	changed bool
}

func (r *redactor) message(m protoreflect.Message) {
	r.removeUnknown(m)
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

// removeUnknown removes unknown fields.
func (r *redactor) removeUnknown(m protoreflect.Message) {
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

// hide replaces every value of a field. It keeps the keys of maps, which are names.
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

// markOf returns the replacement for a secret; false if the field's kind has none.
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

// hideAll hides the content of a message, except a DataSource that only names a location.
func (r *redactor) hideAll(m protoreflect.Message) {
	at := dataSources[m.Descriptor().FullName()] && !inline(m)
	r.removeUnknown(m)
	switch m.Descriptor().FullName() {
	case anyName:
		r.remove(m)
		return
	case "google.protobuf.Value":
		r.hideJSON(nil, m)
		return
	case "google.protobuf.FieldMask": // a FieldMask cannot hold other text in JSON
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

// empty unsets all fields of a message.
func (r *redactor) empty(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		m.Clear(fd)
		r.changed = true
		return true
	})
}

// any redacts the message in an Any.
func (r *redactor) any(m protoreflect.Message) {
	if r.anys == MaxAnyDepth {
		r.remove(m)
		return
	}
	_, inner, err := r.unpack(m)
	if inner == nil || err != nil {
		r.remove(m)
		return
	}
	below := redactor{Finder: r.Finder, anys: r.anys + 1}
	below.message(inner)
	if below.changed {
		r.pack(m, "", inner)
	}
}

// remove removes the content of an Any.
func (r *redactor) remove(m protoreflect.Message) {
	url := m.Get(m.Descriptor().Fields().ByName("type_url")).String()
	if url == "" {
		r.empty(m)
		return
	}
	s := r.placeholder(url)
	if s == nil {
		r.empty(m)
		return
	}
	r.pack(m, placeholderType, s)
}

// pack sets the content of an Any, and its type if url is not empty.
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
