package envoy

import (
	"iter"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// An index lists the files and the declared names. It only scans the encoded files, which costs a
// hundredth of building descriptors.
type index struct {
	files map[string][]byte                // encoded, by path
	at    map[protoreflect.FullName]string // paths, by declared top-level name
}

// declares returns the path of the file that declares a name, at top level or inside a message.
func (x *index) declares(name protoreflect.FullName) (path string, ok bool) {
	for ; name != ""; name = name.Parent() {
		if path, ok := x.at[name]; ok {
			return path, true
		}
	}
	return "", false
}

// Names returns the declared top-level names: messages, enums and services.
func (x *index) Names() iter.Seq[protoreflect.FullName] { return maps.Keys(x.at) }

// Field numbers of google.protobuf.FileDescriptorSet and FileDescriptorProto, and of the name in each
// declaration.
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

// A header is the scanned part of an encoded file.
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

func scan(file []byte) (h header, err error) {
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

// names returns the full names of a file's declarations.
func (h header) names() []protoreflect.FullName {
	all := make([]protoreflect.FullName, len(h.declared))
	for i, name := range h.declared {
		all[i] = protoreflect.FullName(h.pkg).Append(protoreflect.Name(name))
	}
	return all
}
