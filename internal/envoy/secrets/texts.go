package secrets

import (
	"encoding/base64"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Texts calls take with each text inside a sensitive field of a message, and with the base64 of its
// bytes. It reports whether it could read everything. [Finder.Find] reports the unreadable parts as
// TooDeep or Unread.
func (f *Finder) Texts(m proto.Message, take func(text string)) (all bool) {
	x := finder{Finder: f, take: func(s string) {
		if s != "" {
			take(s)
		}
	}}
	x.message(m.ProtoReflect())
	return !x.incomplete
}

// texts takes the content of a sensitive field.
func (f *finder) texts(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.take == nil:
	case fd.IsMap():
		v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			f.text(fd.MapValue(), v)
			return true
		})
	case fd.IsList():
		for i := range v.List().Len() {
			f.text(fd, v.List().Get(i))
		}
	default:
		f.text(fd, v)
	}
}

// text takes a value, or everything in a message.
func (f *finder) text(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		f.take(v.String())
	case protoreflect.BytesKind:
		f.take(string(v.Bytes()))
		f.take(base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.DoubleKind:
		f.number(v.Float())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		f.textsOf(v.Message())
	default: // other kinds, such as enums, hold no secrets
	}
}

// textsOf takes everything in a message.
func (f *finder) textsOf(m protoreflect.Message) {
	if m.Descriptor().FullName() == anyName {
		f.textAny(m)
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !isLocation(fd) {
			f.texts(fd, v)
		}
		return true
	})
	f.take(string(m.GetUnknown()))
}

func (f *finder) textAny(m protoreflect.Message) {
	if f.anys == MaxAnyDepth {
		f.incomplete = true
		return
	}
	_, inner, err := f.unpack(m)
	if inner == nil {
		f.incomplete = f.incomplete || err != nil
		return
	}
	f.anys++
	f.textsOf(inner)
	f.anys--
}

// number takes a number in both forms that JSON may use.
func (f *finder) number(n float64) {
	f.take(strconv.FormatFloat(n, 'f', -1, 64))
	f.take(strconv.FormatFloat(n, 'g', -1, 64))
}

// isLocation reports whether a field names the location or the type of a value.
func isLocation(fd protoreflect.FieldDescriptor) bool {
	in := fd.ContainingMessage().FullName()
	switch fd.Name() {
	case "filename", "environment_variable", "watched_directory":
		return dataSources[in]
	case "type_url":
		return typedStructs[in]
	}
	return false
}

// jsonTexts takes everything in a google.protobuf.Value, except the location in a DataSource. Of is
// the message type; nil if unknown.
func (f *finder) jsonTexts(of protoreflect.MessageDescriptor, v protoreflect.Message) {
	if f.take == nil {
		return
	}
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			f.jsonTexts(of, v)
		}
	case "struct_value":
		for key, v := range entries(in.Message()) {
			if of == nil || !dataSources[of.FullName()] || !namesLocation(of, key, v) {
				f.jsonTexts(of, v)
			}
		}
	case "string_value":
		f.take(in.String())
		if data := unbase64(in.String()); len(data) >= window {
			f.take(string(data))
		}
	case "number_value":
		f.number(in.Float())
	}
}
