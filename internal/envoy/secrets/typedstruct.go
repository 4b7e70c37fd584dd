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

// A TypedStruct holds a message as JSON, and readers decode it differently. Envoy's reader accepts a
// mapping as a list of one, "true" as true, and both names of a field at once. So the JSON is not
// decoded as a message here. Each value is checked with the descriptor of its field, even if other
// fields have mistakes. A value of the wrong kind counts as sensitive if its field may lead to a
// sensitive one.

// typedStruct searches a TypedStruct.
func (f *finder) typedStruct(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	if md := f.typeOf(m.Get(fields.ByName("type_url")).String()); md != nil {
		below := f.mark()
		f.version(md)
		f.jsonMessage(md, m.Get(fields.ByName("value")).Message())
		f.prefix(below, "value")
	}
}

// jsonMessage searches a google.protobuf.Struct that holds a message as JSON.
func (f *finder) jsonMessage(md protoreflect.MessageDescriptor, s protoreflect.Message) {
	switch name := md.FullName(); {
	case name == anyName:
		f.jsonAny(s)
		return
	case typedStructs[name]:
		if inner := f.typeOf(word(entry(s, "type_url"))); inner != nil {
			f.version(inner)
			f.jsonField(inner, false, "value", entry(s, "value"))
		}
		return
	case tlsCertificates[name]:
		f.certificate(checkPair(jsonData(entry(s, "certificate_chain")), jsonData(entry(s, "private_key"))))
	case validations[name]:
		f.certificate(checkCA(jsonData(entry(s, "trusted_ca"))))
	}
	for key, v := range entries(s) {
		fd := fieldOf(md, key)
		switch {
		case fd == nil: // readers ignore the field or reject the message
			if Holds(md) { // a reader's error may quote it
				f.jsonTexts(nil, v)
			}
		case Marked(fd) && hasJSONValue(fd, fd.IsMap(), v):
			f.Values = append(f.Values, string(fd.Name()))
			f.jsonTexts(messageOf(fd), v)
		case f.fieldNeedsSearch(fd):
			f.jsonField(messageOf(fd), fd.IsMap(), string(fd.Name()), v)
		}
	}
}

// jsonField searches a field of messages, or of a list of them.
func (f *finder) jsonField(md protoreflect.MessageDescriptor, isMap bool, path string, v protoreflect.Message) {
	below := f.mark()
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for i, v := range elements(in.Message()) {
			f.jsonField(md, isMap, "["+strconv.Itoa(i)+"]", v)
		}
	case "struct_value":
		if !isMap {
			f.jsonMessage(md, in.Message())
			break
		}
		for key, v := range entries(in.Message()) {
			f.jsonField(md, false, "["+strconv.Quote(key)+"]", v)
		}
	default:
		if isNonEmpty(kind, in) {
			f.Values = append(f.Values, here)
			f.jsonTexts(nil, v)
		}
	}
	f.prefix(below, path)
}

// jsonAny searches the JSON of an Any.
func (f *finder) jsonAny(s protoreflect.Message) {
	below, url := f.mark(), word(entry(s, "@type"))
	md := f.typeOf(url)
	f.version(md)
	switch {
	case url == "": // without a type it may contain anything
		for _, v := range entries(s) {
			if len(f.Values) == below.values {
				f.Values = append(f.Values, here)
			}
			f.jsonTexts(nil, v)
		}
	case md == nil:
	case md.FullName() == anyName: // the inner Any is under the key "value"
		f.jsonField(md, false, here, entry(s, "value"))
	default:
		f.jsonMessage(md, s)
	}
}

// hasJSONValue reports whether the JSON of a sensitive field contains a value: a text, a number or a
// bool at any depth, or a message other than a DataSource.
func hasJSONValue(fd protoreflect.FieldDescriptor, isMap bool, v protoreflect.Message) bool {
	kind, in := unwrap(v)
	switch kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			if hasJSONValue(fd, isMap, v) {
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
			if md != nil && !isMap && namesLocation(md, key, v) {
				continue
			}
			if hasJSONValue(fd, false, v) {
				return true
			}
		}
		return false
	}
	return isNonEmpty(kind, in)
}

// namesLocation reports whether an entry of a DataSource only names the location of its value.
func namesLocation(source protoreflect.MessageDescriptor, key string, v protoreflect.Message) bool {
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

// jsonData returns the inline data of a DataSource; nil if the data is somewhere else.
func jsonData(v protoreflect.Message) []byte {
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			if data := jsonData(v); data != nil {
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

// unbase64 decodes base64 text of any kind; nil if it is invalid.
func unbase64(text string) []byte {
	text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	data, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return data
}

// typeOf returns the message type of a URL; nil if unknown.
func (f *Finder) typeOf(url string) protoreflect.MessageDescriptor {
	t, err := f.types.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.Descriptor()
}

// fieldOf returns the field of a key, in any spelling of its name; nil if there is none.
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

// entries yields the entries of a google.protobuf.Struct, sorted by key.
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

// entry returns the value of a key, in any spelling of its name; nil if there is none.
func entry(s protoreflect.Message, name string) protoreflect.Message {
	for key, v := range entries(s) {
		if sameName(key, name) {
			return v
		}
	}
	return nil
}

// elements yields the items of a google.protobuf.ListValue.
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

// unwrap returns the content of a google.protobuf.Value and the name of its field; nothing for nil.
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

// word returns a string value; "" for other kinds.
func word(v protoreflect.Message) string {
	if kind, in := unwrap(v); kind == "string_value" {
		return in.String()
	}
	return ""
}

// isNonEmpty reports whether a scalar is a number, a bool or a non-empty string.
func isNonEmpty(kind protoreflect.Name, in protoreflect.Value) bool {
	switch kind {
	case "number_value", "bool_value":
		return true
	case "string_value":
		return in.String() != ""
	}
	return false
}
