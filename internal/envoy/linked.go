package envoy

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Linked are the descriptors of types, and those that the program links, such as of gRPC's own
// services: what reflection tells of a server.
type Linked struct{ *Types }

// FindFileByPath returns the descriptor of a file.
func (l Linked) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if fd, err := l.Types.FindFileByPath(path); err == nil {
		return fd, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName returns the descriptor of a name.
func (l Linked) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if found, err := l.Types.FindDescriptorByName(name); err == nil {
		return found, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
