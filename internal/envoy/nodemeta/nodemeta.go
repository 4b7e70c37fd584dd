// Package nodemeta decodes the metadata that clients send about their nodes.
package nodemeta

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits, because clients send the metadata.
const (
	MaxBytes   = 1 << 20 // bytes
	MaxEntries = 10_000  // values
	MaxDepth   = 32      // nested structs and lists
)

// Decode decodes a google.protobuf.Struct to nil, bool, float64, string, []any and map[string]any.
func Decode(b []byte) (map[string]any, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(b), MaxBytes)
	}
	d := decoder{left: MaxEntries}
	m := map[string]any{}
	return m, d.object(b, m, 0)
}

var errMalformed = errors.New("it is not an encoded Struct")

type decoder struct{ left int }

// fields calls f for each field of a message.
func fields(b []byte, f func(num protowire.Number, typ protowire.Type, value []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return errMalformed
		}
		value := b[:n]
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if err := f(num, typ, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// object decodes a Struct.
func (d *decoder) object(b []byte, into map[string]any, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("it is nested more than %d deep", MaxDepth)
	}
	return fields(b, func(num protowire.Number, typ protowire.Type, entry []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		var key string
		var value any
		err := fields(entry, func(num protowire.Number, typ protowire.Type, part []byte) error {
			switch {
			case typ != protowire.BytesType:
			case num == 1:
				key = string(part)
				if !utf8.ValidString(key) {
					return errMalformed
				}
			case num == 2:
				return d.value(part, &value, depth)
			}
			return nil
		})
		into[key] = value
		return err
	})
}

// value decodes a Value. Of a repeated field the last value wins, and messages are merged, as in
// protobuf.
func (d *decoder) value(b []byte, into *any, depth int) error {
	d.left--
	if d.left < 0 {
		return fmt.Errorf("it has more than %d values", MaxEntries)
	}
	return fields(b, func(num protowire.Number, typ protowire.Type, part []byte) error {
		switch {
		case num == 1 && typ == protowire.VarintType:
			*into = nil
		case num == 2 && typ == protowire.Fixed64Type:
			bits, _ := protowire.ConsumeFixed64(part)
			*into = math.Float64frombits(bits)
		case num == 3 && typ == protowire.BytesType:
			if !utf8.Valid(part) {
				return errMalformed
			}
			*into = string(part)
		case num == 4 && typ == protowire.VarintType:
			b, _ := protowire.ConsumeVarint(part)
			*into = b != 0
		case num == 5 && typ == protowire.BytesType:
			m, ok := (*into).(map[string]any)
			if !ok {
				m = map[string]any{}
				*into = m
			}
			return d.object(part, m, depth+1)
		case num == 6 && typ == protowire.BytesType:
			list, _ := (*into).([]any)
			if list == nil {
				list = []any{}
			}
			list, err := d.list(part, list, depth+1)
			*into = list
			return err
		}
		return nil
	})
}

// list decodes a ListValue.
func (d *decoder) list(b []byte, to []any, depth int) ([]any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", MaxDepth)
	}
	err := fields(b, func(num protowire.Number, typ protowire.Type, part []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		var v any
		err := d.value(part, &v, depth)
		to = append(to, v)
		return err
	})
	return to, err
}
