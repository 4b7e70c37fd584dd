package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// EncodeRequest encodes a DiscoveryRequest or a DeltaDiscoveryRequest of a client. It encodes only
// the fields of the variant: Subscribe is ignored for SotW, and Names for delta. Names must be
// UTF-8. Invalid UTF-8 in the error message is replaced. SameNames must be false, because a request
// with SameNames has no names. The request must not be nil.
func EncodeRequest(v xds.Variant, r *xds.Request) []byte {
	if v == xds.Delta {
		return appendDeltaRequest(make([]byte, 0, requestSize(r)), r)
	}
	l := &layouts[xds.SotW]
	b := appendString(make([]byte, 0, requestSize(r)), l.version, r.Version)
	b = appendNode(b, l.node, r.Node)
	b = appendStrings(b, l.names, r.Names)
	b = appendTypeURL(b, l.typeURL, r.Type)
	b = appendString(b, l.nonce, r.Nonce)
	return appendStatus(b, l.failure, r.Error)
}

func appendDeltaRequest(b []byte, r *xds.Request) []byte {
	l := &layouts[xds.Delta]
	b = appendNode(b, l.node, r.Node)
	b = appendTypeURL(b, l.typeURL, r.Type)
	b = appendStrings(b, l.subscribe, r.Subscribe)
	b = appendStrings(b, l.unsubscribe, r.Unsubscribe)
	for _, i := range r.Initial {
		// A map entry always has both fields, because other implementations need both.
		n := 1 + protowire.SizeBytes(len(i.Name)) + 1 + protowire.SizeBytes(len(i.Version))
		b = protowire.AppendTag(b, l.initial, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(n))
		b = appendStrings(b, 1, []string{i.Name})
		b = appendStrings(b, 2, []string{i.Version})
	}
	b = appendString(b, l.nonce, r.Nonce)
	return appendStatus(b, l.failure, r.Error)
}

// requestSize estimates the encoded size from the fields that may be long.
func requestSize(r *xds.Request) int {
	const each = 6 // tag and length
	n := 256
	for _, names := range [][]string{r.Names, r.Subscribe, r.Unsubscribe} {
		for _, name := range names {
			n += len(name) + each
		}
	}
	for _, i := range r.Initial {
		n += len(i.Name) + len(i.Version) + 3*each
	}
	if r.Node != nil {
		n += len(r.Node.Metadata) + each
	}
	return n
}

// appendNode appends a field with an encoded envoy.config.core.v3.Node, or nothing if n is nil.
func appendNode(b []byte, num protowire.Number, n *xds.Node) []byte {
	if n == nil {
		return b
	}
	var m []byte
	m = appendString(m, nodeIDField, n.ID)
	m = appendString(m, nodeCluster, n.Cluster)
	if len(n.Metadata) > 0 {
		m = protowire.AppendTag(m, nodeMetadata, protowire.BytesType)
		m = protowire.AppendBytes(m, n.Metadata)
	}
	if n.Region != "" || n.Zone != "" || n.SubZone != "" {
		var l []byte
		l = appendString(l, 1, n.Region)
		l = appendString(l, 2, n.Zone)
		l = appendString(l, 3, n.SubZone)
		m = protowire.AppendTag(m, nodeLocality, protowire.BytesType)
		m = protowire.AppendBytes(m, l)
	}
	m = appendString(m, nodeAgentName, n.UserAgentName)
	m = appendString(m, nodeAgentVersion, n.UserAgentVersion)
	m = appendStrings(m, nodeClientFeatures, n.ClientFeatures)
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, m)
}

// appendStatus appends a field with an encoded google.rpc.Status. An empty status is encoded too, because
// "presence of error_detail" makes a NACK.
func appendStatus(b []byte, num protowire.Number, s *xds.Status) []byte {
	if s == nil {
		return b
	}
	m := appendVarint(nil, statusCode, uint64(int64(s.Code)))
	m = appendString(m, statusMessage, strings.ToValidUTF8(s.Message, "\uFFFD"))
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, m)
}

func appendTypeURL(b []byte, num protowire.Number, t *xds.Type) []byte {
	if t == nil {
		return b
	}
	return appendString(b, num, t.URL)
}

// appendStrings appends a repeated field. It keeps empty strings.
func appendStrings(b []byte, num protowire.Number, list []string) []byte {
	for _, s := range list {
		b = protowire.AppendTag(b, num, protowire.BytesType)
		b = protowire.AppendString(b, s)
	}
	return b
}
