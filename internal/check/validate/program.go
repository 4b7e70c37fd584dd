package validate

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

// Options of protoc-gen-validate, by their number in google.protobuf.FieldOptions,
// OneofOptions and MessageOptions. They stay unknown fields there.
const (
	fieldRules      = 1071
	oneofRequired   = 1071
	messageDisabled = 1071
	messageIgnored  = 1072
)

// A program is what is to be looked at in the messages of a type. It does not change
// once made.
type program struct {
	checks   []fieldCheck
	oneofs   []protoreflect.OneofDescriptor // of which one field must be set
	own      func(*walk, protoreflect.Message)
	below    []bool // by index of the field: it has messages to look into
	disabled bool

	unknown []string // kinds of rules that nobody has written code for
}

// program returns that of a type of messages, which is made once.
func (v *Validator) program(md protoreflect.MessageDescriptor) *program {
	if p, ok := v.programs.Load(md); ok {
		return p.(*program)
	}
	p, _ := v.programs.LoadOrStore(md, v.compile(md))
	return p.(*program)
}

func (v *Validator) compile(md protoreflect.MessageDescriptor) *program {
	p := &program{own: own[md.FullName()], below: make([]bool, md.Fields().Len())}
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
		p.below[i] = looked(f) && f.FullName() != forGRPC
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

// forGRPC is what a gRPC client reads of a listener, and Envoy does not over xDS. It does
// not want all that Envoy's API demands, such as a stat_prefix.
const forGRPC = "envoy.config.listener.v3.Listener.api_listener"

// looked reports whether a field has messages.
func looked(f protoreflect.FieldDescriptor) bool {
	if f.IsMap() {
		f = f.MapValue()
	}
	return f.Message() != nil
}

// option returns a message in options, nil if it is not there.
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

// each calls f with each value of a field of options, whether this program links the
// extension or not.
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
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return
		}
		if num == number {
			f(typ, b[:n])
		}
		b = b[n:]
	}
}

// A check says what is wrong with a value, "" if nothing is.
type check func(v protoreflect.Value) (wrong string)

// A fieldCheck looks at a field of a message, which need not be set.
type fieldCheck struct {
	field    protoreflect.FieldDescriptor
	required bool  // to be set
	value    check // of the whole; nil: none
	empty    bool  // not looked at if it is empty
	each     check // of each item of a list, or of each value of a map; nil: none
	key      check // of each key of a map; nil: none
	unset    bool  // value looks at a field without presence though it is not set
	unique   bool  // no item of a list is there twice
	skip     bool  // nobody looks below
}

func (c *fieldCheck) run(w *walk, m protoreflect.Message) {
	f := c.field
	has := m.Has(f)
	if !has && f.ContainingOneof() != nil {
		return // another one is chosen, or none
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
			w.breaks(f, string(f.Name()), wrong)
		}
	}
	last := len(w.at)
	w.at = append(w.at, step{field: f})
	defer func() { w.at = w.at[:last] }()
	tell := func(wrong string) {
		if wrong != "" {
			w.breaks(f, "", wrong)
		}
	}
	switch {
	case f.IsList() && (c.each != nil || c.unique):
		seen := map[any]bool{}
		for i := range v.List().Len() {
			w.at[last].index = i
			item := v.List().Get(i)
			if c.each != nil {
				tell(c.each(item))
			}
			if c.unique && again(seen, item) {
				tell("is in the list twice")
			}
		}
	case f.IsMap() && (c.each != nil || c.key != nil):
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			w.at[last].key = k
			if c.key != nil {
				if wrong := c.key(k.Value()); wrong != "" {
					tell("the key " + wrong)
				}
			}
			if c.each != nil {
				tell(c.each(v))
			}
			return true
		})
	}
}

// again reports whether a value was seen before.
func again(seen map[any]bool, v protoreflect.Value) bool {
	k := v.Interface()
	if b, ok := k.([]byte); ok {
		k = string(b)
	}
	was := seen[k]
	seen[k] = true
	return was
}
