package xdsclient

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// MemoryCheck returns a function that checks how much memory a resource takes when its message is decoded: a nested
// message of two bytes may take some hundred bytes (SAFE-14). Types without a descriptor are not checked, because they
// are not decoded.
func MemoryCheck(types *envoy.Types, limit xds.MemoryLimit) func(*xds.Resource) error {
	return func(r *xds.Resource) error {
		left := limit.Bytes
		if t, err := types.FindMessageByURL(r.Type.URL); limit.Bytes > 0 && err == nil && !fits(types, t.Descriptor(), r.Body, &left, 0) {
			return limit.Exceeded(xds.LimitHeld, "its message takes too much memory when it is decoded")
		}
		return nil
	}
}

const (
	messageMemory = 256 // about the bytes of a decoded message, without its content
	valueMemory   = 32  // the same of another value

	// maxNesting limits messages in messages. Other implementations of protobuf read at most 100 levels.
	maxNesting = 200
)

// fits reports whether a message takes at most left bytes when it is decoded, and subtracts its bytes. Malformed bytes
// take nothing: decoding fails there.
func fits(types *envoy.Types, m protoreflect.MessageDescriptor, b []byte, left *int, depth int) bool {
	*left -= messageMemory + len(b)
	packed := m.FullName() == "google.protobuf.Any"
	url := ""
	for len(b) > 0 && *left >= 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return true
		}
		value := b[:n]
		b = b[n:]
		*left -= valueMemory
		f := m.Fields().ByNumber(num)
		if f == nil || typ != protowire.BytesType {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		inner := f.Message()
		switch {
		case packed && num == 1:
			url = string(value)
			continue
		case packed:
			t, err := types.FindMessageByURL(url)
			if err != nil {
				continue
			}
			inner = t.Descriptor()
		case inner == nil && f.IsList() && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind:
			*left -= 8 * len(value) // packed numbers
			continue
		case inner == nil:
			continue
		}
		if depth == maxNesting || !fits(types, inner, value, left, depth+1) {
			return false
		}
	}
	return *left >= 0
}
