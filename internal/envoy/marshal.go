package envoy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Marshal encodes a message with the same bytes as proto.MarshalOptions with Deterministic, and as
// generated code. That matters because resource versions are hashes of these bytes. For messages known
// only by their descriptors it takes less than half of the time, because it caches the order of fields.
// The message must not have extensions.
func Marshal(m protoreflect.Message) ([]byte, error) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.b, e.set = e.b[:0], e.set[:0]
	if err := e.message(m); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(e.b)), e.b...), nil // an exact copy, because many results are kept
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// An encoder has reusable buffers.
type encoder struct {
	b   []byte
	set []ranked // the set fields of the current message and of the enclosing ones
}

// A ranked is a field that is set.
type ranked struct {
	protoreflect.FieldDescriptor
	protoreflect.Value
	rank int
}

// ranks caches the positions of a message's fields in its encoding, by field index.
var ranks sync.Map // of []int, by message descriptor

func ranksOf(md protoreflect.MessageDescriptor) []int {
	if known, ok := ranks.Load(md); ok {
		return known.([]int)
	}
	fields := make([]protoreflect.FieldDescriptor, md.Fields().Len())
	for i := range fields {
		fields[i] = md.Fields().Get(i)
	}
	// By number, but the fields of oneofs last, as protobuf's encoder does.
	oneof := func(f protoreflect.FieldDescriptor) int {
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			return 1 + o.Index()
		}
		return 0
	}
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int {
		return cmp.Or(cmp.Compare(oneof(a), oneof(b)), cmp.Compare(a.Number(), b.Number()))
	})
	rank := make([]int, len(fields))
	for i, f := range fields {
		rank[f.Index()] = i
	}
	ranks.Store(md, rank)
	return rank
}

func (e *encoder) message(m protoreflect.Message) error {
	md := m.Descriptor()
	if required := md.RequiredNumbers(); required.Len() > 0 {
		for i := range required.Len() {
			if f := md.Fields().ByNumber(required.Get(i)); !m.Has(f) {
				return fmt.Errorf("required field %s not set", f.FullName())
			}
		}
	}
	rank, begin := ranksOf(md), len(e.set)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		e.set = append(e.set, ranked{f, v, rank[f.Index()]})
		for i := len(e.set) - 1; i > begin && e.set[i].rank < e.set[i-1].rank; i-- {
			e.set[i], e.set[i-1] = e.set[i-1], e.set[i]
		}
		return true
	})
	for i, end := begin, len(e.set); i < end; i++ {
		if err := e.field(e.set[i].FieldDescriptor, e.set[i].Value); err != nil {
			return err
		}
	}
	clear(e.set[begin:]) // do not keep values alive
	e.set = e.set[:begin]
	e.b = append(e.b, m.GetUnknown()...)
	return nil
}

func (e *encoder) field(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case f.IsList():
		return e.list(f, v.List())
	case f.IsMap():
		return e.entries(f, v.Map())
	}
	return e.tagged(f, v)
}

