package refs

import (
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Types finds the message types of Anys.
type Types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// Edit calls edit with m and with every message inside it, outer messages first. It decodes each
// google.protobuf.Any of known type, and encodes it again if edit reports a change inside. Edit reports
// whether anything changed.
//
// The callback may change its message and everything below.
func Edit(types Types, m proto.Message, edit func(m protoreflect.Message, at Path) (changed bool)) (changed bool) {
	w := walk{types: types, enter: edit, at: make(Path, 0, depth)}
	return w.message(m.ProtoReflect())
}

// A Path leads from a resource to a message inside it. It is valid only during the call that receives
// it.
type Path []step

type step struct {
	field protoreflect.FieldDescriptor
	index int
	key   protoreflect.MapKey
}

// String returns a path such as "filter_chains[0].filters[1].typed_config.rds". The path of a message
// inside an Any continues the path of the Any's field.
func (p Path) String() string {
	var b strings.Builder
	for i, s := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(string(s.field.Name()))
		switch {
		case s.field.IsList():
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case s.field.IsMap():
			b.WriteString("[" + strconv.Quote(s.key.String()) + "]")
		}
	}
	return b.String()
}

// A walk visits a message and all messages inside it.
type walk struct {
	types Types
	enter func(m protoreflect.Message, at Path) (changed bool) // may be nil

	// field reports whether to visit the content of a field. It may be nil.
	field func(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) (below bool)

	// packed is called with the content of an Any; nil if it cannot be decoded. It may be nil.
	packed func(m protoreflect.Message)

	at   Path
	anys int // the number of enclosing Anys
}

// depth is the usual nesting of messages.
const depth = 16

// maxAnyDepth is the maximum nesting of Anys. Each Any contains the bytes of all Anys inside it, so without
// a limit n bytes cost n².
const maxAnyDepth = 64

func (w *walk) message(m protoreflect.Message) (changed bool) {
	switch name := m.Descriptor().FullName(); {
	case name == "google.protobuf.Any":
		return w.any(m)
	case name.Parent() == "google.protobuf":
		return false // plain values, without references
	}
	if w.enter != nil {
		changed = w.enter(m, w.at)
	}
	for f, v := range set(m) {
		if w.field != nil && !w.field(m, f, v) {
			continue
		}
		if f.Message() != nil && w.below(f, v) {
			changed = true
		}
	}
	return changed
}

// set yields the set fields in order of declaration, so the results have a stable order.
func set(m protoreflect.Message) iter.Seq2[protoreflect.FieldDescriptor, protoreflect.Value] {
	return func(yield func(protoreflect.FieldDescriptor, protoreflect.Value) bool) {
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			if f := fields.Get(i); m.Has(f) && !yield(f, m.Get(f)) {
				return
			}
		}
	}
}

// below visits the messages in a field.
func (w *walk) below(f protoreflect.FieldDescriptor, v protoreflect.Value) (changed bool) {
	last := len(w.at)
	w.at = append(w.at, step{field: f})
	switch {
	case f.IsMap():
		if f.MapValue().Message() == nil {
			break
		}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			w.at[last].key = k
			changed = w.message(v.Message()) || changed
			return true
		})
	case f.IsList():
		for i := range v.List().Len() {
			w.at[last].index = i
			changed = w.message(v.List().Get(i).Message()) || changed
		}
	default:
		changed = w.message(v.Message())
	}
	w.at = w.at[:last]
	return changed
}

func (w *walk) any(m protoreflect.Message) (changed bool) {
	inner := w.inside(m)
	if w.packed != nil {
		w.packed(inner)
	}
	if inner == nil {
		return false
	}
	w.anys++
	changed = w.message(inner)
	w.anys--
	if !changed {
		return false
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(inner.Interface())
	if err != nil {
		panic("refs: a message that was read cannot be written: " + err.Error())
	}
	m.Set(m.Descriptor().Fields().ByName("value"), protoreflect.ValueOfBytes(b))
	return true
}

// inside returns the message in an Any; nil if it cannot be decoded.
func (w *walk) inside(m protoreflect.Message) protoreflect.Message {
	fields := m.Descriptor().Fields()
	typ, err := w.types.FindMessageByURL(m.Get(fields.ByName("type_url")).String())
	if err != nil || w.anys == maxAnyDepth {
		return nil
	}
	inner := typ.New()
	if (proto.UnmarshalOptions{Resolver: w.types}).Unmarshal(m.Get(fields.ByName("value")).Bytes(), inner.Interface()) != nil {
		return nil
	}
	return inner
}
