// Package secrets finds the values that Envoy's API marks as sensitive (udpa.annotations.sensitive). It
// finds them in messages of any type or version, and inside each google.protobuf.Any of known type. It
// identifies fields by their descriptors and reads no files.
package secrets

import (
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// MaxAnyDepth is the maximum nesting of Anys. Each Any contains the bytes of all Anys inside it, so without
// a limit n bytes cost n².
const MaxAnyDepth = 64

// MaxMessages is the limit of protobuf's decoders for messages inside each other, except in Go. The content of an Any is
// decoded by itself. An entry of a map is a message, and so is each value of a Struct.
const MaxMessages = 100

// Findings are the results of a search. The zero value has none.
type Findings struct {
	// Values are the paths of sensitive values, such as
	// "common_tls_context.tls_certificates[0].private_key". A field that only names a location, such as
	// a file name, is not a value.
	Values []string

	// Certificates are the certificates inside the message, not those in files that it names.
	Certificates []Certificate

	// Unread are the Anys whose content does not decode as their type.
	Unread []Unread

	// V2 are the messages of the v2 API in an Any or a TypedStruct.
	V2 []V2

	// TooDeep is the path of an Any nested in more than [MaxAnyDepth] others, which was not searched; "" if
	// there is none.
	TooDeep string
}

// An Unread is an Any of known type whose value does not decode as that type.
type Unread struct {
	Path string // path of the Any; "." for the message itself
	Type protoreflect.Name
	Err  error
}

// A V2 is a message of the v2 API. v3 clients reject it.
type V2 struct {
	Path string
	Type protoreflect.FullName
}

// Types finds the message types of Anys and TypedStructs.
type Types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// A Finder finds secrets. It is safe for concurrent use, as long as no goroutine changes the searched
// message.
type Finder struct {
	types Types

	// Caches by message descriptor: see [Finder.searchFields] and [Finder.needsSearch].
	searchedFields, searchable sync.Map
}

// NewFinder returns a Finder that uses types.
func NewFinder(types Types) *Finder { return &Finder{types: types} }

// Find searches a message. An Any of unknown type counts as not sensitive. An Any whose content does
// not decode counts as sensitive if its type may contain a secret.
func (f *Finder) Find(m proto.Message) Findings {
	x := finder{Finder: f}
	x.message(m.ProtoReflect())
	return x.Findings
}

// A finder searches one message. Paths are prefixed on the way back up, so a field without findings
// costs nothing.
type finder struct {
	*Finder
	Findings
	anys int

	take       func(text string) // receives the sensitive texts; nil: not needed
	incomplete bool              // part of the message could not be searched
}

func (f *finder) message(m protoreflect.Message) {
	switch name := m.Descriptor().FullName(); {
	case name == anyName:
		f.any(m)
		return
	case typedStructs[name]:
		f.typedStruct(m)
		return
	case tlsCertificates[name]:
		f.certificate(certificate(m))
	case validations[name]:
		f.certificate(authorities(m))
	}
	for _, fd := range f.searchFields(m.Descriptor()) {
		if !m.Has(fd) {
			continue
		}
		v := m.Get(fd)
		if Marked(fd) && isValue(fd, v) {
			f.Values = append(f.Values, string(fd.Name()))
			f.texts(fd, v)
		} else if fd.Message() != nil {
			f.field(fd, v)
		}
	}
}

func (f *finder) certificate(c *Certificate) {
	if c != nil {
		f.Certificates = append(f.Certificates, *c)
	}
}

// field searches the messages in a field.
func (f *finder) field(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	name := string(fd.Name())
	each := func(v protoreflect.Value, at func() string) {
		below := f.mark()
		f.message(v.Message())
		if f.mark() != below {
			f.prefix(below, name+at())
		}
	}
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() != nil {
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				each(v, func() string { return "[" + strconv.Quote(k.String()) + "]" })
				return true
			})
		}
	case fd.IsList():
		for i := range v.List().Len() {
			each(v.List().Get(i), func() string { return "[" + strconv.Itoa(i) + "]" })
		}
	default:
		each(v, func() string { return "" })
	}
}

