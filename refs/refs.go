// Package refs says what a resource refers to. With it, make before break holds for
// resources of one's own, in one line for each:
//
//	route, err := wire.NewResource(xds.Route, "", message)
//	route.Refs = refs.Of(message)
//
// A server sends a route when the client has the clusters that the route refers to, and
// keeps a cluster for as long as a route of the client's refers to it. For this it reads
// [xds.Stamp.Refs], and only this. A resource without references ([xds.Stamp.Refs] is nil,
// which is all that wire.NewResource knows of listeners and routes) may refer to
// everything: it waits for every cluster that is on its way, 15 s at most, and each cluster
// that is removed waits for it.
//
// The package starts no goroutine, performs no I/O and links no generated code of Envoy's.
package refs

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

// Types find the messages in a google.protobuf.Any by its type URL.
type Types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// Of returns what a message refers to, in push order of the types and then by name, each
// once: the value for [xds.Stamp.Refs], to be set before the resource is put into a store.
// The message is one of Envoy's API v3, or a google.protobuf.Any with one in it. The list
// is never nil: empty means that it refers to nothing.
//
// It looks into every google.protobuf.Any whose type is linked into the program. The list
// is complete: where a name is not known, or something cannot be read that might have one,
// such as an extension that is not linked, there is a reference to all resources of the
// type ([xds.Wildcard]). So a missing import makes a change slower, and never breaks one. A nil
// message refers to nothing: wire.NewResource is what has an error of it.
func Of(m proto.Message) []xds.Ref { return With(protoregistry.GlobalTypes, m) }

// With is [Of] for a program that knows messages from elsewhere than generated code, such
// as from descriptors. Nil types are those of generated code.
func With(types Types, m proto.Message) []xds.Ref {
	if m == nil {
		return []xds.Ref{}
	}
	if types == nil {
		types = protoregistry.GlobalTypes
	}
	found := refs.Of(types, m)
	for i := range found {
		found[i].Name = xds.CanonicalName(found[i].Name)
	}
	return found
}
