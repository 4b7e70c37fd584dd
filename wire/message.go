package wire

import (
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// typePrefix begins the type URL of every message.
const typePrefix = "type.googleapis.com/"

// TypeOf returns the resource type of a message, by the full name of the message. For an
// *[anypb.Any] it returns the type of the message inside. For a message that is not in the table of
// types it returns a new type, like [xds.TypeOf]. A nil message, and an Any without a type URL,
// have no type: TypeOf returns nil.
//
// The message need not be filled: TypeOf((*clusterv3.Cluster)(nil)) is [xds.Cluster].
func TypeOf(m proto.Message) *xds.Type {
	if m == nil {
		return nil
	}
	if url := typeURL(m); url != "" {
		return typeOf([]byte(url))
	}
	return nil
}

// FromMessage encodes a message as a resource: its type is [TypeOf] the message, and its name is
// the one in the message. FromMessage does the same as [NewResource] with this type and name, so
// the same errors and references apply. A message without a name field needs NewResource.
func FromMessage(m proto.Message) (*xds.Resource, error) {
	if a, packed := m.(*anypb.Any); m == nil || packed && a.GetTypeUrl() == "" {
		return nil, errors.New("resource: the message is nil, or an Any without a type URL")
	}
	return NewResource(TypeOf(m), "", m)
}

// typeURL returns the type URL of a message, or of the message in an Any.
func typeURL(m proto.Message) string {
	if a, packed := m.(*anypb.Any); packed {
		return a.GetTypeUrl()
	}
	return typePrefix + string(m.ProtoReflect().Descriptor().FullName())
}
