// Package secrets finds what Envoy's API marks as sensitive
// (udpa.annotations.sensitive), wherever it stands: in any type and version, and
// in any google.protobuf.Any whose type is known. It knows fields by their
// descriptors. It reads no file.
package secrets

import (
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Deepest is how many Anys may stand in each other. Each has all the bytes of those
// in it: without a limit n bytes cost n².
const Deepest = 64

// Findings are what stands in a message. Its zero value is nothing.
type Findings struct {
	// Values are the paths of sensitive values, such as
	// "common_tls_context.tls_certificates[0].private_key". A field that says where a
	// value is, such as the name of a file, has none.
	Values []string

	// Certificates are those that the message itself has, not those that it names.
	Certificates []Certificate

	// Unread are the Anys that have not what they say they have.
	Unread []Unread

	// V2 are the messages of v2, the API before v3, that stand in an Any or a TypedStruct.
	V2 []V2

	// TooDeep is the path of an Any inside of more than [Deepest] others, into which
	// nobody looked; "" if there is none.
	TooDeep string
}

// An Unread is an Any whose type is known, and whose value is none of that type.
type Unread struct {
	Path string // of the Any; "." for the message itself
	Type protoreflect.Name
	Err  error
}

// A V2 is a message of v2. No client of v3 takes one.
type V2 struct {
	Path string
	Type protoreflect.FullName
}

// Types find the messages in an Any or a TypedStruct.
type Types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// A Finder finds secrets. It may be used by anyone at any time, as long as nobody
// changes the message that it looks into.
type Finder struct {
	types Types

	// Of the message descriptors that were met: see [Finder.waysOf] and [Finder.leads].
	ways, leading sync.Map
}

// NewFinder returns a finder that knows the types.
func NewFinder(types Types) *Finder { return &Finder{types: types} }

// Find looks into a message. An Any whose type is not known has nothing that is known to
// be sensitive; one that is not what it says counts as sensitive, if what it says may be.
func (f *Finder) Find(m proto.Message) Findings {
	x := finder{Finder: f}
	x.message(m.ProtoReflect())
	return x.Findings
}

// A finder goes through a message. What it finds below a field gets its path when it
// comes back to the field, so that a path costs nothing where nothing is found.
type finder struct {
	*Finder
	Findings
	anys int

	take  func(text string) // is given what is found; nil: nobody is
	blind bool              // not all can be found
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
	for _, fd := range f.waysOf(m.Descriptor()) {
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

// field goes through the messages in a field.
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

// any looks into an Any. What is in there stands below the field that has the Any.
func (f *finder) any(m protoreflect.Message) {
	if f.anys == Deepest {
		f.TooDeep, f.blind = here, true
		return
	}
	md, inner, err := f.unpack(m)
	f.version(md)
	switch {
	case err != nil:
		f.Unread = append(f.Unread, Unread{here, md.Name(), err})
		if f.leads(md) {
			f.Values = append(f.Values, here)
			f.blind = true
		}
	case inner != nil:
		f.anys++
		f.message(inner)
		f.anys--
	}
}

// version notes of which API a message is; nil is of none that is known.
func (f *finder) version(md protoreflect.MessageDescriptor) {
	if md != nil && ofV2(md) {
		f.V2 = append(f.V2, V2{here, md.FullName()})
	}
}

// here is a path that has no field yet.
const here = "."

// A mark is how much was found at some time.
type mark struct {
	values, certificates, unread, v2 int
	deep                             bool
}

func (f *finder) mark() mark {
	return mark{len(f.Values), len(f.Certificates), len(f.Unread), len(f.V2), f.TooDeep != ""}
}

// prefix puts a field before the paths of what was found since.
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

// isValue reports whether what is in a sensitive field is sensitive itself. A
// DataSource may say where a value is, and have none.
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

// inline reports whether a message of a sensitive field has a value: all have, but a
// DataSource that is empty or names another place.
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

// unpack returns the message in an Any and its type: nothing if that is not known, and an
// error if the message is none.
func (f *Finder) unpack(m protoreflect.Message) (protoreflect.MessageDescriptor, protoreflect.Message, error) {
	fields := m.Descriptor().Fields()
	typ, err := f.types.FindMessageByURL(m.Get(fields.ByName("type_url")).String())
	if err != nil {
		return nil, nil, nil //nolint:nilerr // whatever it is
	}
	inner := typ.New()
	if err := (proto.UnmarshalOptions{Resolver: f.types}).Unmarshal(m.Get(fields.ByName("value")).Bytes(), inner.Interface()); err != nil {
		return typ.Descriptor(), nil, err
	}
	return typ.Descriptor(), inner, nil
}
