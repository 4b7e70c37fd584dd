package wire

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// typePrefix begins the type URL of every message.
const typePrefix = "type.googleapis.com/"

// typeURL returns the type URL of a message, or of the message in an Any.
func typeURL(m proto.Message) string {
	if a, packed := m.(*anypb.Any); packed {
		return a.GetTypeUrl()
	}
	return typePrefix + string(m.ProtoReflect().Descriptor().FullName())
}
