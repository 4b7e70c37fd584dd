package envoy

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Linked extends Types by the descriptors that the program links, such as those of gRPC's own services.
// gRPC server reflection uses it.
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
