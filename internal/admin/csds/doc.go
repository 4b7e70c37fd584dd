// Package csds serves the state of xDS clients in the messages of Envoy's API: the Client Status Discovery
// Service (CSDS), and a config_dump of one node in the format of Envoy's admin interface.
//
// The package gets clients from [Options], keeps no state and starts no goroutine. It uses messages by
// their descriptors, without generated code. Answers contain no secrets.
package csds

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// Options are the clients that a service shows, and the limits of the service.
type Options struct {
	Types *envoy.Types // descriptors of messages; nil: those of Envoy's API

	// Clients returns the connected clients, in the order of the answer.
	Clients func() []Client

	OtherServices []string // further gRPC services at the same address, which reflection lists

	Log      *slog.Logger // for internal errors; nil: slog.Default()
	MaxBytes int          // limit of one answer of the service; 0: 64 MiB
}

// A Client is a node at an address, with all streams of the node.
type Client struct {
	Node  *xds.Node
	Scope string // client_scope: distinguishes clients of one node
	Since time.Time

	// Config returns the resources of the client by type. Only one goroutine at a time calls it. If
	// it returns an error, the answer lists the client without resources.
	Config func(ctx context.Context) ([]TypeConfig, error)
}

// A TypeConfig has the resources of one type that a client has, or should have.
type TypeConfig struct {
	Type      *xds.Type
	Version   string // version_info of the type in responses
	Resources []Resource
}

// A State is the state of a resource on a client.
type State uint8

// The states. The zero value is Unknown.
const (
	Unknown State = iota
	Synced        // the client has accepted the current version
	Absent        // the client knows that the resource does not exist
	Sent          // the current version was sent and has no ACK or NACK yet
	Refused       // the client refused the current version
	NotSent       // the current version must still be sent
	Leaving       // the resource was removed, and the client still has it
)

// A Resource is the state of one resource on a client.
type Resource struct {
	Name    string
	State   State
	Body    *xds.Resource // the current version, or the version that the client keeps if Failure.Body is set; nil: none
	Has     bool          // the client has accepted a version of the resource
	Version string        // version that the client has; used if Body is nil or Status is set
	Updated time.Time     // when the current version was sent; zero: unknown
	Failure *Failure      // the refusal; nil: not refused

	// Status is the state that the client itself reports, a value of envoy.admin.v3.ClientResourceStatus.
	// 0: derive the state from State. If Status is set, Body is the version that the client uses.
	Status int32
}

func (r *Resource) version() string {
	if r.Body != nil && (r.Status == 0 || r.Version == "") {
		return r.Body.Version
	}
	return r.Version
}

// A Failure is the refusal of a resource.
type Failure struct { // zero: unknown
	At      time.Time     // zero: unknown
	Version string        // the refused version
	Body    *xds.Resource // the refused version, if it is not Resource.Body; nil: Resource.Body, if State is Refused
	Text    string        // secrets are removed
}

// keeps reports whether the client refused the current version and keeps another version.
func (r *Resource) keeps() bool {
	return r.State == Refused && r.Body != nil && r.Failure != nil && r.Failure.Body != nil
}

// refused returns the refused version; nil if it is unknown.
func (r *Resource) refused() *xds.Resource {
	switch {
	case r.Failure == nil:
		return nil
	case r.Failure.Body != nil:
		return r.Failure.Body
	case r.State == Refused:
		return r.Body
	}
	return nil
}

// A Service answers CSDS and config_dump requests. It is safe for concurrent use.
type Service struct {
	o     Options
	types *envoy.Types
	shown *secrets.Finder
	names names

	calls chan struct{} // open calls
	turns chan struct{} // answers that are being built and sent

	once sync.Once // guards names
}

const (
	maxCalls = 32       // concurrent calls
	maxTurns = 2        // concurrent answers
	maxBytes = 64 << 20 // of one answer
)

// New returns a service.
func New(o Options) *Service {
	if o.Types == nil {
		o.Types = envoy.Envoy()
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = maxBytes
	}
	return &Service{
		o: o, types: o.Types, shown: secrets.NewFinder(o.Types),
		calls: make(chan struct{}, maxCalls), turns: make(chan struct{}, maxTurns),
	}
}

func (s *Service) log() *slog.Logger {
	if s.o.Log == nil {
		return slog.Default()
	}
	return s.o.Log
}
