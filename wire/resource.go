package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// NewResource returns m as a resource of type t. It is marshalled here, once
// and for all: the version is the hash of these bytes. An *[anypb.Any] stands
// for the message in it; its bytes are taken as they are and must not be
// changed afterwards.
//
// An empty name means the one in the message, where the type has such a field
// ([xds.Type.Name]); taking it out of an Any needs the generated code of its
// message to be linked. An xdstp name becomes canonical ([xds.CanonicalName]).
// The references of a Cluster are set ([Refs]), those of other types are not
// known.
func NewResource(t *xds.Type, name string, m proto.Message) (*xds.Resource, error) {
	a, packed := m.(*anypb.Any)
	url := a.GetTypeUrl()
	if !packed {
		url = "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
	}
	if url != t.URL {
		return nil, fmt.Errorf("%s resource %q: type is %s, not %s", t, name, url, t.URL)
	}
	if name == "" {
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
	r := xds.NewResource(name, body)
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

// Refs returns the resources an encoded resource refers to, as far as they can
// be read without generated code: the assignment of a Cluster. A cluster of
// another discovery type refers to none. For other types, and for a body that
// cannot be read, it returns nil: not known.
func Refs(t *xds.Type, name string, body []byte) []xds.Ref {
	if t.Warms == nil {
		return nil
	}
	// Fields of envoy.config.cluster.v3.Cluster, and of envoy.api.v2.Cluster.
	const (
		clusterDiscovery = 2  // enum, oneof with …
		clusterCustom    = 38 // … a message
		clusterEDS       = 3
		edsServiceName   = 2
		discoveryEDS     = 3
	)
	var discovery int32
	var service string
	for len(body) > 0 {
		f, rest, err := next(body)
		if err != nil {
			return nil
		}
		body = rest
		switch {
		case f.num == clusterDiscovery && f.typ == protowire.VarintType:
			discovery = int32(f.varint)
		case f.num == clusterCustom && f.typ == protowire.BytesType:
			discovery = 0
		case f.num == clusterEDS && f.typ == protowire.BytesType:
			for b := f.data; len(b) > 0; {
				if f, b, err = next(b); err != nil {
					return nil
				}
				if f.num == edsServiceName && f.typ == protowire.BytesType {
					service = string(f.data)
				}
			}
		}
	}
	if discovery != discoveryEDS {
		return []xds.Ref{}
	}
	// "Optional alternative to cluster name to present to EDS."
	if service == "" {
		service = name
	}
	return []xds.Ref{{Type: t.Warms, Name: xds.CanonicalName(service)}}
}
