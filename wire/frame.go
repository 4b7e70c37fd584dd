package wire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

const (
	// maxInline is the largest body that is copied into the frame of its resource. A larger body
	// follows the frame as a separate piece, so that the encodings of both variants share the
	// memory of the body.
	maxInline = 1 << 10

	// big is the size above which concat does not copy a piece.
	big = 16 << 10
)

// A form describes how a response encodes a resource.
type form struct {
	variant xds.Variant
	ttl     bool   // with the TTL
	beat    bool   // a heartbeat: without the body
	version string // SotW: the version of the response
}

// wrapped reports whether a SotW response encodes the resource inside the protocol's Resource message: "the
// relevant resources must be wrapped in a Resource".
func (f form) wrapped(r *xds.Resource) bool {
	return f.variant == xds.SotW && (f.beat || f.ttl && r.TTL > 0)
}

// size returns the size of an entry of the field resources.
func (f form) size(t *xds.Type, r *xds.Resource) int { return 1 + protowire.SizeBytes(f.payload(t, r)) }

// payload returns the size of an entry without its tag and length. The entry is an Any, a Resource
// that contains an Any, or an Any that contains such a Resource.
func (f form) payload(t *xds.Type, r *xds.Resource) int {
	switch {
	case f.variant == xds.Delta:
		return f.resource(t, r)
	case f.wrapped(r):
		return sizeString(resourceURL) + 1 + protowire.SizeBytes(f.resource(t, r))
	}
	return sizeAny(t, r)
}

// resource returns the size of the protocol's Resource message.
func (f form) resource(t *xds.Type, r *xds.Resource) int {
	n := sizeString(r.Name)
	if f.variant == xds.SotW {
		n += sizeString(f.version)
	} else {
		n += sizeString(r.Version)
		for _, a := range r.Aliases {
			n += 1 + protowire.SizeBytes(len(a))
		}
	}
	if f.ttl && r.TTL > 0 {
		n += 1 + protowire.SizeBytes(sizeDuration(r.TTL))
	}
	if !f.beat {
		n += 1 + protowire.SizeBytes(sizeAny(t, r))
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

// cached returns the frame of a resource without its TTL. The frame is stored in the resource.
//
// "[type_url] must be consistent with the type_url in the 'resources' repeated Any". If a resource
// is served under two types, the stored frame has the first type. For the other type a new frame is
// made.
func cached(v xds.Variant, t *xds.Type, r *xds.Resource) []byte {
	f := form{variant: v}
	b := r.Frame(v, func(r *xds.Resource) []byte { return f.frame(t, r) })
	if !framesType(b, t, r) {
		b = f.frame(t, r)
	}
	return b
}

// framesType reports whether the frame b has the type t.
func framesType(b []byte, t *xds.Type, r *xds.Resource) bool {
	if n := len(r.Body); n > 0 {
		if n <= maxInline {
			b = b[:len(b)-n]
		}
		b = b[:len(b)-1-protowire.SizeVarint(uint64(n))]
	}
	url := len(b) - len(t.URL)
	return url > 0 && string(b[url:]) == t.URL
}

// frame encodes a resource as an entry of the field resources. The frame ends with the type URL and
// the body, except in a heartbeat. A body larger than maxInline is left out, and must follow the
// frame.
func (f form) frame(t *xds.Type, r *xds.Resource) []byte {
	size := f.size(t, r)
	if len(r.Body) > maxInline {
		size -= len(r.Body)
	}
	return f.append(make([]byte, 0, size), t, r)
}

// append appends the frame of a resource.
func (f form) append(b []byte, t *xds.Type, r *xds.Resource) []byte {
	b = protowire.AppendTag(b, fieldResources, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(f.payload(t, r)))
	if f.wrapped(r) {
		b = appendString(b, anyTypeURL, resourceURL)
		b = protowire.AppendTag(b, anyValue, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(f.resource(t, r)))
	}
	if f.variant == xds.Delta || f.wrapped(r) {
		b = f.appendHeader(b, r)
		if f.beat {
			return b
		}
		b = protowire.AppendTag(b, resourceAny, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeAny(t, r)))
	}
	b = appendString(b, anyTypeURL, t.URL)
	if len(r.Body) > 0 {
		b = protowire.AppendTag(b, anyValue, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(r.Body)))
	}
	if len(r.Body) <= maxInline {
		b = append(b, r.Body...)
	}
	return b
}

// appendHeader appends the fields of the protocol's Resource message, except the resource.
func (f form) appendHeader(b []byte, r *xds.Resource) []byte {
	b = appendString(b, resourceName, r.Name)
	if f.variant == xds.SotW {
		b = appendString(b, resourceVersion, f.version)
	} else {
		b = appendString(b, resourceVersion, r.Version)
		for _, a := range r.Aliases {
			b = protowire.AppendTag(b, resourceAliases, protowire.BytesType)
			b = protowire.AppendString(b, a)
		}
	}
	if f.ttl && r.TTL > 0 {
		b = protowire.AppendTag(b, resourceTTL, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeDuration(r.TTL)))
		b = appendDuration(b, r.TTL)
	}
	return b
}

// Fields of google.protobuf.Duration.
const (
	durationSeconds = 1
	durationNanos   = 2
)

// sizeDuration is the size of a google.protobuf.Duration that is not negative.
func sizeDuration(d time.Duration) int {
	return sizeVarint(uint64(d/time.Second)) + sizeVarint(uint64(d%time.Second))
}

func appendDuration(b []byte, d time.Duration) []byte {
	b = appendVarint(b, durationSeconds, uint64(d/time.Second))
	return appendVarint(b, durationNanos, uint64(d%time.Second))
}

// sizeVarint is the size of a varint field with a field number below 16.
func sizeVarint(n uint64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(n)
}

func appendVarint(b []byte, num protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, n)
}

// sizeString is the size of a string field with a field number below 16.
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
