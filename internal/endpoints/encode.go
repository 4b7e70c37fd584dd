package endpoints

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Messages are encoded by hand, because the bytes determine the versions. The protobuf library does not
// promise equal bytes in two of its releases.

// appendMessage appends a message field.
func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// appendText appends a string field, unless it is empty.
func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// appendNumber appends a number field, unless it is 0.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// encode encodes an envoy.config.endpoint.v3.LbEndpoint.
func (e *Endpoint) encode() []byte {
	socket := appendNumber(appendText(nil, 2, e.Address), 3, uint64(e.Port))
	b := appendMessage(nil, 1, appendText(appendMessage(nil, 1, appendMessage(nil, 1, socket)), 3, e.Hostname))
	b = appendNumber(b, 2, uint64(max(slices.Index(health, e.Health), 0)))
	if len(e.Metadata) > 0 {
		var m []byte
		for _, name := range slices.Sorted(maps.Keys(e.Metadata)) {
			m = appendMessage(m, 1, appendMessage(appendText(nil, 1, name), 2, structure(e.Metadata[name])))
		}
		b = appendMessage(b, 3, m)
	}
	if e.Weight > 0 {
		b = appendMessage(b, 4, appendNumber(nil, 1, uint64(e.Weight)))
	}
	return b
}

// structure encodes a google.protobuf.Struct.
func structure(fields map[string]any) (b []byte) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		b = appendMessage(b, 1, appendMessage(appendText(nil, 1, name), 2, value(fields[name])))
	}
	return b
}

// value encodes a JSON value as a google.protobuf.Value.
func value(v any) (b []byte) {
	switch v := v.(type) {
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(nil, 2, protowire.Fixed64Type), math.Float64bits(v))
	case string:
		return appendMessage(nil, 3, []byte(v))
	case bool:
		return protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), protowire.EncodeBool(v))
	case map[string]any:
		return appendMessage(nil, 5, structure(v))
	case []any:
		for _, one := range v {
			b = appendMessage(b, 1, value(one))
		}
		return appendMessage(nil, 6, b)
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 0) // null
}

// assignment encodes the ClusterLoadAssignment of a cluster.
//
// If two endpoints have the same address, only the first one is included, because gRPC refuses an
// assignment with a duplicate. gRPC and Envoy require priorities without gaps. So the priorities are
// renumbered when the last endpoint of one goes. A locality has the weight of its endpoints, since gRPC
// ignores one without a weight. Envoy uses the weight only if a cluster asks for it.
func assignment(name string, c *cluster) []byte {
	parts := c.parts
	if c.twice > 0 {
		parts = c.once()
	}
	size := len(name) + 16
	for _, p := range parts {
		size += len(p.lbs) + len(p.Region) + len(p.Zone) + len(p.SubZone) + 40 // for lengths and numbers
	}
	b := appendText(make([]byte, 0, size), 1, name)
	rank := uint64(0)
	for i, p := range parts {
		if i > 0 && p.priority != parts[i-1].priority {
			rank++
		}
		var head []byte
		if l := p.Locality; l != (Locality{}) {
			head = appendMessage(nil, 1, appendText(appendText(appendText(nil, 1, l.Region), 2, l.Zone), 3, l.SubZone))
		}
		tail := appendNumber(appendMessage(nil, 3, appendNumber(nil, 1, p.weight)), 5, rank)
		// There are many endpoints: they are written once, to their final place.
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(len(head)+len(p.lbs)+len(tail)))
		b = append(b, head...)
		b = append(b, p.lbs...)
		b = append(b, tail...)
	}
	return b
}