func (e *encoder) list(f protoreflect.FieldDescriptor, l protoreflect.List) error {
	if f.IsPacked() && l.Len() > 0 {
		at := e.begin(f.Number())
		for i := range l.Len() {
			if err := e.value(f, l.Get(i)); err != nil {
				return err
			}
		}
		e.end(at)
		return nil
	}
	for i := range l.Len() {
		if err := e.tagged(f, l.Get(i)); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) entries(f protoreflect.FieldDescriptor, m protoreflect.Map) error {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	for _, k := range keys {
		at := e.begin(f.Number())
		if err := e.tagged(f.MapKey(), k.Value()); err != nil {
			return err
		}
		if err := e.tagged(f.MapValue(), m.Get(k)); err != nil {
			return err
		}
		e.end(at)
	}
	return nil
}

func compareKeys(a, b protoreflect.MapKey) int {
	switch x := a.Interface().(type) {
	case bool:
		return cmp.Compare(protowire.EncodeBool(x), protowire.EncodeBool(b.Bool()))
	case int32, int64:
		return cmp.Compare(a.Int(), b.Int())
	case uint32, uint64:
		return cmp.Compare(a.Uint(), b.Uint())
	}
	return cmp.Compare(a.String(), b.String())
}

var wireTypes = [...]protowire.Type{
	protoreflect.BoolKind: protowire.VarintType, protoreflect.EnumKind: protowire.VarintType,
	protoreflect.Int32Kind: protowire.VarintType, protoreflect.Sint32Kind: protowire.VarintType, protoreflect.Uint32Kind: protowire.VarintType,
	protoreflect.Int64Kind: protowire.VarintType, protoreflect.Sint64Kind: protowire.VarintType, protoreflect.Uint64Kind: protowire.VarintType,
	protoreflect.Sfixed32Kind: protowire.Fixed32Type, protoreflect.Fixed32Kind: protowire.Fixed32Type, protoreflect.FloatKind: protowire.Fixed32Type,
	protoreflect.Sfixed64Kind: protowire.Fixed64Type, protoreflect.Fixed64Kind: protowire.Fixed64Type, protoreflect.DoubleKind: protowire.Fixed64Type,
	protoreflect.StringKind: protowire.BytesType, protoreflect.BytesKind: protowire.BytesType, protoreflect.MessageKind: protowire.BytesType,
	protoreflect.GroupKind: protowire.StartGroupType,
}

func (e *encoder) tagged(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	if f.Message() != nil && f.Kind() != protoreflect.GroupKind {
		at := e.begin(f.Number())
		if err := e.message(v.Message()); err != nil {
			return err
		}
		e.end(at)
		return nil
	}
	e.b = protowire.AppendTag(e.b, f.Number(), wireTypes[f.Kind()])
	return e.value(f, v)
}

// value appends a scalar or a group.
func (e *encoder) value(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch f.Kind() {
	case protoreflect.BoolKind:
		e.b = protowire.AppendVarint(e.b, protowire.EncodeBool(v.Bool()))
	case protoreflect.EnumKind:
		e.b = protowire.AppendVarint(e.b, uint64(v.Enum()))
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		e.b = protowire.AppendVarint(e.b, uint64(v.Int()))
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		e.b = protowire.AppendVarint(e.b, protowire.EncodeZigZag(v.Int()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		e.b = protowire.AppendVarint(e.b, v.Uint())
	case protoreflect.Sfixed32Kind:
		e.b = protowire.AppendFixed32(e.b, uint32(v.Int()))
	case protoreflect.Fixed32Kind:
		e.b = protowire.AppendFixed32(e.b, uint32(v.Uint()))
	case protoreflect.FloatKind:
		e.b = protowire.AppendFixed32(e.b, math.Float32bits(float32(v.Float())))
	case protoreflect.Sfixed64Kind:
		e.b = protowire.AppendFixed64(e.b, uint64(v.Int()))
	case protoreflect.Fixed64Kind:
		e.b = protowire.AppendFixed64(e.b, v.Uint())
	case protoreflect.DoubleKind:
		e.b = protowire.AppendFixed64(e.b, math.Float64bits(v.Float()))
	case protoreflect.StringKind:
		if !utf8.ValidString(v.String()) && mustBeUTF8(f) {
			return fmt.Errorf("field %s contains invalid UTF-8", f.FullName())
		}
		e.b = protowire.AppendString(e.b, v.String())
	case protoreflect.BytesKind:
		e.b = protowire.AppendBytes(e.b, v.Bytes())
	case protoreflect.GroupKind:
		if err := e.message(v.Message()); err != nil {
			return err
		}
		e.b = protowire.AppendTag(e.b, f.Number(), protowire.EndGroupType)
	}
	return nil
}

// mustBeUTF8 reports whether a field is of proto3, or of an edition that requires UTF-8.
func mustBeUTF8(f protoreflect.FieldDescriptor) bool {
	e, ok := f.(interface{ EnforceUTF8() bool })
	return !ok || e.EnforceUTF8()
}

// begin starts a field with a length. It reserves one byte for the length, which is usually enough.
func (e *encoder) begin(field protowire.Number) (at int) {
	e.b = append(protowire.AppendTag(e.b, field, protowire.BytesType), 0)
	return len(e.b) - 1
}

// end sets the length of the field that starts at an offset.
func (e *encoder) end(at int) {
	n := len(e.b) - at - 1
	if more := protowire.SizeVarint(uint64(n)) - 1; more > 0 {
		e.b = append(e.b, make([]byte, more)...)
		copy(e.b[at+1+more:], e.b[at+1:])
	}
	protowire.AppendVarint(e.b[:at], uint64(n))
}
