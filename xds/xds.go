// Package xds is the vocabulary of the xDS transport protocol: resource types,
// resources, tables of them, requests and responses. It knows neither gRPC nor
// generated Envoy code, performs no I/O, reads no clock and starts no
// goroutine.
//
// Nil is an error where something is taken in ([Table.With], [Resource.Check]). A nil *Type is no
// type, a nil *Versions and *Members are empty; of other pointers methods need one that is not nil.
package xds

import (
	"errors"
	"iter"
)

// Variant is the first dimension of the transport protocol ("Four Variants").
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

// Wildcard is the resource name that subscribes to whatever the server
// considers relevant to the node.
const Wildcard = "*"

// A Node is what a client says of itself. Only the first request of a stream
// is guaranteed to carry it.
type Node struct {
	ID               string
	Cluster          string
	UserAgentName    string // "envoy", "gRPC Go", …
	UserAgentVersion string // "1.40.0"; empty if not told
	Region           string
	Zone             string
	SubZone          string
	ClientFeatures   []string
	Metadata         []byte // encoded google.protobuf.Struct, or nil
}

// A Status is the error_detail of a NACK.
type Status struct {
	Code    int32
	Message string
}

// A Version pairs a resource's name with a version the client states.
type Version struct {
	Name    string
	Version string
}

// A Request is a DiscoveryRequest or a DeltaDiscoveryRequest. Receivers must
// not keep its strings without cloning them: they may share one buffer.
type Request struct {
	Type  *Type   // nil: the type of a per-type stream
	Node  *Node   // nil if absent
	Nonce string  // of the response this request answers; empty if none
	Error *Status // non-nil: the response with this nonce was rejected (NACK)

	// SotW only.
	Version   string   // the last version the client accepted
	Names     []string // the complete subscription
	SameNames bool     // Names are those of the stream's last request of this type, and left out

	// Delta only.
	Subscribe   []string
	Unsubscribe []string
	Initial     []Version // retained from a previous stream
}

// A Response is a DiscoveryResponse or a DeltaDiscoveryResponse. It is
// immutable; its Changes may be shared with other streams.
type Response struct {
	Type    *Type
	Version string // version_info or system_version_info
	Nonce   string
	TTL     bool // tell TTLs; SotW: of resources wrapped in the protocol's Resource
	*Changes

	// What only a client is told: of its own server nothing of it comes.
	Errors    []ResourceError // resource_errors that say something else than "does not exist"
	Malformed []error         // resources that cannot be read: each a *MalformedError
}

// A MalformedError tells of a resource in a response that cannot be read.
type MalformedError struct {
	Name string // "" if nobody knows it
	Err  error  // says the name, if it is known
}

// Error implements error.
func (e *MalformedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *MalformedError) Unwrap() error { return e.Err }

// MalformedName returns the name of a resource that cannot be read; "" if nobody knows it, as it is not even known what it is called,
// or the name is [Wildcard], which is no resource's.
func MalformedName(err error) string {
	if m, is := errors.AsType[*MalformedError](err); is && m.Name != Wildcard {
		return m.Name
	}
	return ""
}

// A ResourceError is what a server says of a name instead of sending the resource.
type ResourceError struct {
	Name   string
	Status Status
}

// A View is what one node may see. It is immutable and safe for concurrent
// use.
type View interface {
	// Table returns the resources of a type; never nil.
	Table(t *Type) *Table
}

// An Undecided is a View that is still looking for some names, as one that
// finds resources when they are asked for. Nothing is said of them until the
// view has decided and the names are touched.
type Undecided interface {
	View

	// Undecided reports whether it is not known yet if the name exists. What a table has
	// exists, whatever it reports. Of [Wildcard] it reports whether it is not known yet what there is of
	// the type: a stream that wants all of it is told nothing of the type then.
	Undecided(t *Type, name string) bool
}

// Names says which resources may differ between two views: names by type URL.
// It is a hint that may only save work.
type Names map[string][]string

// Tables is the simplest View: a table by the URL of its type. A missing type is empty, and so is
// a nil table. Nil has no tables.
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
