package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

const (
	// deepest limits the nesting of compared messages, because a client can send very deep ones.
	deepest = 100

	// longest is the maximum number of bytes shown of a value.
	longest = 200

	// most is the maximum number of fields shown of one resource.
	most = 200
)

// fields returns the differences of two messages.
func fields(types *envoy.Types, a, b proto.Message) []Field {
	w := walker{types: types}
	switch {
	case a == nil || b == nil:
		if (a == nil) != (b == nil) {
			w.note("", "", "")
		}
	case a.ProtoReflect().Descriptor().FullName() != b.ProtoReflect().Descriptor().FullName():
		w.note("", string(a.ProtoReflect().Descriptor().FullName()), string(b.ProtoReflect().Descriptor().FullName()))
	default:
		w.message("", a.ProtoReflect(), b.ProtoReflect(), 0)
	}
	return w.all
}

// A walker compares two messages of a type.
type walker struct {
	types *envoy.Types
	all   []Field
}

func (w *walker) note(path, from, to string) {
	switch {
	case len(w.all) < most:
		w.all = append(w.all, Field{Path: strings.TrimPrefix(path, "."), From: from, To: to})
	case len(w.all) == most:
		w.all = append(w.all, Field{Path: "(more fields differ)"})
	}
}

func (w *walker) message(path string, a, b protoreflect.Message, deep int) {
	if len(w.all) > most {
		return
	}
	if deep > deepest {
		if !proto.Equal(a.Interface(), b.Interface()) {
			const what = "(too deep to be shown)"
			w.note(path, what, what)
		}
		return
	}
	switch name := a.Descriptor().FullName(); {
	case name == "google.protobuf.Any":
		w.any(path, a, b, deep)
		return
	case name.Parent() == "google.protobuf": // shown in their usual text form
		if !proto.Equal(a.Interface(), b.Interface()) {
			w.note(path, w.text(a), w.text(b))
		}
		return
	}
	fds := a.Descriptor().Fields()
	for i := range fds.Len() {
		fd := fds.Get(i)
		in := path + "." + string(fd.Name())
		switch {
		case !a.Has(fd) && !b.Has(fd):
		case fd.IsMap():
			w.entries(in, fd, a.Get(fd).Map(), b.Get(fd).Map(), deep)
		case fd.IsList():
			w.list(in, fd, a.Get(fd).List(), b.Get(fd).List(), deep)
		default:
			w.value(in, fd, a.Get(fd), b.Get(fd), a.Has(fd), b.Has(fd), deep)
		}
	}
}

// any compares the content of two Anys if both have the same known type.
func (w *walker) any(path string, a, b protoreflect.Message, deep int) {
	url := func(m protoreflect.Message) string {
		return m.Get(m.Descriptor().Fields().ByName("type_url")).String()
	}
	x, y := w.unpacked(a), w.unpacked(b)
	switch {
	case url(a) != url(b):
		w.note(path+".@type", url(a), url(b))
	case x != nil && y != nil:
		w.message(path, x, y, deep+1)
	case !proto.Equal(a.Interface(), b.Interface()):
		w.note(path, "("+url(a)+")", "("+url(b)+", other content)")
	}
}

func (w *walker) unpacked(m protoreflect.Message) protoreflect.Message {
	fds := m.Descriptor().Fields()
	mt, err := w.types.FindMessageByURL(m.Get(fds.ByName("type_url")).String())
	if err != nil {
		return nil
	}
	inner := mt.New()
	if (proto.UnmarshalOptions{Resolver: w.types}).Unmarshal(m.Get(fds.ByName("value")).Bytes(), inner.Interface()) != nil {
		return nil
	}
	return inner
}

func (w *walker) value(path string, fd protoreflect.FieldDescriptor, a, b protoreflect.Value, had, has bool, deep int) {
	if fd.Message() != nil && had && has {
		w.message(path, a.Message(), b.Message(), deep+1)
		return
	}
	if had != has || !a.Equal(b) {
		w.note(path, w.format(fd, a, had), w.format(fd, b, has))
	}
}

