package wire

import "google.golang.org/protobuf/encoding/protowire"

// Metadata returns the string value of a key in an encoded google.protobuf.Struct, such as [xds.Node.Metadata]. It
// returns "" if the key does not exist, has another kind of value, or the bytes are not a Struct.
func Metadata(b []byte, key string) (s string) {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return ""
		}
		b = rest
		if f.num != 1 || f.typ != protowire.BytesType { // fields, a map<string, Value>
			continue
		}
		// An entry may have its fields in any order. Of two entries with the same key, the later one
		// counts.
		var name string
		var value []byte
		for e := f.data; len(e) > 0; {
			f, e, err = next(e)
			if err != nil {
				return ""
			}
			switch {
			case f.typ != protowire.BytesType:
			case f.num == 1:
				name = string(f.data)
			case f.num == 2:
				value = append(value, f.data...) // concatenation merges messages
			}
		}
		if name == key {
			s = stringOf(value)
		}
	}
	return s
}

// valueFields are the fields of a google.protobuf.Value: null, number, string, bool, struct and list.
var valueFields = map[protowire.Number]protowire.Type{
	1: protowire.VarintType, 2: protowire.Fixed64Type, 3: protowire.BytesType,
	4: protowire.VarintType, 5: protowire.BytesType, 6: protowire.BytesType,
}

// stringOf returns the string in an encoded google.protobuf.Value, or "" for another kind of value.
func stringOf(b []byte) (s string) {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return ""
		}
		b = rest
		// The last field of a oneof counts. A field with the wrong wire type is ignored.
		if typ, ok := valueFields[f.num]; !ok || typ != f.typ {
			continue
		}
		s = ""
		if f.num == 3 {
			s = string(f.data)
		}
	}
	return s
}
