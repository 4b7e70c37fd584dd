package envoy

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// The option udpa.annotations.versioning of google.protobuf.MessageOptions has previous_message_type,
// the message's name in the previous version of Envoy's API.
const (
	versioning      = 7881811
	previousMessage = 1
)

// Successor returns the message that replaces another one in the next version of Envoy's API; "" if
// there is none. It builds the files that contain the name.
func (t *Types) Successor(name protoreflect.FullName) (next protoreflect.FullName) {
	for path, raw := range t.files {
		if !bytes.Contains(raw, []byte(name)) {
			continue
		}
		fd, err := t.FindFileByPath(path)
		if err != nil {
			continue // the user of that file gets the error
		}
		t.rangeIn(fd.Messages(), func(m protoreflect.MessageType) bool {
			if d := m.Descriptor(); previous(d) == name && (next == "" || d.FullName() < next) {
				next = d.FullName()
			}
			return true
		})
	}
	return next
}

func previous(md protoreflect.MessageDescriptor) (name protoreflect.FullName) {
	b, _ := proto.Marshal(md.Options())
	_ = protoscan.Sized(b, func(num protowire.Number, v []byte) error {
		if num != versioning {
			return nil
		}
		return protoscan.Sized(v, func(num protowire.Number, v []byte) error {
			if num == previousMessage {
				name = protoreflect.FullName(v)
			}
			return nil
		})
	})
	return name
}