// any searches the message in an Any. Its path continues the path of the Any's field.
func (f *finder) any(m protoreflect.Message) {
	if f.anys == MaxAnyDepth {
		f.TooDeep, f.incomplete = here, true
		return
	}
	md, inner, err := f.unpack(m)
	f.version(md)
	switch {
	case err != nil:
		f.Unread = append(f.Unread, Unread{here, md.Name(), err})
		if f.needsSearch(md) {
			f.Values = append(f.Values, here)
			f.incomplete = true
		}
	case inner != nil:
		f.anys++
		f.message(inner)
		f.anys--
	}
}

// version records a message of the v2 API; md is nil if the type is unknown.
func (f *finder) version(md protoreflect.MessageDescriptor) {
	if md != nil && ofV2(md) {
		f.V2 = append(f.V2, V2{here, md.FullName()})
	}
}

// here is the path of the current message, before a field is prefixed.
const here = "."

// A mark counts the findings at some point of the search.
type mark struct {
	values, certificates, unread, v2 int
	deep                             bool
}

func (f *finder) mark() mark {
	return mark{len(f.Values), len(f.Certificates), len(f.Unread), len(f.V2), f.TooDeep != ""}
}

// prefix prepends a field to the paths of the findings since a mark.
func (f *finder) prefix(since mark, field string) {
	for i := since.values; i < len(f.Values); i++ {
		f.Values[i] = join(field, f.Values[i])
	}
	for i := since.certificates; i < len(f.Certificates); i++ {
		c := &f.Certificates[i]
		c.Path = join(field, c.Path)
	}
	for i := since.unread; i < len(f.Unread); i++ {
		u := &f.Unread[i]
		u.Path = join(field, u.Path)
	}
	for i := since.v2; i < len(f.V2); i++ {
		v := &f.V2[i]
		v.Path = join(field, v.Path)
	}
	if !since.deep && f.TooDeep != "" {
		f.TooDeep = join(field, f.TooDeep)
	}
}

func join(field, path string) string {
	switch {
	case path == "" || path == here:
		return field
	case field == here:
		return path
	case path[0] == '[':
		return field + path
	}
	return field + "." + path
}

// isValue reports whether the content of a sensitive field is sensitive. A DataSource may only name the
// location of its value.
func isValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch {
	case fd.IsMap():
		values := fd.MapValue()
		if values.Message() == nil {
			return true
		}
		found := false
		v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			found = inline(v.Message())
			return !found
		})
		return found
	case fd.Message() == nil:
		return true
	case fd.IsList():
		for i := range v.List().Len() {
			if inline(v.List().Get(i).Message()) {
				return true
			}
		}
		return false
	}
	return inline(v.Message())
}

// inline reports whether a message in a sensitive field contains a value. Only a DataSource may not: it
// can be empty or name a location.
func inline(m protoreflect.Message) bool {
	if !dataSources[m.Descriptor().FullName()] {
		return true
	}
	set := m.WhichOneof(m.Descriptor().Oneofs().ByName("specifier"))
	if set == nil {
		return len(m.GetUnknown()) > 0
	}
	return set.Name() != "filename" && set.Name() != "environment_variable"
}

// unpack returns the message in an Any and its type. If the type is unknown, both are nil; if the
// content does not decode, it returns an error.
func (f *Finder) unpack(m protoreflect.Message) (protoreflect.MessageDescriptor, protoreflect.Message, error) {
	fields := m.Descriptor().Fields()
	typ, err := f.types.FindMessageByURL(m.Get(fields.ByName("type_url")).String())
	if err != nil {
		return nil, nil, nil //nolint:nilerr // an unknown type is not an error
	}
	inner := typ.New()
	if err := (proto.UnmarshalOptions{Resolver: f.types, RecursionLimit: MaxMessages + 1}).Unmarshal(m.Get(fields.ByName("value")).Bytes(), inner.Interface()); err != nil {
		return typ.Descriptor(), nil, err
	}
	return typ.Descriptor(), inner, nil
}
