package envoy

import (
	"iter"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// An index says which files there are and which of them declares a name. It is made by
// a look at the encoded files, which costs a hundredth of building their descriptors.
type index struct {
	files map[string][]byte                // encoded, by path
	at    map[protoreflect.FullName]string // the paths, by what is declared outside of messages
}

// declares returns the file that declares a name, inside a message or outside.
func (x *index) declares(name protoreflect.FullName) (path string, ok bool) {
	for ; name != ""; name = name.Parent() {
		if path, ok := x.at[name]; ok {
			return path, true
		}
	}
	return "", false
}

// Names returns the names of what is declared outside of messages: of messages, and of
// enums and services, too.
func (x *index) Names() iter.Seq[protoreflect.FullName] { return maps.Keys(x.at) }

// Fields of google.protobuf.FileDescriptorSet and FileDescriptorProto, and the name in
// what is declared in a file.
const (
	setFile = 1

	fileName      = 1
	filePackage   = 2
	fileMessage   = 4
	fileEnum      = 5
	fileService   = 6
	fileExtension = 7

	declaredName = 1
)

// A header is what stands in an encoded file, of which nothing else is read.
type header struct {
	path, pkg string
	declared  []string
}

// split returns the files of an encoded FileDescriptorSet.
func split(set []byte) (files [][]byte, err error) {
	err = protoscan.Sized(set, func(num protowire.Number, v []byte) error {
		if num == setFile {
			files = append(files, v)
		}
		return nil
	})
	return files, err
}

func look(file []byte) (h header, err error) {
	err = protoscan.Sized(file, func(num protowire.Number, v []byte) error {
		switch num {
		case fileName:
			h.path = string(v)
		case filePackage:
			h.pkg = string(v)
		case fileMessage, fileEnum, fileService, fileExtension:
			return protoscan.Sized(v, func(num protowire.Number, v []byte) error {
				if num == declaredName {
					h.declared = append(h.declared, string(v))
				}
				return nil
			})
		}
		return nil
	})
	return h, err
}

// names returns the full names of what a file declares.
func (h header) names() []protoreflect.FullName {
	all := make([]protoreflect.FullName, len(h.declared))
	for i, name := range h.declared {
		all[i] = protoreflect.FullName(h.pkg).Append(protoreflect.Name(name))
	}
	return all
}
