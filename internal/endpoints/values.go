package endpoints

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// MaxValues is how many values the metadata of an endpoint has: each field of an object, each element of a list, and each
// object and list, that of a name included. Unpacked, a value takes up to 100 bytes for one or two that are sent.
const MaxValues = 100

// Values counts the values in an object of metadata, which is packed as a google.protobuf.Struct, without unpacking it; the
// object itself is none of them. It counts what is not well-formed up to where that is, and never much further than to [MaxValues].
func Values(packed []byte) int { return count(object, packed, 0) }

// A kind is a message of google/protobuf/struct.proto.
type kind int

const (
	object  kind = iota // Struct
	field               // an entry of its fields
	element             // Value
	list                // ListValue
)

// count returns n and how many values there are in a message. Each message in another one but one is a value: that bounds
// how deep it calls itself.
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
