package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// NewResource returns m as a resource of type t, and of no other. It is marshalled here, once
// and for all: the version is the hash of these bytes. An *[anypb.Any] stands
// for the message in it; its bytes are taken as they are and must not be
// changed afterwards.
//
// An empty name means the one in the message, where the type has such a field
// ([xds.Type.Name]); taking it out of an Any needs the generated code of its
// message to be linked. An xdstp name becomes canonical ([xds.CanonicalName]).
// A name that is given must be the one in the message, where the message is of a type of the
// table ([xds.Type.Known]) and has one in that field: it is what delta clients are told, while
// SotW clients, and Envoy over delta too, know the resource by its message. Other names that
// are to find it are aliases ([xds.Resource]).
// The references of a Cluster and of a ClusterLoadAssignment are set ([Refs]),
// those of other types are not known.
//
// A nil type or message, also a nil pointer to one, a message of another type than t, a name
// that is neither given nor in the message, one that is not that in the message, and what
// cannot be marshalled are errors, and then the resource is nil.
func NewResource(t *xds.Type, name string, m proto.Message) (*xds.Resource, error) {
	switch {
	case t == nil:
		return nil, fmt.Errorf("resource %q: the type is nil", name)
	case m == nil || !m.ProtoReflect().IsValid():
		return nil, fmt.Errorf("%s resource %q: the message is nil", t, name)
	}
	a, packed := m.(*anypb.Any)
	url := a.GetTypeUrl()
	if !packed {
		url = "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
	}
	if url == "" {
		return nil, fmt.Errorf("%s resource %q: the message is an Any without a type URL", t, name)
	}
	if url != t.URL {
		if name == "" && !packed {
			name = nameOf(xds.TypeOf(url), m.ProtoReflect())
		}
		return nil, fmt.Errorf("%s resource %q: the message is a %s, not a %s", t, name, url, t.URL)
	}
	given := name != ""
	if !given {
		var err error
		if packed {
			if m, err = a.UnmarshalNew(); err != nil {
				return nil, fmt.Errorf("%s resource: %w", t, err)
			}
		}
		if name = nameOf(t, m.ProtoReflect()); name == "" {
			return nil, fmt.Errorf("%s resource without a name", t)
		}
	}
	name = xds.CanonicalName(name)
	body := a.GetValue()
	if !packed {
		var err error
		if body, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil {
			return nil, fmt.Errorf("%s resource %q: %w", t, name, err)
		}
	}
	if own := xds.CanonicalName(ownName(t, body)); given && own != "" && own != name {
		return nil, fmt.Errorf("%s resource %q: the name in the message is %q, by which clients know it: give no other; names that are to find it, too, are aliases", t, name, own)
	}
	r := xds.NewResource(t, name, body)
	r.Refs = Refs(t, name, body)
	return r, nil
}

// nameOf returns the value of the type's name field, or "".
func nameOf(t *xds.Type, m protoreflect.Message) string {
	if t.Name == "" {
		return ""
	}
	f := m.Descriptor().Fields().ByName(protoreflect.Name(t.Name))
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return m.Get(f).String()
}

// ownName returns the name that is in an encoded message; "" if the type has none there, is
// not in the table, or the message cannot be read. Of other types nobody knows whether what a
// field of theirs says is the name of the resource.
func ownName(t *xds.Type, body []byte) (name string) {
	const nameField = 1 // whatever it is called ([xds.Type.Name])
	if t.Name == "" || !t.Known() {
		return ""
	}
	if within(body, nameField, func(b []byte) error { name = string(b); return nil }) != nil {
		return ""
	}
	return name
}
