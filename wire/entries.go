package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// beats encodes heartbeats: "a response can be sent that provides a Resource
// with the resource unset and version matching the most recently sent version".
func (f form) beats(t *xds.Type, beats []*xds.Resource) (b []byte) {
	f.beat = true
	for _, r := range beats {
		b = f.append(b, t, &xds.Resource{Stamp: r.Stamp, TTL: r.TTL})
	}
	return b
}

// absent encodes that names do not exist, for clients that read this from a Resource without body and
// version. The name is also an alias: Envoy refuses the Resource without the alias.
func (f form) absent(t *xds.Type, names []string) (b []byte) {
	f.beat = true
	for _, name := range names {
		b = f.append(b, t, &xds.Resource{Stamp: &xds.Stamp{Name: name}, Aliases: []string{name}})
	}
	return b
}

// removed encodes the field removed_resources of a delta response.
func removed(names []string) []byte {
	n := 0
	for _, name := range names {
		n += 1 + protowire.SizeBytes(len(name))
	}
	b := make([]byte, 0, n)
	for _, name := range names {
		b = protowire.AppendTag(b, fieldRemoved, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	return b
}

// Fields of envoy.service.discovery.v3.ResourceError, of its ResourceName and of google.rpc.Status.
const (
	errorResource = 1
	errorDetail   = 2

	nameName = 1

	statusCode    = 1
	statusMessage = 2
)

// notFound is the google.rpc.Status of a name that does not exist. A name that the node may not see
// has the same status, so that a client cannot find out which names exist.
var notFound = appendString(appendVarint(nil, statusCode, 5), statusMessage, "does not exist, or this node may not see it")

// missing encodes the field resource_errors: "a resource in this field with a
// status of NOT_FOUND should be treated the same as a resource listed in the
// removed_resources".
func missing(v xds.Variant, names []string) (b []byte) {
	num := fieldErrors + 2*protowire.Number(v)
	for _, name := range names {
		n := sizeString(name)
		b = protowire.AppendTag(b, num, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(1+protowire.SizeBytes(n)+1+protowire.SizeBytes(len(notFound))))
		b = protowire.AppendTag(b, errorResource, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(n))
		b = appendString(b, nameName, name)
		b = protowire.AppendTag(b, errorDetail, protowire.BytesType)
		b = protowire.AppendBytes(b, notFound)
	}
	return b
}
