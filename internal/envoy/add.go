package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

var (
	// ErrNoSet is the error of what is no encoded FileDescriptorSet.
	ErrNoSet = errors.New("not an encoded FileDescriptorSet, or an empty one")
	// ErrMissing is that of a set without a file that another one imports.
	ErrMissing = errors.New("which is missing")
)

// Load returns the types of Envoy's API and of the descriptor sets in files. All that
// these have is looked at now, so that nothing is wrong with it later.
func Load(paths ...string) (*Types, error) {
	t := Envoy()
	for _, path := range paths {
		set, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if t, err = t.With(set); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return t, nil
}

// With returns the types that there are and those of a FileDescriptorSet. Where both
// have a file, such as one of Envoy's that the set was compiled with, the one that there
// is stays: it is an error if the other says something else of what both declare.
func (t *Types) With(set []byte) (*Types, error) {
	next := newTypes()
	next.files, next.at = maps.Clone(t.files), maps.Clone(t.at)
	files, err := split(set)
	if err != nil || len(files) == 0 {
		return nil, ErrNoSet
	}
	var added []string
	for _, f := range files {
		path, err := next.add(f)
		if err != nil {
			return nil, err
		}
		if path != "" {
			added = append(added, path)
		}
	}
	for _, path := range added {
		if _, err := next.FindFileByPath(path); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// add adds an encoded file, and returns its path; "" if there is one of that path.
func (x *index) add(file []byte) (path string, err error) {
	h, err := look(file)
	if err != nil || h.path == "" {
		return "", ErrNoSet
	}
	if was := x.files[h.path]; was != nil {
		return "", differ(h.path, was, file)
	}
	for _, name := range h.names() {
		if other, ok := x.at[name]; ok {
			return "", fmt.Errorf("%s declares %s, and so does %s: remove one of them", h.path, name, other)
		}
		x.at[name] = h.path
	}
	x.files[h.path] = file
	return h.path, nil
}

// differ returns an error if two files of one path contradict each other. That one
// declares more than the other, as another version of it does, is none.
func differ(path string, ours, theirs []byte) error {
	a, err := parse(ours)
	if err != nil {
		return err
	}
	b, err := parse(theirs)
	if err != nil {
		return ErrNoSet
	}
	has, wants := shape(a), shape(b)
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		if what, both := has[name]; both && what != wants[name] {
			return fmt.Errorf("%s differs from the built-in %[1]s: %s is %s there, and %s here", path, name, wants[name], what)
		}
	}
	return nil
}

// shape returns what a file says of its fields, by name and by number, and of the values
// of its enums.
func shape(f *descriptorpb.FileDescriptorProto) map[string]string {
	all := map[string]string{}
	enums := func(in protoreflect.FullName, enums []*descriptorpb.EnumDescriptorProto) {
		for _, e := range enums {
			for _, v := range e.Value {
				all[string(in.Append(protoreflect.Name(e.GetName())))+"."+v.GetName()] = fmt.Sprint("number ", v.GetNumber())
			}
		}
	}
	var message func(in protoreflect.FullName, m *descriptorpb.DescriptorProto)
	message = func(in protoreflect.FullName, m *descriptorpb.DescriptorProto) {
		name := in.Append(protoreflect.Name(m.GetName()))
		for _, f := range m.Field {
			what := cmp.Or(f.GetTypeName(), f.GetType().String())
			if f.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED {
				what = "a list of " + what
			}
			all[string(name)+"."+f.GetName()] = fmt.Sprint("number ", f.GetNumber(), ", ", what)
			all[fmt.Sprint("field ", f.GetNumber(), " of ", name)] = f.GetName()
		}
		enums(name, m.EnumType)
		for _, inner := range m.NestedType {
			message(name, inner)
		}
	}
	for _, m := range f.MessageType {
		message(protoreflect.FullName(f.GetPackage()), m)
	}
	enums(protoreflect.FullName(f.GetPackage()), f.EnumType)
	return all
}
