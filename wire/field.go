package wire

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

var errUTF8 = errors.New("invalid UTF-8")

// A field is one record of a protobuf message.
type field struct {
	num    protowire.Number
	typ    protowire.Type
	varint uint64 // value of a field of VarintType
	data   []byte // value of a field of BytesType; a part of the message
}

// next returns the first field of a message and the rest of the message.
func next(b []byte) (f field, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	if num > protowire.MaxValidNumber { // ConsumeTag accepts such numbers
		return f, nil, fmt.Errorf("invalid field number %d", num)
	}
	f.num, f.typ, b = num, typ, b[n:]
	switch typ {
	case protowire.BytesType:
		f.data, n = protowire.ConsumeBytes(b)
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	return f, b[n:], nil
}

// An arena stores many strings in one allocation.
type arena struct{ b strings.Builder }

// newArena returns an arena with room for n bytes.
func newArena(n int) *arena {
	var a arena
	a.b.Grow(n)
	return &a
}

// add returns b as a string. The arena must have room for b, so that earlier strings do not move.
func (a *arena) add(b []byte) string {
	n := a.b.Len()
	a.b.Write(b)
	return a.b.String()[n:]
}

// withCapacity returns an empty slice with capacity n, or nil if n is zero.
func withCapacity[T any](n int) []T {
	if n == 0 {
		return nil
	}
	return make([]T, 0, n)
}
