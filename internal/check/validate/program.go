package validate

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

// Options of protoc-gen-validate, by their number in google.protobuf.FieldOptions, OneofOptions and
// MessageOptions. They are unknown fields there, because this program does not link the extensions.
const (
	fieldRules      = 1071
	oneofRequired   = 1071
	messageDisabled = 1071
	messageIgnored  = 1072
)

// A program is the compiled rules of a message type. It does not change after compile.
type program struct {
	checks   []fieldCheck
	oneofs   []protoreflect.OneofDescriptor // one field of each must be set
	own      func(*walk, protoreflect.Message)
	below    []bool // by field index: whether to check the messages in the field
	disabled bool

	unknown []string // rules that this package does not implement
}

// program returns the program of a message type, compiled at its first use.
func (v *Validator) program(md protoreflect.MessageDescriptor) *program {
	if p, ok := v.programs.Load(md); ok {
		return p.(*program)
	}
	p, _ := v.programs.LoadOrStore(md, v.compile(md))
	return p.(*program)
}

func (v *Validator) compile(md protoreflect.MessageDescriptor) *program {
	p := &program{own: observedRules[md.FullName()], below: make([]bool, md.Fields().Len())}
	if set(md.Options(), messageDisabled) || set(md.Options(), messageIgnored) {
		p.disabled = true
		return p
	}
	for i := range md.Oneofs().Len() {
		if o := md.Oneofs().Get(i); set(o.Options(), oneofRequired) {
			p.oneofs = append(p.oneofs, o)
		}
	}
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		p.below[i] = hasMessages(f) && f.FullName() != forGRPC
		raw := option(f.Options(), fieldRules)
		if raw == nil || v.rules == nil {
			continue
		}
		rules := v.rules.New()
		if proto.Unmarshal(raw, rules.Interface()) != nil {
			p.unknown = append(p.unknown, string(f.Name()))
			continue
		}
		c := compiler{v: v, unknown: &p.unknown}
		check := c.field(f, rules)
		if check.skip {
			p.below[i] = false
		}
		if check.value != nil || check.required || check.each != nil || check.key != nil {
			p.checks = append(p.checks, check)
		}
	}
	return p
}

// forGRPC is the part of a listener that only gRPC clients read. They do not need all fields that
// Envoy's API requires, such as stat_prefix.
const forGRPC = "envoy.config.listener.v3.Listener.api_listener"

// hasMessages reports whether a field holds messages.
func hasMessages(f protoreflect.FieldDescriptor) bool {
	if f.IsMap() {
		f = f.MapValue()
	}
	return f.Message() != nil
}

// option returns a message in options; nil if it is not set.
func option(o proto.Message, number protowire.Number) (value []byte) {
	each(o, number, func(typ protowire.Type, v []byte) {
		if typ == protowire.BytesType {
			v, _ = protowire.ConsumeBytes(v)
			value = append(append([]byte{}, value...), v...)
		}
	})
	return value
}

// set reports whether a flag in options is true.
func set(o proto.Message, number protowire.Number) (yes bool) {
	each(o, number, func(typ protowire.Type, v []byte) {
		if typ == protowire.VarintType {
			n, _ := protowire.ConsumeVarint(v)
			yes = n != 0
		}
	})
	return yes
}

// each calls f with each value of a field of options, by number. The program need not link the
// extension.
func each(o proto.Message, number protowire.Number, f func(protowire.Type, []byte)) {
	b, err := proto.Marshal(o)
	if err != nil {
		return
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return
		}
		if num == number {
			f(typ, b[:n])
		}
		b = b[n:]
	}
}

// A check returns the mistake in a value, "" if there is none.
type check func(v protoreflect.Value) (wrong string)

// A fieldCheck checks a field of a message, also if the field is unset.
type fieldCheck struct {
	field    protoreflect.FieldDescriptor
	required bool  // the field must be set
	value    check // checks the whole value; nil: no check
	empty    bool  // do not check an empty value
	each     check // checks each item of a list, or each value of a map; nil: no check
	key      check // checks each key of a map; nil: no check
	unset    bool  // check an unset field without presence, too
	unique   bool  // the items of the list must differ
	skip     bool  // do not check messages inside the field
}

func (c *fieldCheck) run(w *walk, m protoreflect.Message) {
	f := c.field
	has := m.Has(f)
	if !has && f.ContainingOneof() != nil {
		return // another field of the oneof is set, or no field
	}
	if c.required && !has {
		w.report(findings.MissingField, string(f.Name()), "", "is required in %s", m.Descriptor().Name())
	}
	if !has && (!c.unset || c.empty) {
		return
	}
	v := m.Get(f)
	if c.value != nil {
		if wrong := c.value(v); wrong != "" {
			w.reportRule(f, string(f.Name()), wrong)
		}
	}
	last := len(w.at)
	w.at = append(w.at, step{field: f})
	defer func() { w.at = w.at[:last] }()
	reportAny := func(wrong string) {
		if wrong != "" {
			w.reportRule(f, "", wrong)
		}
	}
	switch {
	case f.IsList() && (c.each != nil || c.unique):
		seen := map[any]bool{}
		for i := range v.List().Len() {
			w.at[last].index = i
			item := v.List().Get(i)
			if c.each != nil {
				reportAny(c.each(item))
			}
			if c.unique && isDuplicate(seen, item) {
				reportAny("is in the list twice")
			}
		}
	case f.IsMap() && (c.each != nil || c.key != nil):
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			w.at[last].key = k
			if c.key != nil {
				if wrong := c.key(k.Value()); wrong != "" {
					reportAny("the key " + wrong)
				}
			}
			if c.each != nil {
				reportAny(c.each(v))
			}
			return true
		})
	}
}

// isDuplicate reports whether a value is in seen, and adds it.
func isDuplicate(seen map[any]bool, v protoreflect.Value) bool {
	k := v.Interface()
	if b, ok := k.([]byte); ok {
		k = string(b)
	}
	was := seen[k]
	seen[k] = true
	return was
}
