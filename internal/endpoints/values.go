package endpoints

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// MaxValues limits the number of values in the metadata of an endpoint. It counts each field of an
// object, each element of a list, and each object and list, including the object of each name. Unpacked,
// a value takes up to 100 bytes for one or two bytes sent.
const MaxValues = 100

// Values counts the values in an object of metadata, packed as a google.protobuf.Struct, without
// unpacking it. The object itself does not count. Values stops at a malformed field, and soon after
// [MaxValues].
func Values(packed []byte) int { return count(object, packed, 0) }

// A kind is a message type of google/protobuf/struct.proto.
type kind int

const (
	object  kind = iota // Struct
	field               // an entry of its fields
	element             // Value
	list                // ListValue
)

// count adds the number of values in a message to n. Every second nested message is a value. So the limit
// also bounds the recursion.
func count(in kind, b []byte, n int) int {
	for f, err := range protoscan.Fields(b) {
		if err != nil || n > MaxValues {
			break
		}
		switch is := f.Bytes; {
		case f.Type != protowire.BytesType:
		case in == object && f.Number == 1:
			n = count(field, is, n+1)
		case in == field && f.Number == 2:
			n = count(element, is, n)
		case in == element && f.Number == 5:
			n = count(object, is, n+1)
		case in == element && f.Number == 6:
			n = count(list, is, n+1)
		case in == list && f.Number == 1:
			n = count(element, is, n+1)
		}
	}
	return n
}
