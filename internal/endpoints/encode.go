package endpoints

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Messages are encoded by hand: the bytes are what makes versions, and the library of protobuf does
// not promise that those of two of its releases are the same.

// appendMessage appends a field that is a message.
func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// appendText appends a field that is a string, unless it is empty.
func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// appendNumber appends a field that is a number, unless it is 0.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// endpoint encodes an envoy.config.endpoint.v3.LbEndpoint.
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

// value encodes a google.protobuf.Value of what JSON can say.
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
// Of two with the same address the first is there: gRPC refuses an assignment that has one twice.
// Priorities are numbered without gaps, which gRPC and Envoy want, so that the second choice is there when the last
// of the first choice goes. A locality has the weight of its endpoints, since gRPC
// leaves out one without; Envoy reads it only where a cluster asks for it.
func assignment(name string, c *cluster) []byte {
	parts := c.parts
	if c.twice > 0 {
		parts = c.once()
	}
	size := len(name) + 16
	for _, p := range parts {
		size += len(p.lbs) + len(p.Region) + len(p.Zone) + len(p.SubZone) + 40 // of lengths and numbers
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
		// Endpoints are many: they are written once, to where they stay.
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(len(head)+len(p.lbs)+len(tail)))
		b = append(b, head...)
		b = append(b, p.lbs...)
		b = append(b, tail...)
	}
	return b
}
