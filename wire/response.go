package wire

import (
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// Encode encodes a DiscoveryResponse or a DeltaDiscoveryResponse. The argument identifier becomes
// the control_plane of the response. An empty identifier is left out. Without r.TTL, heartbeats are
// not encoded. In SotW, absent names are not encoded.
//
// The resources are encoded once for all streams. The tail with version, type, nonce and identifier
// is encoded for each stream. The result is read-only and needs no Free. A response with nil
// Changes has no resources. The response and its type must not be nil.
func Encode(v xds.Variant, r *xds.Response, identifier string) mem.BufferSlice {
	if r.Changes == nil {
		same := *r
		same.Changes = &xds.Changes{}
		r = &same
	}
	b := r.Encoded(v, r.TTL, func(c *xds.Changes) any {
		if r.TTL && !hasTTL(c) {
			return c.Encoded(v, false, func(c *xds.Changes) any { return newBody(v, r, c) })
		}
		return newBody(v, r, c)
	}).(*body)
	if b.version != "" && b.version != r.Version {
		b = newBody(v, r, r.Changes) // the shared encoding is for another version
	}
	tail := mem.SliceBuffer(appendTail(v, r, identifier))
	parts := b.parts()
	s := make(mem.BufferSlice, 0, len(parts)+1)
	return append(append(s, parts...), tail)
}

// hasTTL reports whether the changes have heartbeats or TTLs, so that their encoding depends on r.TTL.
func hasTTL(c *xds.Changes) bool {
	return len(c.Beats) > 0 || slices.ContainsFunc(c.Upserts, func(r *xds.Resource) bool { return r.TTL > 0 })
}

// Fields of the response messages and of envoy.service.discovery.v3.Resource.
const (
	fieldVersion   = 1
	fieldResources = 2
	fieldTypeURL   = 4
	fieldNonce     = 5
	fieldRemoved   = 6 // delta
	fieldControl   = 6 // SotW; delta: 7
	fieldErrors    = 7 // SotW; delta: 9

	resourceVersion = 1
	resourceAny     = 2
	resourceName    = 3
	resourceAliases = 4
	resourceTTL     = 6

	anyTypeURL = 1
	anyValue   = 2
)

// resourceURL is the type of the protocol's Resource in an Any.
const resourceURL = "type.googleapis.com/envoy.service.discovery.v3.Resource"

func appendTail(v xds.Variant, r *xds.Response, identifier string) []byte {
	n := sizeString(r.Version) + sizeString(r.Type.URL) + sizeString(r.Nonce) + 1 + protowire.SizeBytes(sizeString(identifier))
	b := make([]byte, 0, n)
	b = appendString(b, fieldVersion, r.Version)
	b = appendString(b, fieldTypeURL, r.Type.URL)
	b = appendString(b, fieldNonce, r.Nonce)
	if identifier != "" {
		b = protowire.AppendTag(b, fieldControl+protowire.Number(v), protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeString(identifier)))
		b = appendString(b, 1, identifier)
	}
	return b
}

// A body is the encoding of Changes: the part of a response that is the same for all streams.
type body struct {
	version string // the version of the response for which the body was made; "": the body fits any version
	uses    atomic.Int32
	pieces  mem.BufferSlice // frames, shared with other bodies
	pack    sync.Once
	packed  mem.BufferSlice
}

func newBody(v xds.Variant, r *xds.Response, c *xds.Changes) *body {
	b := &body{pieces: make(mem.BufferSlice, 0, len(c.Upserts)+1)}
	t, f := r.Type, form{variant: v, ttl: r.TTL, version: r.Version}
	for _, u := range c.Upserts {
		if f.ttl && u.TTL > 0 {
			b.add(f.frame(t, u))
		} else {
			b.add(cached(v, t, u))
		}
		if len(u.Body) > maxInline {
			b.add(u.Body)
		}
		if f.wrapped(u) {
			b.version = r.Version
		}
	}
	if f.ttl {
		b.add(f.beats(t, c.Beats))
		if v == xds.SotW && len(c.Beats) > 0 {
			b.version = r.Version
		}
	}
	if v == xds.Delta {
		b.add(f.absent(t, c.Absent))
		b.add(removed(c.Removed))
	}
	b.add(missing(v, c.Missing))
	return b
}

func (b *body) add(piece []byte) {
	if len(piece) > 0 {
		b.pieces = append(b.pieces, mem.SliceBuffer(piece))
	}
}

// parts returns the body for one response. For the first response, the body is a list of frames,
// without a copy of the resources. A second use means that many streams share the body. Then the
// frames are concatenated once, so that a stream does not handle thousands of small pieces.
func (b *body) parts() mem.BufferSlice {
	const few = 16
	if len(b.pieces) <= few || b.uses.Add(1) == 1 {
		return b.pieces
	}
	b.pack.Do(func() { b.packed = concat(b.pieces) })
	return b.packed
}

// concat joins consecutive pieces, except pieces larger than the constant big.
func concat(pieces mem.BufferSlice) (out mem.BufferSlice) {
	for len(pieces) > 0 {
		n := 0
		for n < len(pieces) && pieces[n].Len() <= big {
			n++
		}
		if n > 0 {
			out = append(out, mem.SliceBuffer(pieces[:n].Materialize()))
		} else {
			out, n = append(out, pieces[0]), 1
		}
		pieces = pieces[n:]
	}
	return out
}
