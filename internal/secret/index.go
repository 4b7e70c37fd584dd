package secret

import (
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
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
)

// sensitive is the number of the extension of google.protobuf.FieldOptions by which
// Envoy's API marks a field: udpa.annotations.sensitive.
const sensitive = 76569463

// marks has what [Marked] found out. What the options of a field say does not change.
var marks sync.Map // of bool, by field descriptor

// Marked reports whether Envoy's API marks a field as sensitive.
func Marked(fd protoreflect.FieldDescriptor) bool {
	if yes, known := marks.Load(fd); known {
		return yes.(bool)
	}
	yes := isMarked(fd)
	marks.Store(fd, yes)
	return yes
}

// isMarked looks for the option in the encoded options: whether the extension is known
// depends on what a program links.
func isMarked(fd protoreflect.FieldDescriptor) bool {
	o, _ := fd.Options().(*descriptorpb.FieldOptions)
	encoded, _ := proto.Marshal(o)
	return o.GetDebugRedact() || saysTrue(encoded, sensitive)
}

// saysTrue reports whether an encoded message has a field that is true.
func saysTrue(m []byte, field protowire.Number) (yes bool) {
	for len(m) > 0 {
		num, typ, n := protowire.ConsumeTag(m)
		if n < 0 {
			return yes
		}
		m = m[n:]
		if num == field && typ == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(m)
			yes = v != 0
		}
		if n = protowire.ConsumeFieldValue(num, typ, m); n < 0 {
			return yes
		}
		m = m[n:]
	}
	return yes
}

// Holds reports whether a message has a field that is marked, or a message in one of its
// fields does: what is misplaced there may be a secret.
func Holds(md protoreflect.MessageDescriptor) bool {
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
		fd := md.Fields().Get(i)
		if m := messageOf(fd); Marked(fd) || m != nil && leads(m, map[protoreflect.FullName]bool{}) {
			ways = append(ways, fd)
		}
	}
	f.ways.Store(md, ways)
	return ways
}

// leads reports whether something that is marked, or an Any, is in a message or below.
func leads(md protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	name := md.FullName()
	if name == anyName || typedStructs[name] || hasMarked(md) {
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
