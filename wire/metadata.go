package wire

import "google.golang.org/protobuf/encoding/protowire"

// Metadata returns the string that an encoded google.protobuf.Struct has under a
// key, as a node has it in its metadata. It is "" if there is none, if the value
// is something else, or if the bytes are no Struct.
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
		// An entry may have its parts in any order, and the later one of two
		// with the same key holds.
		var name string
		var value []byte
		for e := f.data; len(e) > 0; {
			if f, e, err = next(e); err != nil {
				return ""
			}
			switch {
			case f.typ != protowire.BytesType:
			case f.num == 1:
				name = string(f.data)
			case f.num == 2:
				value = append(value, f.data...) // merging is concatenating
			}
		}
		if name == key {
			s = stringOf(value)
		}
	}
	return s
}

// valueFields are the fields of a google.protobuf.Value: null, number, string,
// bool, struct, list.
var valueFields = map[protowire.Number]protowire.Type{
	1: protowire.VarintType, 2: protowire.Fixed64Type, 3: protowire.BytesType,
	4: protowire.VarintType, 5: protowire.BytesType, 6: protowire.BytesType,
}

// stringOf returns the string in an encoded google.protobuf.Value, "" if it is
// something else.
func stringOf(b []byte) (s string) {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return ""
		}
		b = rest
		// The last one of a oneof holds. A field of the wrong wire type is none.
		if typ, ok := valueFields[f.num]; !ok || typ != f.typ {
			continue
		}
		if s = ""; f.num == 3 {
			s = string(f.data)
		}
	}
	return s
}
