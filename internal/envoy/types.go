package envoy

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Types are message types known only by their descriptors. [Envoy] and [Types.With] make them; they do
// not change afterwards. All methods are safe for concurrent use.
//
// Types implements the resolvers for protobuf's JSON and text formats, and for gRPC's reflection. It
// has no extensions: Envoy's API uses extensions only in options, where they stay unknown fields.
type Types struct {
	index

	messages sync.Map // by name, filled at first use

	// A file is built at first use, after its imports.
	mu    sync.Mutex
	built *protoregistry.Files
}

// FindMessageByURL returns the message type of a type URL, such as
// "type.googleapis.com/envoy.config.cluster.v3.Cluster".
func (t *Types) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	return t.FindMessageByName(protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:]))
}

// FindMessageByName returns the message type of a name.
func (t *Types) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if m, ok := t.messages.Load(name); ok {
		return m.(protoreflect.MessageType), nil
	}
	d, err := t.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	md, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, protoregistry.NotFound
	}
	m, _ := t.messages.LoadOrStore(name, dynamicpb.NewMessageType(md))
	return m.(protoreflect.MessageType), nil
}

// New returns an empty message of a known type. It panics if the type is unknown.
func (t *Types) New(name protoreflect.FullName) protoreflect.Message {
	m, err := t.FindMessageByName(name)
	if err != nil {
		panic(fmt.Sprintf("envoy: %s: %v", name, err))
	}
	return m.New()
}

// FindExtensionByName always returns NotFound.
func (t *Types) FindExtensionByName(protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

// FindExtensionByNumber always returns NotFound.
func (t *Types) FindExtensionByNumber(protoreflect.FullName, protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

// FindDescriptorByName returns the declaration of a name, such as a message or a service.
func (t *Types) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	path, ok := t.declares(name)
	if !ok {
		return nil, protoregistry.NotFound
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.build(path, nil); err != nil {
		return nil, err
	}
	return t.built.FindDescriptorByName(name)
}

// FindFileByPath returns the file of a path such as "envoy/config/core/v3/base.proto".
func (t *Types) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if t.files[path] == nil {
		return nil, protoregistry.NotFound
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.build(path, nil); err != nil {
		return nil, err
	}
	return t.built.FindFileByPath(path)
}

// build builds a file after its imports. The caller holds the lock.
func (t *Types) build(path string, importers []string) error {
	if _, err := t.built.FindFileByPath(path); err == nil {
		return nil
	}
	if slices.Contains(importers, path) {
		return fmt.Errorf("%s imports itself", path)
	}
	raw := t.files[path]
	if raw == nil {
		return fmt.Errorf("%s imports %s, %w", importers[len(importers)-1], path, ErrMissing)
	}
	f, err := parse(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, imported := range f.Dependency {
		if err := t.build(imported, append(importers, path)); err != nil {
			return err
		}
	}
	fd, err := protodesc.NewFile(f, t.built)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return t.built.RegisterFile(fd)
}

// parse decodes a file. Extensions in options stay unknown, even if the program links them.
func parse(raw []byte) (*descriptorpb.FileDescriptorProto, error) {
	f := &descriptorpb.FileDescriptorProto{}
	err := proto.UnmarshalOptions{Resolver: (*protoregistry.Types)(nil)}.Unmarshal(raw, f)
	return f, err
}

// Added yields the top-level messages of the files that are not part of Envoy's API.
func (t *Types) Added() iter.Seq[protoreflect.MessageDescriptor] {
	return func(yield func(protoreflect.MessageDescriptor) bool) {
		own := Envoy().files
		for path := range t.files {
			if own[path] != nil {
				continue
			}
			fd, err := t.FindFileByPath(path)
			if err != nil {
				continue // the user of that file gets the error
			}
			for i := range fd.Messages().Len() {
				if !yield(fd.Messages().Get(i)) {
					return
				}
			}
		}
	}
}

// RangeMessages calls f with each message type, in no particular order, until f returns false. It
// builds all files, so only tests use it.
func (t *Types) RangeMessages(f func(protoreflect.MessageType) bool) {
	for path := range t.files {
		fd, err := t.FindFileByPath(path)
		if err != nil {
			panic(fmt.Sprintf("envoy: %s: %v", path, err))
		}
		if !t.rangeIn(fd.Messages(), f) {
			return
		}
	}
}

func (t *Types) rangeIn(all protoreflect.MessageDescriptors, f func(protoreflect.MessageType) bool) bool {
	for i := range all.Len() {
		md := all.Get(i)
		if md.IsMapEntry() {
			continue
		}
		m, err := t.FindMessageByName(md.FullName())
		if err != nil {
			panic(fmt.Sprintf("envoy: %s: %v", md.FullName(), err))
		}
		if !f(m) || !t.rangeIn(md.Messages(), f) {
			return false
		}
	}
	return true
}
