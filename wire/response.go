package wire

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// Encode encodes a DiscoveryResponse or a DeltaDiscoveryResponse. identifier
// says which control plane answered; empty: it is not sent.
//
// The resources are encoded once for all streams; what each stream has of its
// own is the tail with version, type, nonce and identifier. The result is
// read-only and needs no Free.
func Encode(v xds.Variant, r *xds.Response, identifier string) mem.BufferSlice {
	b := r.Encoded(v, r.TTL, func(c *xds.Changes) any { return newBody(v, r.Type, c) }).(*body)
	tail := mem.SliceBuffer(appendTail(v, r, identifier))
	parts := b.parts()
	s := make(mem.BufferSlice, 0, len(parts)+1)
	return append(append(s, parts...), tail)
}

// Fields of the response messages and of envoy.service.discovery.v3.Resource.
const (
	fieldVersion   = 1
	fieldResources = 2
	fieldTypeURL   = 4
	fieldNonce     = 5
	fieldRemoved   = 6 // delta
	fieldControl   = 6 // SotW; delta: 7

	resourceVersion = 1
	resourceAny     = 2
	resourceName    = 3
	resourceAliases = 4

	anyTypeURL = 1
	anyValue   = 2
)

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

// A body is the encoding of Changes: everything in a response that is the same
// for all streams.
type body struct {
	uses   atomic.Int32
	pieces mem.BufferSlice // frames, shared with other bodies

	pack   sync.Once
	packed mem.BufferSlice
}

func newBody(v xds.Variant, t *xds.Type, c *xds.Changes) *body {
	b := &body{pieces: make(mem.BufferSlice, 0, len(c.Upserts)+1)}
	for _, r := range c.Upserts {
		b.pieces = append(b.pieces, mem.SliceBuffer(cached(v, t, r)))
		if len(r.Body) > inline {
			b.pieces = append(b.pieces, mem.SliceBuffer(r.Body))
		}
	}
	if v == xds.Delta && len(c.Removed) > 0 {
		n := 0
		for _, name := range c.Removed {
			n += 1 + protowire.SizeBytes(len(name))
		}
		removed := make([]byte, 0, n)
		for _, name := range c.Removed {
			removed = protowire.AppendTag(removed, fieldRemoved, protowire.BytesType)
			removed = protowire.AppendString(removed, name)
		}
		b.pieces = append(b.pieces, mem.SliceBuffer(removed))
	}
	return b
}

// parts returns the body for one response. For the first it is a list of
// frames, which copies no resource. A body that a second response wants is
// shared by many streams: then it pays to concatenate it once, so that none of
// them handles thousands of small pieces.
func (b *body) parts() mem.BufferSlice {
	const few = 16
	if len(b.pieces) <= few || b.uses.Add(1) == 1 {
		return b.pieces
	}
	b.pack.Do(func() { b.packed = concat(b.pieces) })
	return b.packed
}

// concat joins neighbouring pieces, save those that are big by themselves.
func concat(pieces mem.BufferSlice) (out mem.BufferSlice) {
	for len(pieces) > 0 {
		n, size := 0, 0
		for n < len(pieces) && pieces[n].Len() <= big {
			size += pieces[n].Len()
			n++
		}
		if n > 0 {
			out = append(out, mem.SliceBuffer(pieces[:n].Materialize()))
		}
		for pieces = pieces[n:]; len(pieces) > 0 && pieces[0].Len() > big; pieces = pieces[1:] {
			out = append(out, pieces[0])
		}
	}
	return out
}
