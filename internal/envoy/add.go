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
	// ErrNoSet reports input that is not an encoded FileDescriptorSet.
	ErrNoSet = errors.New("not an encoded FileDescriptorSet, or an empty one")
	// ErrMissing reports a set without a file that another file imports.
	ErrMissing = errors.New("which is missing")
)

// Load returns the types of Envoy's API and of the descriptor sets in files. It checks the sets
// completely, so later use cannot fail.
func Load(paths ...string) (*Types, error) {
	t := Envoy()
	for _, path := range paths {
		set, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		t, err = t.With(set)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return t, nil
}

// LoadUsable is like [Load], but leaves out unusable files: a set that it cannot read, and in a set each file that
// contradicts another file or lacks an import. The errors name these files and the reasons.
func LoadUsable(paths ...string) (t *Types, left []error) {
	t = Envoy()
	for _, path := range paths {
		set, err := os.ReadFile(path)
		if err != nil {
			left = append(left, err)
			continue
		}
		next, bad := t.withUsable(set)
		t = next
		for _, err := range bad {
			left = append(left, fmt.Errorf("%s: %w", path, err))
		}
	}
	return t, left
}

// With returns the types of t together with those of a FileDescriptorSet. If both have a file, such as
// an Envoy file that the set was compiled with, the file of t stays. With returns an error if the two
// contradict each other.
func (t *Types) With(set []byte) (*Types, error) {
	next, left := t.withUsable(set)
	if len(left) > 0 {
		return nil, left[0]
	}
	return next, nil
}

// withUsable is like [Types.With], but leaves out files that cannot be used.
func (t *Types) withUsable(set []byte) (next *Types, left []error) {
	files, err := split(set)
	if err != nil || len(files) == 0 {
		return t, []error{ErrNoSet}
	}
	for {
		next = newTypes()
		next.files, next.at = maps.Clone(t.files), maps.Clone(t.at)
		var added []string
		usable, bad := files[:0:0], len(left)
		for _, f := range files {
			path, err := next.add(f)
			if err != nil {
				left = append(left, err)
				continue
			}
			usable = append(usable, f)
			added = append(added, path)
		}
		files = usable[:0:0]
		for i, path := range added {
			if path != "" {
				if _, err := next.FindFileByPath(path); err != nil {
					left = append(left, err)
					continue
				}
			}
			files = append(files, usable[i])
		}
		if len(left) == bad {
			return next, left
		}
	}
}

// add adds an encoded file and returns its path; "" if that path exists. An error changes nothing.
func (x *index) add(file []byte) (path string, err error) {
	h, err := scan(file)
	if err != nil || h.path == "" {
		return "", ErrNoSet
	}
	if was := x.files[h.path]; was != nil {
		return "", differ(h.path, was, file)
	}
	names := h.names()
	for i, name := range names {
		if other, ok := x.at[name]; ok {
			for _, own := range names[:i] {
				delete(x.at, own)
			}
			return "", fmt.Errorf("%s declares %s, and so does %s: remove one of them", h.path, name, other)
		}
		x.at[name] = h.path
	}
	x.files[h.path] = file
	return h.path, nil
}

// differ returns an error if two files of one path contradict each other. One may declare more than the
// other, like a newer version.
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

// shape describes the fields of a file by name and by number, and the values of its enums.
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
