package admin

import (
	"context"
	"net/url"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker knows the clients: a [clients.Tracker].
type Tracker interface {
	SummaryOf(clients.Filter) (api.Counts, []api.Refusal, []api.Trouble)
	TurnedAway(node string) []api.TurnedAway
	GroupCounts() map[string]api.Counts
	Clients(clients.Filter) api.ClientList
	Client(node string) []api.Client
	Nodes(prefix string, most int) []string
	Selected(clients.Filter) []*server.Stream
	Events(after uint64) []api.Event
	Await(ctx context.Context, after uint64) ([]api.Event, error)
	Changed() <-chan struct{}
}

// Replicas are the other servers of a store.
type Replicas interface {
	// Ask sends a GET of path to all of them at once, and returns them after little more than a second,
	// with the error of each that did not answer. It calls read with each answer of at most size bytes, one
	// after another; body is nil for 404. unsure tells why the list may be incomplete.
	Ask(ctx context.Context, path string, query url.Values, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error)
}

// A Stand is the state of a stream compared to the configuration that is served.
type Stand int

// The states of a stream.
const (
	Pending Stand = iota // a response must be sent or answered
	Settled              // the client has accepted the current configuration
	Refuses              // the client refuses a part of it; the rest is sent
	Gone                 // the stream has ended
)

// An Explainer knows the resources of a client by name, and explains their state. Questions about something
// that does not exist return a [*NotFound].
type Explainer interface {
	// Explain follows a resource from its file to a client. Without a name it covers the type, without a
	// type the whole client.
	Explain(ctx context.Context, node, typ, name string) (api.Explanation, error)

	// ClientResources lists at most limit resources of a client: of all types if typ is "", one if there is
	// a name.
	ClientResources(ctx context.Context, node, typ, name string, limit int) (api.ClientResources, error)

	// Served lists the resources that are served.
	Served(ctx context.Context, q ResourceQuery) (api.ResourceList, error)

	// Impact returns which clients planned changes would reach.
	Impact(ctx context.Context, changes api.ImpactRequest) (api.Impact, error)

	// Node returns the node as the client describes itself.
	Node(node string) (api.NodeInfo, error)

	// Wait sets the state of types that wait for others, as far as it is found before the context ends.
	Wait(ctx context.Context, clients []api.Client)

	// Blame returns the refusals with their faulty resources, as far as they are found before the context
	// ends.
	Blame(ctx context.Context, refusals []api.Refusal) []api.Refusal
}

// A ResourceQuery selects resources to list. The zero value selects all.
type ResourceQuery struct {
	Type        string
	Name        string // needs a Type
	Group       string
	Limit       int
	Subscribers bool // count the clients of each resource
}

// A NotFound is the error for a question about something that does not exist.
type NotFound struct{ Field, Message, Hint string }

// Error implements error.
func (e *NotFound) Error() string { return e.Message }

// Loads loads the files now and returns the result. With approve, the load may remove any number of
// resources.
type Loads func(ctx context.Context, approve bool) api.Reload

// Settles returns the state of a stream for a type, or for all its types if t is nil, compared to the
// configuration at the time of the call.
type Settles func(ctx context.Context, st *server.Stream, t *xds.Type) Stand

// Holds reports whether the refused resource of a type is in quarantine for a stream, so that the rest of
// the type is updated.
type Holds func(st *server.Stream, t *xds.Type) bool
