package csds

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxLevels is the maximum number of nested structs and lists in the metadata of an answer. A struct is three
// levels of messages (Struct, an entry of its map, Value), and most decoders of protobuf refuse more than 100
// levels: the whole answer would be unreadable for them.
const maxLevels = 30

// flattened begins the string that replaces a value below maxLevels; the JSON of the value follows.
const flattened = "[flattened by Chancery] "

// flattenStruct replaces structs and lists below maxLevels by strings with their JSON. The argument is a
// google.protobuf.Struct, and level is the number of structs and lists down to it, itself included.
func flattenStruct(m protoreflect.Message, level int) {
	fd := m.Descriptor().Fields().ByName("fields")
	if !m.Has(fd) {
		return
	}
	m.Mutable(fd).Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
		flattenValue(v.Message(), level)
		return true
	})
}

// flattenValue does the same for a google.protobuf.Value in a struct or list of a level.
func flattenValue(v protoreflect.Message, level int) {
	k, in := kind(v)
	switch {
	case k != "struct_value" && k != "list_value":
	case level == maxLevels:
		v.Set(v.Descriptor().Fields().ByName("string_value"), protoreflect.ValueOfString(flattened+jsonOf(v)))
	case k == "struct_value":
		flattenStruct(in.Message(), level+1)
	default:
		values := list(in.Message(), "values")
		for i := range values.Len() {
			flattenValue(values.Get(i).Message(), level+1)
		}
	}
}

// jsonOf returns the JSON of a google.protobuf.Value; "" if the value has none, such as a NaN.
func jsonOf(v protoreflect.Message) string {
	b, err := protojson.Marshal(v.Interface())
	if err != nil {
		return ""
	}
	var compact bytes.Buffer // protojson adds random spaces
	if json.Compact(&compact, b) != nil {
		return ""
	}
	return compact.String()
}
