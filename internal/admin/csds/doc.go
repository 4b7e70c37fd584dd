// Package csds says what each client has by the messages that Envoy's API has for it: the Client
// Status Discovery Service from the side of the server, and the config_dump of one node in the
// shape of that of Envoy's admin interface, for programs that read either.
//
// It knows clients by what [Options] says of them, keeps nothing and starts no goroutine. Messages
// are known by their descriptors. No secret is in any answer.
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

// Options say what is told of whom.
type Options struct {
	Types *envoy.Types // messages that are known; nil: those of Envoy's API

	// Clients returns the clients that are connected, in the order in which they are told.
	Clients func() []Client

	Beside []string // services that somebody else serves at the same address: reflection tells of them

	Log      *slog.Logger // of what should not happen; nil: slog.Default()
	MaxBytes int          // of one answer of the service; 0: 64 MiB
}

// A Client is a node at an address, with all its streams.
type Client struct {
	Node  *xds.Node
	Scope string // which of several with one node it is: client_scope
	Since time.Time

	// Config asks for what the client has of each type. It is called by one goroutine. An error
	// says that nobody knows: the client is told of without resources.
	Config func(ctx context.Context) ([]TypeConfig, error)
}

// A TypeConfig is what a client has, or shall have, of one type.
type TypeConfig struct {
	Type      *xds.Type
	Version   string // of the type, as responses state it
	Resources []Resource
}

// A State says how a client stands with a resource.
type State uint8

// The states, by what the service says of them. One that nobody knows is the zero value.
const (
	Unknown State = iota
	Synced        // it has accepted what there is
	Absent        // it was told that there is none
	Sent          // it was sent what there is, and has not answered
	Refused       // it has refused what there is
	NotSent       // it has to be sent what there is
	Leaving       // it has what there was, and is not told yet that there is none
)

// A Resource is how a client stands with one resource.
type Resource struct {
	Name    string
	State   State
	Body    *xds.Resource // what there is now, or, beside a Failure of other content, what the client keeps; nil: nothing
	Has     bool          // the client has accepted some version of it
	Version string        // of what the client has; it counts if there is no body, or a Status
	Updated time.Time     // when what there is was sent; zero: it is not known
	Failure *Failure      // why it was refused; nil: it was not

	// Status is how the client itself says that it stands, as envoy.admin.v3.ClientResourceStatus has
	// it; 0: by State. Where it is set, Body is what the client uses.
	Status int32
}

func (r *Resource) version() string {
	if r.Body != nil && (r.Status == 0 || r.Version == "") {
		return r.Body.Version
	}
	return r.Version
}

// A Failure is how a client refused a resource.
type Failure struct {
	At      time.Time     // zero: it is not known
	Version string        // of what it refused
	Body    *xds.Resource // what it refused, if it keeps something else or nothing; nil: what there is now, if State is Refused
	Text    string        // without secrets
}

// keeps reports whether the client has refused what there is, and is shown something else meanwhile.
func (r *Resource) keeps() bool {
	return r.State == Refused && r.Body != nil && r.Failure != nil && r.Failure.Body != nil
}

// refused returns what the client refused, as far as it is known.
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

// A Service answers. It is safe for concurrent use.
type Service struct {
	o     Options
	types *envoy.Types
	shown *secrets.Finder
	names names

	calls chan struct{} // open calls
	turns chan struct{} // answers that are made and sent

	once sync.Once // names
}

const (
	maxCalls = 32       // at a time
	maxTurns = 2        // answers at a time
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
