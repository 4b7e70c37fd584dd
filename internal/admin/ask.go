package admin

import (
	"context"
	"net/url"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker lists the clients and their events. The implementation is [clients.Tracker].
type Tracker interface {
	SummaryOf(clients.Filter) (api.Counts, []api.Refusal, []api.Trouble)
	TurnedAway(node string) []api.TurnedAway
	GroupCounts() map[string]api.Counts
	Loops(clients.Filter) []clients.Loop
	Clients(clients.Filter) api.ClientList
	Client(node string) []api.Client
	Nodes(prefix string, most int) []string
	Fleet(most int) (agents []api.AgentCount, responses, names []api.TypeLoad)
	Selected(clients.Filter) []*server.Stream
	Streams(node string) []*server.Stream
	Ready(node, from string, strict bool) (ok bool, why string)
	Events(after uint64) []api.Event
	Newest(after uint64, most int, keep func(kind, node, typ string) bool) (events []api.Event, missed int, last uint64)
	Await(ctx context.Context, after uint64) ([]api.Event, error)
	Changed() <-chan struct{}
	Propagation() []api.Spread
}

// Replicas are the other servers of a store.
type Replicas interface {
	// Ask sends a GET request for path to all other servers in parallel. After little more than a
	// second it returns the servers; a server that did not answer has an error. Ask calls read with
	// one answer at a time, of at most size bytes; body is nil for 404. The error unsure is the
	// reason why the list of servers may be incomplete.
	Ask(ctx context.Context, path string, query url.Values, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error)

	// Order is like Ask with a POST request and its JSON body. A server accepts it only from an
	// authenticated caller.
	Order(ctx context.Context, path string, in []byte, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error)
}

// A Stand is the state of a stream relative to the served configuration.
type Stand int

// The states of a stream.
const (
	Pending Stand = iota // a response must be sent or answered
	Settled              // the client has accepted the current configuration
	Refuses              // the client refuses a part of the configuration; the rest is sent
	Gone                 // the stream has ended
)

// An Explainer lists the resources of a client by name, and explains their state. For a node, type, group
// or name that does not exist, the error is a [*NotFound].
type Explainer interface {
	// Explain follows a resource from its file to a client. Without a name it covers the whole type, and
	// without a type the whole client.
	Explain(ctx context.Context, node, typ, name string) (api.Explanation, error)

	// ClientResources lists at most limit resources of a client. An empty typ means all types; an empty
	// name means all names.
	ClientResources(ctx context.Context, node, typ, name string, limit int) (api.ClientResources, error)

	// Served lists the resources that are served.
	Served(ctx context.Context, q ResourceQuery) (api.ResourceList, error)

	// References returns the references of a resource, and to it. The query needs a type and a name.
	References(ctx context.Context, q ReferenceQuery) (api.ReferenceGraph, error)

	// Diff compares two sets of resources.
	Diff(ctx context.Context, q DiffQuery) (api.Diff, error)

	// Unused returns a warning about registered endpoints that no served cluster uses; "" if a cluster does.
	Unused(name string) string

	// Impact counts the clients that would get the planned changes.
	Impact(ctx context.Context, changes api.ImpactRequest) (api.Impact, error)

	// Node returns the node message of a connected client.
	Node(node string) (api.NodeInfo, error)

	// Preview returns the groups and the resources that a node would get, which is given as JSON or YAML. The
	// error is about that text.
	Preview(node []byte) (api.Preview, error)

	// Check returns the findings about the resources in a text, which a group would get, and the changes as a request
	// for their impact.
	Check(group string, text []byte) (api.Check, []api.ImpactChange)

	// Certificates lists the certificates in served resources that expire first.
	Certificates(most int) []api.Certificate

	// Wait sets the state of types that wait for other resources. It stops when ctx ends.
	Wait(ctx context.Context, clients []api.Client)

	// Blame returns the refusals with their faulty resources. It stops the search when ctx ends.
	Blame(ctx context.Context, refusals []api.Refusal) []api.Refusal
}

// A ResourceQuery selects resources to list. The zero value selects all.
type ResourceQuery struct {
	Type        string
	Name        string // needs a Type
	Group       string
	Limit       int
	Offset      int  // number of resources to skip
	Subscribers bool // count the clients of each resource
	Places      bool // the lines of the fields; needs a Name
}

// A ReferenceQuery selects the resource of a graph of references.
type ReferenceQuery struct {
	Type, Name  string
	Group       string // "": the first one that has the resource
	Limit       int    // maximum number of resources
	Depth       int    // maximum distance
	Subscribers bool   // count the clients of each resource
}

// A DiffQuery selects two sets of resources, such as "served", "rev:r412" or "client:edge-1".
type DiffQuery struct {
	From, To   string
	Type, Name string // only this type, or this resource
	Group      string // only this group; not for clients
	Limit      int    // maximum number of differences in the answer
}

// A NotFound is the error for a node, type, group or name that does not exist.
type NotFound struct{ Field, Message, Hint string }

// Error implements error.
func (e *NotFound) Error() string { return e.Message }

// Loads loads the files and returns the result. If approve is true, the load may remove any number of
// resources.
type Loads func(ctx context.Context, approve bool) api.Reload

// Settles returns the state of a stream for a type, relative to the configuration at the time of the
// call. If t is nil, it covers all types of the stream.
type Settles func(ctx context.Context, st *server.Stream, t *xds.Type) Stand
