package refs

import (
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Types find the messages in an Any.
type Types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// Edit calls edit with m and each message in it, an outer one before the ones
// inside. It follows every google.protobuf.Any whose type is known, and
// packs it again if edit says that it changed something in there. It reports
// whether anything was changed at all.
//
// edit may change the message it is given, and what is below it.
func Edit(types Types, m proto.Message, edit func(m protoreflect.Message, at Path) (changed bool)) (changed bool) {
	w := walk{types: types, enter: edit, at: make(Path, 0, depth)}
	return w.message(m.ProtoReflect())
}

// A Path leads from a resource to a message inside it. It is of use during the
// call it is given to.
type Path []step

type step struct {
	field protoreflect.FieldDescriptor
	index int
	key   protoreflect.MapKey
}

// String returns a path such as "filter_chains[0].filters[1].typed_config.rds":
// what is inside an Any stands below the field that has the Any.
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

// A walk goes through a message and all that are in it.
type walk struct {
	types Types
	enter func(m protoreflect.Message, at Path) (changed bool) // may be nil

	// field reports whether to look into what is in the field. It may be nil.
	field func(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) (below bool)

	// packed is told what an Any has in it, nil if it cannot be read. It may be
	// nil.
	packed func(m protoreflect.Message)

	at   Path
	anys int // how many we are in
}

// depth is how deep most messages go.
const depth = 16

// deepest is how many Anys may stand in each other. Each has all the bytes of
// those in it: without a limit a file of n bytes costs n².
const deepest = 64

func (w *walk) message(m protoreflect.Message) (changed bool) {
	switch name := m.Descriptor().FullName(); {
	case name == "google.protobuf.Any":
		return w.any(m)
	case name.Parent() == "google.protobuf":
		return false // values: nothing in there refers to a resource
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

// set yields the fields that are set, in the order in which they are declared: what is
// told of them is told in the same order each time.
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

// below goes through the messages in a field.
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

// inside returns the message in an Any, nil if it cannot be read.
func (w *walk) inside(m protoreflect.Message) protoreflect.Message {
	fields := m.Descriptor().Fields()
	typ, err := w.types.FindMessageByURL(m.Get(fields.ByName("type_url")).String())
	if err != nil || w.anys == deepest {
		return nil
	}
	inner := typ.New()
	if (proto.UnmarshalOptions{Resolver: w.types}).Unmarshal(m.Get(fields.ByName("value")).Bytes(), inner.Interface()) != nil {
		return nil
	}
	return inner
}
