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
	// Messages that hold another as a google.protobuf.Struct.
	typedStructs = map[protoreflect.FullName]bool{"xds.type.v3.TypedStruct": true, "udpa.type.v1.TypedStruct": true}

	// Messages that hold a value or say where it is.
	dataSources = map[protoreflect.FullName]bool{"envoy.config.core.v3.DataSource": true, "envoy.api.v2.core.DataSource": true}

	tlsCertificates = map[protoreflect.FullName]bool{
		"envoy.extensions.transport_sockets.tls.v3.TlsCertificate": true, "envoy.api.v2.auth.TlsCertificate": true,
	}

	validations = map[protoreflect.FullName]bool{
		"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext": true, "envoy.api.v2.auth.CertificateValidationContext": true,
	}
)

// Options are known by their numbers: whether a program links the extensions does not matter.
const (
	// udpa.annotations.sensitive of google.protobuf.FieldOptions, by which Envoy's API marks
	// a field.
	sensitive = 76569463

	// udpa.annotations.file_status of google.protobuf.FileOptions, and in it
	// package_version_status, by which it says that nobody changes a file any more.
	fileStatus           = 222707719
	packageVersionStatus = 2
	frozen               = 1
)

// What was found out of descriptors by [Marked], [Holds] and ofV2: it does not change.
var marks, holders, versions sync.Map

// once returns what find says of a descriptor, which is asked the first time.
func once[D protoreflect.Descriptor](known *sync.Map, d D, find func(D) bool) bool {
	if yes, ok := known.Load(d); ok {
		return yes.(bool)
	}
	yes := find(d)
	known.Store(d, yes)
	return yes
}

// Marked reports whether Envoy's API marks a field as sensitive.
func Marked(fd protoreflect.FieldDescriptor) bool { return once(&marks, fd, isMarked) }

func isMarked(fd protoreflect.FieldDescriptor) bool {
	o, _ := fd.Options().(*descriptorpb.FieldOptions)
	return o.GetDebugRedact() || option(o, sensitive) != 0
}

// ofV2 reports whether a message is of the API before v3, which is frozen.
func ofV2(md protoreflect.MessageDescriptor) bool {
	return once(&versions, md.ParentFile(), isFrozen)
}

func isFrozen(f protoreflect.FileDescriptor) bool {
	return option(f.Options(), fileStatus, packageVersionStatus) == frozen
}

// option returns the number in a field of options, or in a message in it; 0 if there is
// none.
func option(o proto.Message, path ...protowire.Number) uint64 {
	b, _ := proto.Marshal(o)
	return number(b, path)
}

// number returns the last that stands there, for which a field may have several parts.
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

// Spells reports whether a field has a message as JSON, of which any part may be
// sensitive.
func Spells(fd protoreflect.FieldDescriptor) bool {
	return fd.Name() == "value" && typedStructs[fd.ContainingMessage().FullName()]
}

// Holds reports whether a message has a field that is marked, or a message in one of its
// fields does: what is misplaced there may be a secret.
func Holds(md protoreflect.MessageDescriptor) bool { return once(&holders, md, isHolder) }

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

// waysOf returns the fields of a message that are marked or lead to one that is, in
// the order in which they are declared. An Any may lead anywhere.
func (f *Finder) waysOf(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if known, ok := f.ways.Load(md); ok {
		return known.([]protoreflect.FieldDescriptor)
	}
	var ways []protoreflect.FieldDescriptor
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); Marked(fd) || f.isWay(fd) {
			ways = append(ways, fd)
		}
	}
	f.ways.Store(md, ways)
	return ways
}

// isWay reports whether a field has a message that is sensitive or has a field that
// leads to what is.
func (f *Finder) isWay(fd protoreflect.FieldDescriptor) bool {
	m := messageOf(fd)
	return m != nil && f.leads(m)
}

// leads reports whether something that is looked at is in a message or below.
func (f *Finder) leads(md protoreflect.MessageDescriptor) bool {
	return once(&f.leading, md, func(md protoreflect.MessageDescriptor) bool {
		return leads(md, map[protoreflect.FullName]bool{})
	})
}

func leads(md protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	name := md.FullName()
	if name == anyName || typedStructs[name] || validations[name] || hasMarked(md) { // authorities have no secrets, but mistakes
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	for i := range md.Fields().Len() {
		if m := messageOf(md.Fields().Get(i)); m != nil && leads(m, seen) {
			return true
		}
	}
	return false
}

// messageOf returns the message in a field, or in the values of a map; nil if there is
// none.
func messageOf(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}
