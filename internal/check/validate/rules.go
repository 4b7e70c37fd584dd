package validate

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// A compiler compiles the rules of one field to checks.
type compiler struct {
	v       *Validator
	unknown *[]string
}

// field compiles the FieldRules of a field.
func (c compiler) field(f protoreflect.FieldDescriptor, rules protoreflect.Message) fieldCheck {
	check := fieldCheck{field: f, unset: !f.HasPresence()}
	if m := sub(rules, "message"); m != nil {
		check.required = flag(m, "required")
		check.skip = flag(m, "skip")
	}
	kind := rules.WhichOneof(rules.Descriptor().Oneofs().ByName("type"))
	if kind == nil {
		return check
	}
	r := rules.Get(kind).Message()
	check.empty = flag(r, "ignore_empty")
	switch kind.Name() {
	case "repeated":
		if f.IsList() {
			c.list(f, r, &check)
		}
	case "map":
		if f.IsMap() {
			c.pairs(f, r, &check)
		}
	case "any", "duration", "timestamp":
		check.required = check.required || flag(r, "required")
		check.value = c.scalar(f, rules)
		// protoc-gen-validate ignores messages inside a field with AnyRules if the field is not an Any.
		check.skip = check.skip || kind.Name() == "any" && f.Message().FullName() != "google.protobuf.Any"
	default:
		check.value = c.scalar(f, rules)
		if f.Message() != nil {
			check.unset = false
			if check.empty {
				check.value = unlessEmpty(check.value)
			}
		}
	}
	return check
}

// list compiles RepeatedRules.
func (c compiler) list(f protoreflect.FieldDescriptor, r protoreflect.Message, check *fieldCheck) {
	c.noteUnknown(r, "min_items", "max_items", "unique", "items", "ignore_empty")
	least, most := bounds(r, "min_items", "max_items")
	check.unique = flag(r, "unique") && f.Message() == nil
	check.unset = least != nil
	check.value = func(v protoreflect.Value) string { return checkCount("item", uint64(v.List().Len()), least, most) }
	if items := sub(r, "items"); items != nil {
		check.each = c.scalar(f, items)
	}
}

// pairs compiles MapRules.
func (c compiler) pairs(f protoreflect.FieldDescriptor, r protoreflect.Message, check *fieldCheck) {
	c.noteUnknown(r, "min_pairs", "max_pairs", "keys", "values", "ignore_empty", "no_sparse")
	least, most := bounds(r, "min_pairs", "max_pairs")
	check.unset = least != nil
	check.value = func(v protoreflect.Value) string { return checkCount("pair", uint64(v.Map().Len()), least, most) }
	if keys := sub(r, "keys"); keys != nil {
		check.key = c.scalar(f.MapKey(), keys)
	}
	if values := sub(r, "values"); values != nil {
		check.each = c.scalar(f.MapValue(), values)
	}
}

// scalar compiles the FieldRules of one value; nil if there are none.
func (c compiler) scalar(f protoreflect.FieldDescriptor, rules protoreflect.Message) check {
	kind := rules.WhichOneof(rules.Descriptor().Oneofs().ByName("type"))
	if kind == nil {
		return nil
	}
	r := rules.Get(kind).Message()
	var own check
	switch kind.Name() {
	case "float", "double":
		own = number(c, r, protoreflect.Value.Float)
	case "int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64":
		own = number(c, r, protoreflect.Value.Int)
	case "uint32", "uint64", "fixed32", "fixed64":
		own = number(c, r, protoreflect.Value.Uint)
	case "duration":
		return number(c, r, durationOf)
	case "bool":
		own = c.boolean(r)
	case "string":
		own = c.text(r)
	case "bytes":
		own = c.bytes(r)
	case "enum":
		own = c.enum(f, r)
	case "any":
		return c.any(r)
	case "timestamp":
		c.noteUnknown(r, "required")
		return nil
	default:
		*c.unknown = append(*c.unknown, string(kind.Name()))
		return nil
	}
	if f.Message() == nil {
		return own
	}
	value := f.Message().Fields().ByName("value") // the value of a wrapper message
	if value == nil {
		*c.unknown = append(*c.unknown, string(kind.Name())+" of a message")
		return nil
	}
	return func(v protoreflect.Value) string { return own(v.Message().Get(value)) }
}

// noteUnknown records rules that are set but not implemented.
func (c compiler) noteUnknown(r protoreflect.Message, names ...protoreflect.Name) {
	r.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		for _, n := range names {
			if f.Name() == n {
				return true
			}
		}
		*c.unknown = append(*c.unknown, string(f.FullName()))
		return true
	})
}

// unlessEmpty returns a check that accepts a wrapper of the zero value.
func unlessEmpty(own check) check {
	return func(v protoreflect.Value) string {
		m := v.Message()
		if f := m.Descriptor().Fields().ByName("value"); f != nil && !m.Has(f) {
			return ""
		}
		return own(v)
	}
}

func sub(m protoreflect.Message, field protoreflect.Name) protoreflect.Message {
	f := m.Descriptor().Fields().ByName(field)
	if f == nil || !m.Has(f) {
		return nil
	}
	return m.Get(f).Message()
}

func flag(m protoreflect.Message, field protoreflect.Name) bool {
	f := m.Descriptor().Fields().ByName(field)
	return f != nil && m.Get(f).Bool()
}

// bounds returns a lower and an upper bound; nil means no bound.
func bounds(r protoreflect.Message, low, high protoreflect.Name) (least, most *uint64) {
	return unsigned(r, low), unsigned(r, high)
}

func unsigned(r protoreflect.Message, field protoreflect.Name) *uint64 {
	f := r.Descriptor().Fields().ByName(field)
	if f == nil || !r.Has(f) {
		return nil
	}
	return new(r.Get(f).Uint())
}

// checkCount returns the mistake in a number of items; "" if there is none.
func checkCount(what string, n uint64, least, most *uint64) string {
	switch {
	case least != nil && n < *least:
		return fmt.Sprintf("must have at least %s"+quoted+"%d", counted(*least, what), n)
	case most != nil && n > *most:
		return fmt.Sprintf("must have at most %s"+quoted+"%d", counted(*most, what), n)
	}
	return ""
}

func counted(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}
