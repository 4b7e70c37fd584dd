package admin

import (
	"context"
	"net/url"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker knows the clients: a [status.Tracker].
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
	// Ask asks all of them at once what the GET of a path answers, and returns within little more than a second who they are, with
	// why one has not answered. read is called with each answer, of size bytes at most, one after the other; it is nil
	// if there is nothing of that name. Unsure says why there may be others.
	Ask(ctx context.Context, path string, query url.Values, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error)
}

// A Stand says how a stream stands.
type Stand int

// How a stream stands.
const (
	Pending Stand = iota // something is to be sent, or to be answered
	Settled              // its client has accepted what there is
	Refuses              // its client refuses some of it, and nothing else is to be sent
	Gone                 // it has ended
)

// An Explainer knows what a client has by name, and why. Errors are [*NotFound] for what
// there is not.
type Explainer interface {
	// Explain follows a resource from its file to a client; without a name all of the type,
	// without a type the client.
	Explain(ctx context.Context, node, typ, name string) (api.Explanation, error)

	// ClientResources lists what a client has: at most limit, of all types if typ is "", one if
	// there is a name.
	ClientResources(ctx context.Context, node, typ, name string, limit int) (api.ClientResources, error)

	// Served lists what is served.
	Served(ctx context.Context, q ResourceQuery) (api.ResourceList, error)

	// Impact says who would see changes that are not made.
	Impact(ctx context.Context, changes api.ImpactRequest) (api.Impact, error)

	// Node returns what a client says of itself.
	Node(node string) (api.NodeInfo, error)

	// Wait notes of clients which of their types wait for others, as far as can be found while the
	// context lasts.
	Wait(ctx context.Context, clients []api.Client)

	// Blame returns the refusals with the resources that are at fault, as far as they can be
	// found while the context lasts.
	Blame(ctx context.Context, refusals []api.Refusal) []api.Refusal
}

// A ResourceQuery says which resources to list. The zero value lists all.
type ResourceQuery struct {
	Type        string
	Name        string // needs a Type
	Group       string
	Limit       int
	Subscribers bool // count the clients of each
}

// A NotFound is the error of a question about something that there is not.
type NotFound struct{ Field, Message, Hint string }

// Error implements error.
func (e *NotFound) Error() string { return e.Message }

// Loads loads the files now, and returns what became of it; approve lets it remove whatever
// is gone.
type Loads func(ctx context.Context, approve bool) api.Reload

// Settles says how a stream stands with a type, or with all that it has opened if that is nil,
// compared to what is served when it is called.
type Settles func(ctx context.Context, st *server.Stream, t *xds.Type) Stand

// Holds says whether a stream's client keeps something else of a type than what it has refused, so that the
// rest goes on.
type Holds func(st *server.Stream, t *xds.Type) bool
