package xds

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Check returns an error if the resource cannot be stored. The error names the resource if it has a
// name. Nil and the zero value are errors. Check does not look at the body.
func (r *Resource) Check() error {
	switch {
	case r == nil:
		return errors.New("a resource is nil")
	case r.Stamp == nil:
		return errors.New("a resource is empty: make it by NewResource")
	case r.Name == "":
		return errors.New("a resource has no name")
	case r.Name == Wildcard:
		return errors.New(`the name "*" is reserved: it subscribes to all resources`)
	case !utf8.ValidString(r.Name):
		return fmt.Errorf("name %q is not UTF-8", r.Name)
	case CanonicalName(r.Name) != r.Name:
		return fmt.Errorf("name %q is not canonical: want %q", r.Name, CanonicalName(r.Name))
	case r.Type == nil || r.Type.URL == "":
		return fmt.Errorf("resource %q has no type", r.Name)
	case r.Sum == Sum{} || r.Version == "":
		return fmt.Errorf("resource %q is not sealed: call Seal after its fields are set", r.Name)
	case !utf8.ValidString(r.Version):
		return fmt.Errorf("resource %q: version %q is not UTF-8", r.Name, r.Version)
	case r.TTL < 0:
		return fmt.Errorf("resource %q: TTL %s is negative", r.Name, r.TTL)
	}
	for _, ref := range r.Refs {
		if ref.Type == nil {
			return fmt.Errorf("resource %q: the reference to %q has no type", r.Name, ref.Name)
		}
	}
	for _, a := range r.Aliases {
		if a == "" || a == Wildcard || !utf8.ValidString(a) {
			return fmt.Errorf("resource %q: %q cannot be an alias", r.Name, a)
		}
		if c := CanonicalName(a); c != a {
			return fmt.Errorf("resource %q: alias %q is not canonical: want %q", r.Name, a, c)
		}
	}
	return nil
}

// CheckType does the same as [Resource.Check], and also returns an error if the resource is not of
// type t. That error names both types.
func (r *Resource) CheckType(t *Type) error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.Type.Is(t) {
		return nil
	}
	if t == nil {
		return fmt.Errorf("%s resource %q is set as one without a type", r.Type, r.Name)
	}
	is, want := r.Type.Short, t.Short
	if is == want { // two messages with the same last part of the name
		is, want = r.Type.URL, t.URL
	}
	return fmt.Errorf("resource %q has type %s, and is set as %s", r.Name, is, want)
}
