package secret

import (
	"maps"
	"sync"

	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
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

	validations = map[protoreflect.FullName]bool{
		"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext": true, "envoy.api.v2.auth.CertificateValidationContext": true,
	}
)

// Marked reports whether Envoy's API marks a field as sensitive.
func Marked(fd protoreflect.FieldDescriptor) bool { return index().marked[fd.FullName()] }

// Spells reports whether a field has a message as JSON, of which any part may be
// sensitive.
func Spells(fd protoreflect.FieldDescriptor) bool {
	return fd.Name() == "value" && typedStructs[fd.ContainingMessage().FullName()]
}

// Holds reports whether a message has a field that is marked, or a message in one of its
// fields does: what is misplaced there may be a secret.
func Holds(md protoreflect.MessageDescriptor) bool { return index().holders[md.FullName()] }

// isWay reports whether a field has a message that is sensitive or has a field that
// leads to what is.
func isWay(fd protoreflect.FieldDescriptor) bool {
	m := messageOf(fd)
	return m != nil && index().leads[m.FullName()]
}

// facts are what the descriptors of all linked messages say.
type facts struct {
	marked  map[protoreflect.FullName]bool
	holders map[protoreflect.FullName]bool
	leads   map[protoreflect.FullName]bool // messages that have ways, Anys and TypedStructs included

	frozen map[protoreflect.FullName]bool // packages of v2, the API before v3

	// ways are the fields of a message that are marked or lead to one that is, in
	// the order in which they are declared. An Any may lead anywhere.
	ways map[protoreflect.FullName][]protoreflect.FieldDescriptor
}

// index is made once: what is linked does not change.
var index = sync.OnceValue(build)

func build() *facts {
	x := &facts{
		marked: map[protoreflect.FullName]bool{},
		frozen: map[protoreflect.FullName]bool{},
		ways:   map[protoreflect.FullName][]protoreflect.FieldDescriptor{},
	}
	var all []protoreflect.MessageDescriptor
	users := map[protoreflect.FullName][]protoreflect.FullName{} // messages with a field of a type, by type
	direct := map[protoreflect.FullName]bool{}
	leads := map[protoreflect.FullName]bool{anyName: true}
	maps.Copy(leads, typedStructs)
	maps.Copy(leads, validations) // which are looked at, though they have no secrets
	protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
		d := t.Descriptor()
		all = append(all, d)
		if isFrozen(d.ParentFile()) {
			x.frozen[d.ParentFile().Package()] = true
		}
		for i := range d.Fields().Len() {
			fd := d.Fields().Get(i)
			if isMarked(fd) {
				x.marked[fd.FullName()], direct[d.FullName()], leads[d.FullName()] = true, true, true
			}
			if m := messageOf(fd); m != nil {
				users[m.FullName()] = append(users[m.FullName()], d.FullName())
			}
		}
		return true
	})
	var todo []protoreflect.FullName
	for name := range leads {
		todo = append(todo, name)
	}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, user := range users[name] {
			if !leads[user] {
				leads[user] = true
				todo = append(todo, user)
			}
		}
	}
	x.holders, x.leads = maps.Clone(direct), leads
	for _, d := range all {
		for i := range d.Fields().Len() {
			fd := d.Fields().Get(i)
			m := messageOf(fd)
			if m != nil && direct[m.FullName()] {
				x.holders[d.FullName()] = true
			}
			if x.marked[fd.FullName()] || m != nil && leads[m.FullName()] {
				x.ways[d.FullName()] = append(x.ways[d.FullName()], fd)
			}
		}
	}
	return x
}

func isMarked(fd protoreflect.FieldDescriptor) bool {
	o, _ := fd.Options().(*descriptorpb.FieldOptions)
	sensitive, _ := proto.GetExtension(o, annotations.E_Sensitive).(bool)
	return sensitive || o.GetDebugRedact()
}

// isFrozen reports whether the API says of a file that its package is of v2, which nobody
// changes any more. It does not say so of each file.
func isFrozen(f protoreflect.FileDescriptor) bool {
	o, _ := f.Options().(*descriptorpb.FileOptions)
	status, _ := proto.GetExtension(o, annotations.E_FileStatus).(*annotations.StatusAnnotation)
	return status.GetPackageVersionStatus() == annotations.PackageVersionStatus_FROZEN
}

// messageOf returns the message in a field, or in the values of a map; nil if there is
// none.
func messageOf(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}
