package secrets

import "google.golang.org/protobuf/reflect/protoreflect"

// The JSON in a TypedStruct is redacted in place, by the rules of [finder.jsonMessage]. It is not decoded
// as a message, because readers decode it differently.

// typedStruct redacts a TypedStruct.
func (r *redactor) typedStruct(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	value := fields.ByName("value")
	if !m.Has(value) {
		return
	}
	md := r.typeOf(m.Get(fields.ByName("type_url")).String())
	if md == nil {
		m.Clear(value)
		r.changed = true
		return
	}
	r.jsonMessage(md, m.Get(value).Message())
}

// jsonMessage redacts a google.protobuf.Struct that holds a message as JSON.
func (r *redactor) jsonMessage(md protoreflect.MessageDescriptor, s protoreflect.Message) {
	switch name := md.FullName(); {
	case name == anyName:
		r.jsonTyped(s, "@type")
		return
	case typedStructs[name]:
		r.jsonTyped(s, "type_url")
		return
	}
	r.jsonFields(md, s, "")
}

// jsonFields redacts the fields of a message in JSON, except one key.
func (r *redactor) jsonFields(md protoreflect.MessageDescriptor, s protoreflect.Message, but string) {
	for key, v := range entries(s) {
		if key == but && but != "" {
			continue
		}
		fd := fieldOf(md, key)
		switch {
		case fd == nil: // unknown, so possibly a secret
			r.hideJSON(nil, v)
		case Marked(fd):
			if hasJSONValue(fd, fd.IsMap(), v) {
				r.hideJSON(messageOf(fd), v)
			}
		case r.fieldNeedsSearch(fd):
			r.jsonField(messageOf(fd), fd.IsMap(), v)
		}
	}
}

// jsonField redacts a field of messages, or of a list of them.
func (r *redactor) jsonField(md protoreflect.MessageDescriptor, isMap bool, v protoreflect.Message) {
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			r.jsonField(md, isMap, v)
		}
	case "struct_value":
		if !isMap {
			r.jsonMessage(md, in.Message())
			break
		}
		for _, v := range entries(in.Message()) {
			r.jsonField(md, false, v)
		}
	default:
		r.hideJSON(nil, v)
	}
}

// jsonTyped redacts an Any, whose type is in one of its keys, or a TypedStruct, whose message is in
// "value". If the type is unknown, or given twice, everything else is hidden.
func (r *redactor) jsonTyped(s protoreflect.Message, typeKey string) {
	var md protoreflect.MessageDescriptor
	typeKeys := 0
	for key, v := range entries(s) {
		if sameName(key, typeKey) {
			md = r.typeOf(word(v))
			typeKeys++
		}
	}
	if typeKeys != 1 {
		md = nil
	}
	inside := typeKey != "@type" || md != nil && md.FullName() == anyName // the content has a key of its own
	if md != nil && !inside {
		r.jsonFields(md, s, typeKey)
		return
	}
	for key, v := range entries(s) {
		switch {
		case key == typeKey:
			if kind, _ := unwrap(v); kind != "string_value" {
				r.hideJSON(nil, v)
			}
		case md != nil && sameName(key, "value"):
			r.jsonField(md, false, v)
		default:
			r.hideJSON(nil, v)
		}
	}
}

// hideJSON hides everything in a google.protobuf.Value, except the location in a DataSource. Of is
// the message type; nil if unknown.
func (r *redactor) hideJSON(of protoreflect.MessageDescriptor, v protoreflect.Message) {
	r.removeUnknown(v)
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			r.hideJSON(of, v)
		}
	case "struct_value":
		for key, v := range entries(in.Message()) {
			if of == nil || !dataSources[of.FullName()] || !isNamedLocation(of, key, v) {
				r.hideJSON(of, v)
			}
		}
	case "string_value", "number_value", "bool_value":
		if kind == "string_value" && in.String() == "" {
			return
		}
		v.Set(v.Descriptor().Fields().ByName("string_value"), protoreflect.ValueOfString(Redacted))
		r.changed = true
	}
}

// isNamedLocation reports whether an entry of a DataSource is the name of a file or variable.
func isNamedLocation(source protoreflect.MessageDescriptor, key string, v protoreflect.Message) bool {
	return namesLocation(source, key, v) && fieldOf(source, key).Name() != "watched_directory"
}
