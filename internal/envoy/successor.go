package envoy

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// udpa.annotations.versioning of google.protobuf.MessageOptions, and in it
// previous_message_type, by which a message of Envoy's API says what it was before.
const (
	versioning      = 7881811
	previousMessage = 1
)

// Successor returns the message that has taken the place of one in the next version of
// Envoy's API; "" if none says that it has. It builds the files that may say so.
func (t *Types) Successor(name protoreflect.FullName) (next protoreflect.FullName) {
	for path, raw := range t.files {
		if !bytes.Contains(raw, []byte(name)) {
			continue
		}
		fd, err := t.FindFileByPath(path)
		if err != nil {
			continue // who asks for it is told
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
