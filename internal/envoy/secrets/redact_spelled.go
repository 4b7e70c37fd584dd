package secrets

import "google.golang.org/protobuf/reflect/protoreflect"

// The JSON in a TypedStruct is redacted in place, by the rules of [finder.spelled]. It is not decoded
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
	r.spelled(md, m.Get(value).Message())
}

// spelled redacts a google.protobuf.Struct that holds a message as JSON.
func (r *redactor) spelled(md protoreflect.MessageDescriptor, s protoreflect.Message) {
	switch name := md.FullName(); {
	case name == anyName:
		r.spelledTyped(s, "@type")
		return
	case typedStructs[name]:
		r.spelledTyped(s, "type_url")
		return
	}
	r.spelledFields(md, s, "")
}

// spelledFields redacts the fields of a message in JSON, except one key.
func (r *redactor) spelledFields(md protoreflect.MessageDescriptor, s protoreflect.Message, but string) {
	for key, v := range entries(s) {
		if key == but && but != "" {
			continue
		}
		fd := fieldOf(md, key)
		switch {
		case fd == nil: // unknown, so possibly a secret
			r.hideSpelled(nil, v)
		case Marked(fd):
			if spelledValue(fd, fd.IsMap(), v) {
				r.hideSpelled(messageOf(fd), v)
			}
		case r.isWay(fd):
			r.spelledField(messageOf(fd), fd.IsMap(), v)
		}
	}
}

// spelledField redacts a field of messages, or of a list of them.
func (r *redactor) spelledField(md protoreflect.MessageDescriptor, isMap bool, v protoreflect.Message) {
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			r.spelledField(md, isMap, v)
		}
	case "struct_value":
		if !isMap {
			r.spelled(md, in.Message())
			break
		}
		for _, v := range entries(in.Message()) {
			r.spelledField(md, false, v)
		}
	default:
		r.hideSpelled(nil, v)
	}
}

// spelledTyped redacts an Any, whose type is in one of its keys, or a TypedStruct, whose message is in
// "value". If the type is unknown, or given twice, everything else is hidden.
func (r *redactor) spelledTyped(s protoreflect.Message, typeKey string) {
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
		r.spelledFields(md, s, typeKey)
		return
	}
	for key, v := range entries(s) {
		switch {
		case key == typeKey:
			if kind, _ := unwrap(v); kind != "string_value" {
				r.hideSpelled(nil, v)
			}
		case md != nil && sameName(key, "value"):
			r.spelledField(md, false, v)
		default:
			r.hideSpelled(nil, v)
		}
	}
}

// hideSpelled hides everything in a google.protobuf.Value, except the location in a DataSource. Of is
// the message type; nil if unknown.
func (r *redactor) hideSpelled(of protoreflect.MessageDescriptor, v protoreflect.Message) {
	r.removeUnknown(v)
	switch kind, in := unwrap(v); kind {
	case "list_value":
		for _, v := range elements(in.Message()) {
			r.hideSpelled(of, v)
		}
	case "struct_value":
		for key, v := range entries(in.Message()) {
			if of == nil || !dataSources[of.FullName()] || !named(of, key, v) {
				r.hideSpelled(of, v)
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

// named reports whether an entry of a DataSource is the name of a file or variable.
func named(source protoreflect.MessageDescriptor, key string, v protoreflect.Message) bool {
	return elsewhere(source, key, v) && fieldOf(source, key).Name() != "watched_directory"
}
