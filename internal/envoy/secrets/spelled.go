package secrets

import (
	"encoding/base64"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// A TypedStruct spells a message as JSON, and readers differ in what they take for that:
// Envoy's takes a mapping for a list of one, "true" for true, and both names of a field at
// once. So it is not read as a message here. Each of its values is looked at by the
// descriptor of the field that it stands in, whatever is wrong beside it. What cannot be
// of any use where it stands, but may lead to a sensitive field, counts as sensitive.

// typedStruct looks into a TypedStruct.
func (f *finder) typedStruct(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	if md := f.typeOf(m.Get(fields.ByName("type_url")).String()); md != nil {
		below := f.mark()
		f.version(md)
		f.spelled(md, m.Get(fields.ByName("value")).Message())
		f.prefix(below, "value")
	}
}

// spelled looks into a google.protobuf.Struct that spells a message.
func (f *finder) spelled(md protoreflect.MessageDescriptor, s protoreflect.Message) {
	switch name := md.FullName(); {
	case name == anyName:
		f.spelledAny(s)
		return
	case typedStructs[name]:
		if inner := f.typeOf(word(entry(s, "type_url"))); inner != nil {
			f.version(inner)
			f.spelledField(inner, false, "value", entry(s, "value"))
		}
		return
	case tlsCertificates[name]:
		f.certificate(judge(spelledData(entry(s, "certificate_chain")), spelledData(entry(s, "private_key"))))
	case validations[name]:
		f.certificate(judgeCA(spelledData(entry(s, "trusted_ca"))))
	}
	for key, v := range entries(s) {
		fd := fieldOf(md, key)
		switch {
		case fd == nil: // a reader passes it over, or refuses all of it
			if Holds(md) { // and shows it
				f.spelledTexts(nil, v)
			}
		case Marked(fd) && spelledValue(fd, fd.IsMap(), v):
			f.Values = append(f.Values, string(fd.Name()))
			f.spelledTexts(messageOf(fd), v)
		case f.isWay(fd):
			f.spelledField(messageOf(fd), fd.IsMap(), string(fd.Name()), v)
		}
	}
}

// spelledField looks into what stands in a field of messages, in a list or not.
func (f *finder) spelledField(md protoreflect.MessageDescriptor, isMap bool, path string, v protoreflect.Message) {
	below := f.mark()
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for i, v := range elements(in.Message()) {
			f.spelledField(md, isMap, "["+strconv.Itoa(i)+"]", v)
		}
	case "struct_value":
		if !isMap {
			f.spelled(md, in.Message())
			break
		}
		for key, v := range entries(in.Message()) {
			f.spelledField(md, false, "["+strconv.Quote(key)+"]", v)
		}
	default:
		if something(kind, in) {
			f.Values = append(f.Values, here)
			f.spelledTexts(nil, v)
		}
	}
	f.prefix(below, path)
}

// spelledAny looks into the JSON of an Any.
func (f *finder) spelledAny(s protoreflect.Message) {
	below, url := f.mark(), word(entry(s, "@type"))
	md := f.typeOf(url)
	f.version(md)
	switch {
	case url == "": // it has no type, and may have anything
		for _, v := range entries(s) {
			if len(f.Values) == below.values {
				f.Values = append(f.Values, here)
			}
			f.spelledTexts(nil, v)
		}
	case md == nil:
	case md.FullName() == anyName: // which stands below a key of its own
		f.spelledField(md, false, here, entry(s, "value"))
	default:
		f.spelled(md, s)
	}
}

// spelledValue reports whether a sensitive field has a value in it: a text, a number or
// a word, however deep, or a message that is no DataSource.
func spelledValue(fd protoreflect.FieldDescriptor, isMap bool, v protoreflect.Message) bool {
	kind, in := unwrap(v)
	switch kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			if spelledValue(fd, isMap, v) {
				return true
			}
		}
		return false
	case "struct_value":
		md := messageOf(fd)
		if md != nil && !isMap && !dataSources[md.FullName()] {
			return true
		}
		for key, v := range entries(in.Message()) {
			if md != nil && !isMap && elsewhere(md, key, v) {
				continue
			}
			if spelledValue(fd, false, v) {
				return true
			}
		}
		return false
	}
	return something(kind, in)
}

