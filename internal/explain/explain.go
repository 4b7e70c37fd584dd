// Package explain says how a resource gets from its file to a client, link by link, and which
// link is broken; what a client has of each type by name; and which resource is at fault when a
// client refuses a response and its text names none.
//
// It remembers nothing. It asks the tracker who is connected, each stream what it knows, the
// store what there is and the source where that stands, for one client at a time. It starts no
// goroutine.
package explain

import (
	"context"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/envoyapi"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker knows the clients: a [status.Tracker].
type Tracker interface {
	Client(node string) []adminapi.Client
	Streams(node string) []*server.Stream
	Nodes(prefix string, most int) []string
}

// A Source knows where resources stand: a [dir.Source].
type Source interface {
	Decide(n *xds.Node) groups.Decision
	Standings(t *xds.Type, name string) []dir.Standing
	Near(t *xds.Type, name string) string
	Unloaded() (since time.Time, err error)
	Suspects(name string) []findings.Problem
	Examine(l dir.Loaded) []findings.Problem
	FieldAt(l dir.Loaded, path string) string
	PlaceFor(n *xds.Node, t *xds.Type, name string) string
	Types() *envoyapi.Types
}

// Deps are what an Explainer asks. All but Allowed are needed.
type Deps struct {
	Tracker  Tracker
	Source   Source
	Snapshot func() *store.Snapshot

	// Allowed says whether a client may have a resource that its groups have, and the rule that
	// says so. Identity is what its connection proves. Nil: every client may have all.
	Allowed func(n *xds.Node, identity string, t *xds.Type, name string) (ok bool, why string)

	// Selected returns the streams of all clients, to count who has a resource. Nil: nobody is
	// counted.
	Selected func() []*server.Stream

	Now func() time.Time // nil: time.Now
}

// An Explainer answers questions. It is safe for concurrent use.
type Explainer struct{ d Deps }

// New returns an explainer.
func New(d Deps) *Explainer {
	if d.Now == nil {
		d.Now = time.Now
	}
	return &Explainer{d}
}

// A NotFound is the error of a question about something that there is not.
type NotFound struct {
	Field   string // the parameter: "node", "type" or "name"
	Message string
	Hint    string // such as `did you mean "edge-1"?`; may be empty
}

func (e *NotFound) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// Explain follows the chain from the file to the client. Without a name it is about all of
// the type, and without a type about the client. The type is a short name, such as "CDS" or
// "cds", or a type URL.
//
// A node that nobody knows, and a name that no file has, are broken links and no errors. The
// error is a [*NotFound] if there is no such type, and that of the context if it ends before.
// A client that leaves meanwhile is a broken link, too.
func (e *Explainer) Explain(ctx context.Context, node, typ, name string) (adminapi.Explanation, error) {
	return adminapi.Explanation{APIVersion: adminapi.Version, Kind: "Explanation", Node: node, Type: typ, Name: name, Links: []adminapi.Link{}}, nil
}

// ClientResources returns what a client has by name: of all types that it has opened, or of
// one, or one resource of it. At most limit are told, those with something wrong first; zero is
// 1000. The error is a [*NotFound] if the node is not connected, if there is no such type, or
// if the client neither has nor wants the name and nobody serves it.
func (e *Explainer) ClientResources(ctx context.Context, node, typ, name string, limit int) (adminapi.ClientResources, error) {
	return adminapi.ClientResources{APIVersion: adminapi.Version, Kind: "ClientResourceList", Node: node, Items: []adminapi.ClientResource{}}, nil
}

// A Query says which resources [Explainer.Served] lists. The zero value lists all.
type Query struct {
	Type        string
	Name        string // needs a Type
	Group       string
	Limit       int  // 1000 if zero
	Subscribers bool // count the clients of each
	Body        bool // of one: needs a Name
}

// Served returns what is served, of each group. The error is a [*NotFound] if there is no
// such type, group or name.
func (e *Explainer) Served(ctx context.Context, q Query) (adminapi.ResourceList, error) {
	return adminapi.ResourceList{APIVersion: adminapi.Version, Kind: "ResourceList", Items: []adminapi.ServedResource{}}, nil
}

// Blame returns the refusals with the resources that are at fault, each with the line of the
// field and what is wrong there, as far as that can be found. Where the client's text names no
// resource, it looks into those of the refused response, on one of the streams that refuse it.
// It takes the time that ctx has; what is not found by then stays as it is.
func (e *Explainer) Blame(ctx context.Context, refusals []adminapi.Refusal) []adminapi.Refusal {
	return refusals
}
