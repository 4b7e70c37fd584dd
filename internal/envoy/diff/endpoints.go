package diff

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// asDumped returns a ClusterLoadAssignment in the form of Envoy's config_dump. Envoy generates it from
// its state: it writes out default values and its own health results, which are not configuration.
func asDumped(m proto.Message) proto.Message {
	m = proto.Clone(m)
	r := m.ProtoReflect()
	each(r, "endpoints", func(locality protoreflect.Message) {
		clearIf(locality, "locality", isEmpty)
		clearIf(locality, "load_balancing_weight", wraps(0))
		each(locality, "lb_endpoints", func(e protoreflect.Message) {
			clearIf(e, "health_status", func(protoreflect.Value) bool { return true })
			clearIf(e, "load_balancing_weight", wraps(1))
			if fd := e.Descriptor().Fields().ByName("endpoint"); fd != nil && e.Has(fd) {
				clearIf(e.Get(fd).Message(), "health_check_config", isEmpty)
			}
		})
	})
	if fd := r.Descriptor().Fields().ByName("policy"); fd != nil && r.Has(fd) {
		clearIf(r.Get(fd).Message(), "overprovisioning_factor", wraps(140))
		clearIf(r, "policy", isEmpty)
	}
	return m
}

func each(m protoreflect.Message, list protoreflect.Name, f func(protoreflect.Message)) {
	fd := m.Descriptor().Fields().ByName(list)
	if fd == nil || !fd.IsList() || fd.Message() == nil {
		return
	}
	for i := range m.Get(fd).List().Len() {
		f(m.Get(fd).List().Get(i).Message())
	}
}

func clearIf(m protoreflect.Message, field protoreflect.Name, which func(protoreflect.Value) bool) {
	if fd := m.Descriptor().Fields().ByName(field); fd != nil && m.Has(fd) && which(m.Get(fd)) {
		m.Clear(fd)
	}
}

func isEmpty(v protoreflect.Value) bool {
	empty := true
	v.Message().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool { empty = false; return false })
	return empty
}

// wraps returns a function that reports whether a UInt32Value has the value n.
func wraps(n uint64) func(protoreflect.Value) bool {
	return func(v protoreflect.Value) bool {
		m := v.Message()
		return m.Get(m.Descriptor().Fields().ByName("value")).Uint() == n
	}
}
