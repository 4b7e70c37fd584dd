// Package xds has the types of the xDS transport protocol: resource types, resources, tables of resources,
// requests and responses. It does not link gRPC or the generated messages of Envoy. It performs no I/O,
// reads no clock and starts no goroutine.
//
// # To serve resources
//
// A program that fills a store needs only [Type] with its variables such as [Cluster], [Resource] and [Ref].
// [TypeOf] finds a type by its URL. Packages store and server do the rest.
//
// # To show each client its own resources
//
// [View], [Table] and [Tables] are the immutable data that a server sends. A program needs these
// types if it implements its own source of views instead of package store. [Undecided] is for a
// source that looks up resources when a client asks for them. [Table.Part], [Table.PartOf],
// [Table.Substitute] and [Table.WithLayers] make tables from other tables.
//
// # To write a transport
//
// [Request], [Response], [Changes], [Versions] and [Stamp] are the input and output of package protocol. Package
// wire encodes and decodes them. A program that only serves resources does not need them.
//
// # Nil
//
// A nil resource is an error in [Table.With] and [Resource.Check]. A nil *Type means no type. A nil *Versions
// or *Members is empty. Methods of other pointers need a pointer that is not nil.
package xds

import (
	"errors"
	"iter"
)

// Variant is one of the two forms of a stream: state of the world (SotW) or incremental (delta).
type Variant uint8

const (
	SotW  Variant = iota // state of the world
	Delta                // incremental
)

// String returns "sotw" or "delta".
func (v Variant) String() string {
	if v == Delta {
		return "delta"
	}
	return "sotw"
}

// Wildcard is the resource name that subscribes to all resources of a type that the node may see.
const Wildcard = "*"

// A Node identifies a client. Only the first request of a stream must have it.
type Node struct {
	ID               string
	Cluster          string
	UserAgentName    string // "envoy", "gRPC Go", …
	UserAgentVersion string // "1.40.0"; empty if unknown
	Region           string
	Zone             string
	SubZone          string
	ClientFeatures   []string
	Metadata         []byte // encoded google.protobuf.Struct, or nil
}

// A Status is the error_detail of a NACK, or the error of a resource.
type Status struct {
	Code    int32
	Message string
}

// A Version is a resource name with the version that a client states for it.
type Version struct {
	Name    string
	Version string
}

// A Request is a DiscoveryRequest or a DeltaDiscoveryRequest. Clone its strings before you keep them: they
// may share one buffer.
type Request struct {
	Type  *Type   // nil: the type of the stream, if it serves one type only
	Node  *Node   // nil if absent
	Nonce string  // nonce of the response that this request answers; empty: it does not answer a response
	Error *Status // non-nil: the client rejected the response with this nonce (NACK)

	// SotW only.
	Version   string   // the last version that the client accepted
	Names     []string // the complete subscription
	SameNames bool     // the names equal those of the previous request of this type, and Names is empty

	// Delta only.
	Subscribe   []string
	Unsubscribe []string
	Initial     []Version // resources that the client still holds from an earlier stream
}

// A Response is a DiscoveryResponse or a DeltaDiscoveryResponse. It is immutable. Other streams may share
// its Changes.
type Response struct {
	Type    *Type
	Version string // version_info or system_version_info
	Nonce   string
	TTL     bool // send TTLs; SotW then wraps each resource with a TTL in the protocol's Resource message
	*Changes

	// Set only in a response that a client received, never in one that a server sends.
	Errors    []ResourceError // resource_errors with another reason than "does not exist"
	Malformed []error         // one *MalformedError for each resource that cannot be decoded
	Size      int             // bytes of the encoded message; 0: unknown
}

// A MalformedError is the error of a resource in a response, or of a whole response, that cannot be decoded.
type MalformedError struct {
	Name string // "" if unknown
	Err  error  // the text of the error includes the name, if known
}

// Error implements error.
func (e *MalformedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *MalformedError) Unwrap() error { return e.Err }

// MalformedName returns the name of a resource that cannot be decoded. It returns "" if the name is unknown or
// is [Wildcard], which a resource cannot have.
func MalformedName(err error) string {
	if m, is := errors.AsType[*MalformedError](err); is && m.Name != Wildcard {
		return m.Name
	}
	return ""
}

// A ResourceError is the error that a server sends for a name instead of the resource.
type ResourceError struct {
	Name   string
	Status Status
}

// A View is the set of resources that one node may see. It is immutable and safe for concurrent use.
type View interface {
	// Table returns the resources of a type; never nil.
	Table(t *Type) *Table
}

// An Undecided is a View that does not know yet whether some names exist, because it looks up
// resources when a client asks for them. The server sends no response about such a name. When the
// view has decided, it must report the name as changed, so that the server checks the name again.
type Undecided interface {
	View

	// Undecided reports whether the view does not know yet if the name exists. A resource that a table has
	// exists, whatever Undecided returns. If Undecided is true for [Wildcard], the set of all resources of
	// the type is not known yet: a stream with a wildcard subscription then gets nothing of the type.
	Undecided(t *Type, name string) bool
}

// A Withholding is a View for a client that has refused resources because of a fault of their own, and has
// accepted no version of them. The server sends the other resources of a refused response again. It sends
// nothing about a withheld resource until the resource changes or is no longer withheld.
type Withholding interface {
	View

	// Withheld returns the names of the withheld resources of a type. The tables have these resources. A table
	// lacks them only if each response to the client has the full state of the type (SotW, Listener and
	// Cluster) and the client refuses such a response as a whole.
	Withheld(t *Type) []string
}

// Names lists resources that may differ between two views: names by type URL. Names is a hint that
// saves work. Without the hint, the server compares the views.
type Names map[string][]string

// Tables is the simplest View: tables by type URL. A missing or nil table is empty. The nil map has no
// tables.
type Tables map[string]*Table

// Table returns the table of a type; never nil.
func (v Tables) Table(t *Type) *Table {
	if t == nil {
		return &empty
	}
	if tab := v[t.URL]; tab != nil {
		return tab
	}
	return &empty
}

// All yields the tables by type URL, in no particular order.
func (v Tables) All() iter.Seq2[string, *Table] {
	return func(yield func(string, *Table) bool) {
		for url, t := range v {
			if !yield(url, t) {
				return
			}
		}
	}
}
