// Package protoscan goes through protobuf messages field by field, where no descriptors are
// at hand or wanted. It knows what none of the fields means, and copies nothing.
package protoscan

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Field is a field of an encoded message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Varint uint64 // of a number
	Bytes  []byte // of what has a length
}

// Fields yields the fields of a message in the order in which they stand there. An error
// says that it is none, and comes last.
func Fields(m []byte) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for len(m) > 0 {
			f, n := next(m)
			if n < 0 {
				yield(Field{}, protowire.ParseError(n))
				return
			}
			if m = m[n:]; !yield(f, nil) {
				return
			}
		}
	}
}

// next returns the first field of a message, and how long it is; negative: it is none.
func next(m []byte) (f Field, n int) {
	var tag int
	if f.Number, f.Type, tag = protowire.ConsumeTag(m); tag < 0 {
		return f, tag
	}
	switch m = m[tag:]; f.Type {
	case protowire.VarintType:
		f.Varint, n = protowire.ConsumeVarint(m)
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(m)
		f.Bytes = slices.Clip(f.Bytes) // who appends to it writes into no other field
	default:
		n = protowire.ConsumeFieldValue(f.Number, f.Type, m)
	}
	if n < 0 {
		return f, n
	}
	return f, tag + n
}

// Sized calls f with each field that has a length, until one is an error.
func Sized(m []byte, f func(num protowire.Number, v []byte) error) error {
	for field, err := range Fields(m) {
		if err == nil && field.Type == protowire.BytesType {
			err = f(field.Number, field.Bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
