package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

const (
	// inline is the size up to which a resource's body is copied into its
	// frame. A bigger one follows its frame as a piece of its own, so that no
	// variant doubles its memory.
	inline = 1 << 10

	// big is the size above which concatenation copies nothing.
	big = 16 << 10
)

// FrameSize is how many bytes a resource adds to a response of the variant.
func FrameSize(v xds.Variant, t *xds.Type, r *xds.Resource) int {
	n := payload(v, t, r)
	return 1 + protowire.SizeBytes(n)
}

// payload is the size of one entry of the response's field resources: an Any,
// or a Resource with an Any in it.
func payload(v xds.Variant, t *xds.Type, r *xds.Resource) int {
	n := sizeAny(t, r)
	if v == xds.SotW {
		return n
	}
	n = 1 + protowire.SizeBytes(n) + sizeString(r.Name) + sizeString(r.Version)
	for _, a := range r.Aliases {
		n += 1 + protowire.SizeBytes(len(a))
	}
	return n
}

func sizeAny(t *xds.Type, r *xds.Resource) int {
	n := sizeString(t.URL)
	if len(r.Body) > 0 {
		n += 1 + protowire.SizeBytes(len(r.Body))
	}
	return n
}

// cached returns the frame of a resource, which is kept with it.
//
// "[type_url] must be consistent with the type_url in the 'resources' repeated
// Any". A resource that is served under two types has a frame of the one that
// came first; for the other it is made anew.
func cached(v xds.Variant, t *xds.Type, r *xds.Resource) []byte {
	b := r.Frame(v, func(r *xds.Resource) []byte { return frame(v, t, r) })
	if !framesType(b, t, r) {
		b = frame(v, t, r)
	}
	return b
}

// framesType reports whether b was made for the type.
func framesType(b []byte, t *xds.Type, r *xds.Resource) bool {
	if n := len(r.Body); n > 0 {
		if n <= inline {
			b = b[:len(b)-n]
		}
		b = b[:len(b)-1-protowire.SizeVarint(uint64(n))]
	}
	url := len(b) - len(t.URL)
	return url > 0 && string(b[url:]) == t.URL
}

// frame encodes a resource as an entry of the response's field resources. It
// ends with the type URL and the body; a body larger than inline is missing
// and has to follow.
func frame(v xds.Variant, t *xds.Type, r *xds.Resource) []byte {
	size := FrameSize(v, t, r)
	if len(r.Body) > inline {
		size -= len(r.Body)
	}
	b := make([]byte, 0, size)
	b = protowire.AppendTag(b, fieldResources, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(payload(v, t, r)))
	if v == xds.Delta {
		b = appendString(b, resourceName, r.Name)
		b = appendString(b, resourceVersion, r.Version)
		for _, a := range r.Aliases {
			b = protowire.AppendTag(b, resourceAliases, protowire.BytesType)
			b = protowire.AppendString(b, a)
		}
		b = protowire.AppendTag(b, resourceAny, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeAny(t, r)))
	}
	b = appendString(b, anyTypeURL, t.URL)
	if len(r.Body) > 0 {
		b = protowire.AppendTag(b, anyValue, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(r.Body)))
	}
	if len(r.Body) <= inline {
		b = append(b, r.Body...)
	}
	return b
}

// sizeString is the size of a string field with a number below 16.
func sizeString(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}