// list compares a list of messages by name if all have names, else by index.
func (w *walker) list(path string, fd protoreflect.FieldDescriptor, a, b protoreflect.List, deep int) {
	if fd.Message() == nil {
		if !protoreflect.ValueOfList(a).Equal(protoreflect.ValueOfList(b)) {
			w.note(path, w.formatList(fd, a), w.formatList(fd, b))
		}
		return
	}
	was, is := namesOf(a), namesOf(b)
	if was == nil || is == nil {
		for i := range max(a.Len(), b.Len()) {
			at := func(l protoreflect.List) (protoreflect.Value, bool) {
				if i < l.Len() {
					return l.Get(i), true
				}
				return protoreflect.Value{}, false
			}
			x, had := at(a)
			y, has := at(b)
			w.value(path+"["+strconv.Itoa(i)+"]", fd, x, y, had, has, deep)
		}
		return
	}
	for i, name := range was {
		if slices.Index(is, name) < 0 {
			w.value(named(path, name), fd, a.Get(i), protoreflect.Value{}, true, false, deep)
		}
	}
	for i, name := range is {
		j := slices.Index(was, name)
		if j < 0 {
			w.value(named(path, name), fd, protoreflect.Value{}, b.Get(i), false, true, deep)
		} else {
			w.value(named(path, name), fd, a.Get(j), b.Get(i), true, true, deep)
		}
	}
	kept := func(names, of []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(of, n) })
	}
	if x, y := kept(was, is), kept(is, was); !slices.Equal(x, y) { // the order often matters: the first match wins
		w.note(path+" (order)", textutil.Head(strings.Join(x, ", "), longest), textutil.Head(strings.Join(y, ", "), longest))
	}
}

func named(path, name string) string {
	return path + "[" + strconv.Quote(textutil.Head(name, longest)) + "]"
}

// manyNamed is the maximum length of a list that is compared by name. The comparison takes quadratic
// time.
const manyNamed = 2000

// namesOf returns the names of the messages in a list; nil if a name is missing or not unique.
func namesOf(l protoreflect.List) (names []string) {
	had := map[string]bool{}
	if l.Len() > manyNamed {
		return nil
	}
	for i := range l.Len() {
		m := l.Get(i).Message()
		fd := m.Descriptor().Fields().ByName("name")
		if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
			return nil
		}
		name := m.Get(fd).String()
		if name == "" || had[name] {
			return nil
		}
		had[name] = true
		names = append(names, name)
	}
	if names == nil {
		names = []string{}
	}
	return names
}

func (w *walker) entries(path string, fd protoreflect.FieldDescriptor, a, b protoreflect.Map, deep int) {
	keys := map[string]protoreflect.MapKey{}
	for _, m := range []protoreflect.Map{a, b} {
		m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys[k.String()] = k
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		k := keys[name]
		w.value(named(path, name), fd.MapValue(), a.Get(k), b.Get(k), a.Has(k), b.Has(k), deep)
	}
}

// format formats a value; "" means not set.
func (w *walker) format(fd protoreflect.FieldDescriptor, v protoreflect.Value, set bool) string {
	switch {
	case !set:
		return ""
	case fd.Message() != nil:
		return w.text(v.Message())
	case fd.Kind() == protoreflect.EnumKind:
		if e := fd.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
	case fd.Kind() == protoreflect.BytesKind:
		return fmt.Sprintf("(%d bytes)", len(v.Bytes()))
	case fd.Kind() == protoreflect.StringKind:
		return textutil.Head(strconv.Quote(v.String()), longest)
	}
	return fmt.Sprint(v.Interface())
}

func (w *walker) formatList(fd protoreflect.FieldDescriptor, l protoreflect.List) string {
	if l.Len() == 0 {
		return ""
	}
	var all []string
	for i := range min(l.Len(), 20) {
		all = append(all, w.format(fd, l.Get(i), true))
	}
	if n := l.Len() - len(all); n > 0 {
		all = append(all, fmt.Sprintf("%d more", n))
	}
	return textutil.Head("["+strings.Join(all, ", ")+"]", longest)
}

// text returns a message as JSON on one line.
func (w *walker) text(m protoreflect.Message) string {
	b, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: w.types}.Marshal(m.Interface())
	if err != nil {
		return "(a message)"
	}
	var line bytes.Buffer
	if json.Compact(&line, b) != nil { // protojson adds spaces at random
		return "(a message)"
	}
	return textutil.Head(strings.Trim(line.String(), `"`), longest)
}
