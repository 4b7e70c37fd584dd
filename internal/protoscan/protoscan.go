// Package protoscan iterates over the fields of an encoded protobuf message without its descriptor.
// It copies nothing.
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
	Varint uint64 // the value if Type is VarintType
	Bytes  []byte // the value if Type is BytesType
}

// Fields yields the fields of an encoded message in their order. If the message is malformed, the
// last pair has the error.
func Fields(m []byte) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for len(m) > 0 {
			f, n := next(m)
			if n < 0 {
				yield(Field{}, protowire.ParseError(n))
				return
			}
			if !yield(f, nil) {
				return
			}
			m = m[n:]
		}
	}
}

// next returns the first field of a message and its length in bytes, or a negative protowire error code.
func next(m []byte) (f Field, n int) {
	var tag int
	f.Number, f.Type, tag = protowire.ConsumeTag(m)
	if tag < 0 {
		return f, tag
	}
	switch m = m[tag:]; f.Type {
	case protowire.VarintType:
		f.Varint, n = protowire.ConsumeVarint(m)
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(m)
		f.Bytes = slices.Clip(f.Bytes) // an append to it must not write into the next field
	default:
		n = protowire.ConsumeFieldValue(f.Number, f.Type, m)
	}
	if n < 0 {
		return f, n
	}
	return f, tag + n
}

// Sized calls f with each length-delimited field. It stops at the first error, of f or of the message.
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
