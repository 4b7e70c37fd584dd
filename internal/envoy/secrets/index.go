package secrets

import (
	"cmp"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

const anyName = "google.protobuf.Any"

var (
	// typedStructs are the messages that hold another message as a google.protobuf.Struct.
	typedStructs = map[protoreflect.FullName]bool{"xds.type.v3.TypedStruct": true, "udpa.type.v1.TypedStruct": true}

	// dataSources are the messages that hold a value or name its location.
	dataSources = map[protoreflect.FullName]bool{"envoy.config.core.v3.DataSource": true, "envoy.api.v2.core.DataSource": true}

	tlsCertificates = map[protoreflect.FullName]bool{
		"envoy.extensions.transport_sockets.tls.v3.TlsCertificate": true, "envoy.api.v2.auth.TlsCertificate": true,
	}

	validations = map[protoreflect.FullName]bool{
		"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext": true, "envoy.api.v2.auth.CertificateValidationContext": true,
	}
)

// Options are found by number, so a program need not link their extensions.
const (
	// sensitive is udpa.annotations.sensitive of google.protobuf.FieldOptions. Envoy's API marks fields
	// with it.
	sensitive = 76569463

	// fileStatus is udpa.annotations.file_status of google.protobuf.FileOptions. Its
	// package_version_status marks frozen files.
	fileStatus           = 222707719
	packageVersionStatus = 2
	frozen               = 1
)

// Cached results of [Marked], [Holds] and ofV2, by descriptor.
var marks, holders, versions sync.Map

// cached returns the result of find for a descriptor; it calls find only once.
func cached[D protoreflect.Descriptor](known *sync.Map, d D, find func(D) bool) bool {
	if yes, ok := known.Load(d); ok {
		return yes.(bool)
	}
	yes := find(d)
	known.Store(d, yes)
	return yes
}

// Marked reports whether Envoy's API marks a field as sensitive.
func Marked(fd protoreflect.FieldDescriptor) bool { return cached(&marks, fd, isMarked) }

func isMarked(fd protoreflect.FieldDescriptor) bool {
	o, _ := fd.Options().(*descriptorpb.FieldOptions)
	return o.GetDebugRedact() || option(o, sensitive) != 0
}

// ofV2 reports whether a message belongs to the v2 API, which is frozen.
func ofV2(md protoreflect.MessageDescriptor) bool {
	return cached(&versions, md.ParentFile(), isFrozen)
}

func isFrozen(f protoreflect.FileDescriptor) bool {
	return option(f.Options(), fileStatus, packageVersionStatus) == frozen
}

// option returns the number in a field of options, or of a message inside; 0 if it is not set.
func option(o proto.Message, path ...protowire.Number) uint64 {
	b, _ := proto.Marshal(o)
	return number(b, path)
}

// number returns the last number at a path. A message field may come in several parts.
func number(m []byte, path []protowire.Number) (v uint64) {
	for f, err := range protoscan.Fields(m) {
		switch {
		case err != nil || f.Number != path[0]:
		case len(path) == 1 && f.Type == protowire.VarintType:
			v = f.Varint
		case len(path) > 1 && f.Type == protowire.BytesType:
			v = cmp.Or(number(f.Bytes, path[1:]), v)
		}
	}
	return v
}

// HoldsJSON reports whether a field contains a message as JSON. Any part of it may be sensitive.
func HoldsJSON(fd protoreflect.FieldDescriptor) bool {
	return fd.Name() == "value" && typedStructs[fd.ContainingMessage().FullName()]
}

// Holds reports whether a message has a marked field, itself or one level below. Then an unknown field
// in it may be a misplaced secret.
func Holds(md protoreflect.MessageDescriptor) bool { return cached(&holders, md, isHolder) }

func isHolder(md protoreflect.MessageDescriptor) bool {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if Marked(fd) {
			return true
		}
		if m := messageOf(fd); m != nil && hasMarked(m) {
			return true
		}
	}
	return false
}

func hasMarked(md protoreflect.MessageDescriptor) bool {
	for i := range md.Fields().Len() {
		if Marked(md.Fields().Get(i)) {
			return true
		}
	}
	return false
}

// searchFields returns the fields of a message that are marked or lead to a marked field, in order of
// declaration. An Any may lead anywhere.
func (f *Finder) searchFields(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if known, ok := f.searchedFields.Load(md); ok {
		return known.([]protoreflect.FieldDescriptor)
	}
	var fields []protoreflect.FieldDescriptor
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); Marked(fd) || f.fieldNeedsSearch(fd) {
			fields = append(fields, fd)
		}
	}
	f.searchedFields.Store(md, fields)
	return fields
}

// fieldNeedsSearch reports whether the message of a field, or one below it, needs a search.
func (f *Finder) fieldNeedsSearch(fd protoreflect.FieldDescriptor) bool {
	m := messageOf(fd)
	return m != nil && f.needsSearch(m)
}

// needsSearch reports whether a message, or one below it, needs a search.
func (f *Finder) needsSearch(md protoreflect.MessageDescriptor) bool {
	return cached(&f.searchable, md, func(md protoreflect.MessageDescriptor) bool {
		return mayBeSensitive(md, map[protoreflect.FullName]bool{})
	})
}

func mayBeSensitive(md protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	name := md.FullName()
	if name == anyName || typedStructs[name] || validations[name] || hasMarked(md) { // validations only for their mistakes
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	for i := range md.Fields().Len() {
		if m := messageOf(md.Fields().Get(i)); m != nil && mayBeSensitive(m, seen) {
			return true
		}
	}
	return false
}

// messageOf returns the message type of a field, or of the values of a map; nil if there is none.
func messageOf(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}
