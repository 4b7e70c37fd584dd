// Package refs finds the references of a resource to others. With them, a server can update your own
// resources make before break, with one line for each resource:
//
//	route, err := wire.NewResource(xds.Route, "", message)
//	route.Refs = refs.Of(message)
//
// A server sends a route after the client has the clusters that the route refers to. It removes a
// cluster only after no route of the client refers to it. The server reads the references in
// [xds.Stamp.Refs] and does not look into the message. If [xds.Stamp.Refs] is nil, as in listeners and
// routes of wire.NewResource, the resource may refer to any other. Then it waits for each cluster that
// is not acknowledged yet, for at most 15 s, and each removed cluster waits for it.
//
// The package starts no goroutine, performs no I/O and links none of Envoy's generated code.
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

// Of returns the references in a message, for [xds.Stamp.Refs]: each once, sorted by push order of the
// type, then by name. Set them before the resource is put into a store. The message is one of Envoy's
// API v3, or a google.protobuf.Any with one in it. The list is never nil: empty means no references.
//
// Of looks into each google.protobuf.Any whose type is linked into the program. The list never lacks a
// reference: if a name is unknown, or a part cannot be read (such as an extension that is not linked),
// the list contains a reference to all resources of the type ([xds.Wildcard]). So a missing import
// delays an update but never breaks it. The cluster of a config source (api_config_source) is not a
// reference, because Envoy takes it only from its bootstrap. A nil message has no references:
// wire.NewResource returns an error for it.
func Of(m proto.Message) []xds.Ref { return With(protoregistry.GlobalTypes, m) }

// With is [Of] for a program with messages that are not generated code, such as those of descriptors.
// Nil types are those of generated code.
func With(types Types, m proto.Message) []xds.Ref {
	if m == nil {
		return []xds.Ref{}
	}
	if types == nil {
		types = protoregistry.GlobalTypes
	}
	found := refs.OfResource(types, m)
	for i := range found {
		found[i].Name = xds.CanonicalName(found[i].Name)
	}
	return found
}
