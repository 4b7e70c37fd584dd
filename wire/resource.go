package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// NewResource encodes a message as a resource of type t. The version is the hash of the encoded bytes. An
// *[anypb.Any] is encoded as the message in it: its bytes are used without a copy and must not change afterwards.
//
// If name is empty, the name is taken from the message, if the type has a name field
// ([xds.Type.Name]). For an Any, the program must link the generated code of the message in it. An
// xdstp name becomes canonical ([xds.CanonicalName]).
//
// If name is not empty, it must equal the name in the message, for types of the table that have a
// name field. SotW clients, and Envoy also over delta, identify the resource by the name in its
// message. Use aliases for other names ([xds.Resource]).
//
// NewResource sets the references of a Cluster and of a ClusterLoadAssignment ([Refs]). The references of other types
// are not known; set them with package refs. It also sets the addresses of a Listener ([Addresses]).
//
// It returns an error if the type or the message is nil, if the message is of another type or
// cannot be encoded, or if clients would refuse the resource ([DecodeResponse]).
func NewResource(t *xds.Type, name string, m proto.Message) (*xds.Resource, error) {
	switch {
	case t == nil:
		return nil, fmt.Errorf("resource %q: the type is nil", name)
	case m == nil || !m.ProtoReflect().IsValid():
		return nil, fmt.Errorf("%s resource %q: the message is nil", t, name)
	}
	a, packed := m.(*anypb.Any)
	url := typeURL(m)
	if url == "" {
		return nil, fmt.Errorf("%s resource %q: the message is an Any without a type URL", t, name)
	}
	if url != t.URL {
		if name == "" && !packed {
			name = nameOf(xds.TypeOf(url), m.ProtoReflect())
		}
		return nil, fmt.Errorf("%s resource %q: the message is a %s, not a %s", t, name, url, t.URL)
	}
	if name == "" {
		var err error
		if packed {
			m, err = a.UnmarshalNew()
			if err != nil {
				return nil, fmt.Errorf("%s resource: %w", t, err)
			}
		}
		name = nameOf(t, m.ProtoReflect())
		if name == "" {
			return nil, fmt.Errorf("%s resource without a name", t)
		}
	}
	body := a.GetValue()
	if !packed {
		var err error
		body, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("%s resource %q: %w", t, name, err)
		}
	}
	id, err := ResourceName(t, xds.CanonicalName(name), body)
	if err != nil {
		return nil, fmt.Errorf("%s resource %q: %w", t, name, err)
	}
	r := xds.NewResource(t, id, body)
	r.Refs, r.Addresses = Refs(t, id, body), Addresses(t, body)
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