// elsewhere reports whether an entry of a DataSource only says where its value is.
func elsewhere(source protoreflect.MessageDescriptor, key string, v protoreflect.Message) bool {
	fd := fieldOf(source, key)
	if fd == nil {
		return false
	}
	switch fd.Name() {
	case "filename", "environment_variable":
		kind, _ := unwrap(v)
		return kind == "string_value"
	}
	return fd.Name() == "watched_directory"
}

// spelledData returns what a DataSource has in it, nil if it names another place.
func spelledData(v protoreflect.Message) []byte {
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			if data := spelledData(v); data != nil {
				return data
			}
		}
	case "struct_value":
		s := in.Message()
		if kind, in := unwrap(entry(s, "inline_string")); kind == "string_value" {
			return []byte(in.String())
		}
		if kind, in := unwrap(entry(s, "inline_bytes")); kind == "string_value" {
			return unbase64(in.String())
		}
	}
	return nil
}

// unbase64 returns what a text in base64 of any kind says, nil if it is none.
func unbase64(text string) []byte {
	text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	data, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return data
}

// typeOf returns the type that a URL names, nil if it is not known.
func (f *Finder) typeOf(url string) protoreflect.MessageDescriptor {
	t, err := f.types.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.Descriptor()
}

// fieldOf returns the field that a key is for, in any spelling of its name; nil if there
// is none.
func fieldOf(md protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	fields := md.Fields()
	if fd := fields.ByTextName(key); fd != nil {
		return fd
	}
	if fd := fields.ByJSONName(key); fd != nil {
		return fd
	}
	for i := range fields.Len() {
		if fd := fields.Get(i); sameName(string(fd.Name()), key) {
			return fd
		}
	}
	return nil
}

func sameName(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "_", ""), strings.ReplaceAll(b, "_", ""))
}

// entries yields what is in a google.protobuf.Struct, by key.
func entries(s protoreflect.Message) iter.Seq2[string, protoreflect.Message] {
	return func(yield func(string, protoreflect.Message) bool) {
		found := map[string]protoreflect.Message{}
		s.Get(s.Descriptor().Fields().ByName("fields")).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			found[k.String()] = v.Message()
			return true
		})
		for _, key := range slices.Sorted(maps.Keys(found)) {
			if !yield(key, found[key]) {
				return
			}
		}
	}
}

// entry returns the value under a key, in any spelling of its name; nil if there is none.
func entry(s protoreflect.Message, name string) protoreflect.Message {
	for key, v := range entries(s) {
		if sameName(key, name) {
			return v
		}
	}
	return nil
}

// elements yields what is in a google.protobuf.ListValue.
func elements(l protoreflect.Message) iter.Seq2[int, protoreflect.Message] {
	return func(yield func(int, protoreflect.Message) bool) {
		list := l.Get(l.Descriptor().Fields().ByName("values")).List()
		for i := range list.Len() {
			if !yield(i, list.Get(i).Message()) {
				return
			}
		}
	}
}

// unwrap returns what is in a google.protobuf.Value, and by which of its fields; nothing
// of nil.
func unwrap(v protoreflect.Message) (kind protoreflect.Name, in protoreflect.Value) {
	if v == nil {
		return "", in
	}
	fd := v.WhichOneof(v.Descriptor().Oneofs().ByName("kind"))
	if fd == nil {
		return "", in
	}
	return fd.Name(), v.Get(fd)
}

// word returns a text, "" if something else stands there.
func word(v protoreflect.Message) string {
	if kind, in := unwrap(v); kind == "string_value" {
		return in.String()
	}
	return ""
}

// something reports whether a value that is no list and no mapping is more than nothing.
func something(kind protoreflect.Name, in protoreflect.Value) bool {
	switch kind {
	case "number_value", "bool_value":
		return true
	case "string_value":
		return in.String() != ""
	}
	return false
}
