// Package explain explains why a client has a resource or not. It follows the resource from its file
// to the client. Each step is a link of a chain, and the package names the broken link. It also lists the
// resources that a client has, and finds the faulty resource if a client's NACK names none.
//
// The tracker lists clients, each stream has the state of its resources, the store has the resources,
// and the source has their places. The package inspects one client at a time, and starts no
// goroutine. Its only cache lists resources without known faults.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker lists the clients. The implementation is [clients.Tracker].
type Tracker interface {
	Client(node string) []api.Client
	Streams(node string) []*server.Stream
	Nodes(prefix string, most int) []string
}

// A Source has the places of resources. The implementation is [dir.Source].
type Source interface {
	Decide(n *xds.Node) groups.Decision
	Occurrences(t *xds.Type, name string) []dir.Occurrence
	Lookup(group string, t *xds.Type, name string) (dir.Occurrence, bool)
	Rule(group string) (text, place string)
	Nearest(t *xds.Type, name string) string
	LoadError() (since time.Time, err error)
	HeldUntil() (n int, until time.Time)
	ErrorsMentioning(name string) []findings.Problem
	Examine(l dir.Loaded) []findings.Problem
	SocketClashes(groups []string, l dir.Loaded) ([]findings.Problem, []dir.Occurrence)
	InBootstrap(groups []string, ref xds.Ref) bool
	Together() *groups.Overlap
	Certificates() []dir.Certificate
	FieldAt(l dir.Loaded, path string) string
	Lines(l dir.Loaded, paths []string) map[string]int
	Types() *envoy.Types
}

// Deps are the dependencies of an Explainer. Tracker, Source and Snapshot are required.
type Deps struct {
	Tracker  Tracker
	Source   Source
	Snapshot func() *store.Snapshot

	// Allowed reports whether a client may have a resource of its groups, and returns the rule that
	// decides. The argument st is a stream of the client; nil if the client is not connected. If
	// Allowed is nil, the explainer compares the client's view with the client's groups.
	Allowed func(st *server.Stream, n *xds.Node, t *xds.Type, name string) (ok bool, why string)

	// Denied returns the newest remembered event of a client that was refused because it may not use the
	// node ID. Nil: no client was refused.
	Denied func(node string) (api.Event, bool)

	// Selected returns the streams of all clients, to count the subscribers of a resource. Nil: no counts.
	Selected func() []*server.Stream

	// Held returns the resources of a type that are in quarantine for a stream. The stream's goroutine
	// calls the function. Nil: none.
	Held func(st *server.Stream, t *xds.Type) []quarantine.Held

	// Kept returns the removed resources of a type that a stream is still shown because of the quarantine. The
	// stream's goroutine calls the function. Nil: none.
	Kept func(st *server.Stream, t *xds.Type) []quarantine.Kept

	// Upstream returns a text about the upstream of a relay and the upstream's state, and reports whether
	// the relay has received resources from the upstream. Nil: the server is not a relay.
	Upstream func() (text string, known bool)

	// Undecided reports whether the upstream of a relay has not answered whether a resource exists. Nil: the
	// resources of the snapshot are all that exist.
	Undecided func(t *xds.Type, name string) bool

	// Store returns a text about the revision that the server serves from a revision store, and reports
	// whether the server has a revision. Nil: the server uses no revision store.
	Store func() (text string, known bool)

	// Program reports that the server is a part of a program that fills the store itself, without files.
	Program bool

	// Frozen returns a text and the advice about a resource that only a later revision has, if a node
	// does not get it because its group is frozen at an older revision. Frozen prefers the given groups of
	// the node. For other resources the text is "". Nil: no group is frozen.
	Frozen func(groups []string, t *xds.Type, name string) (text, advice string)

	// Registered returns a text about the registered endpoints of a cluster in a group, and their
	// number. The result ok means that registered endpoints replace the group's own endpoints, even
	// if no registered endpoint is left. Nil: no endpoints are registered.
	Registered func(group, name string) (text string, n int, ok bool)

	// Sides are more sets of resources that [Explainer.Diff] can compare, by the word before the colon. Their
	// resources have groups.
	Sides map[string]SideSource

	Now func() time.Time // nil: time.Now
}

// An Explainer explains the state of clients and resources. It is safe for concurrent use.
type Explainer struct {
	d         Deps
	faultless faultlessCache
}

// New returns an explainer.
func New(d Deps) *Explainer {
	if d.Now == nil {
		d.Now = time.Now
	}
	return &Explainer{d: d}
}

// A NotFound is the error for a node, type, group or name that does not exist.
type NotFound struct {
	Field   string // the parameter: "node", "type", "group" or "name"
	Message string
	Hint    string // such as `did you mean "edge-1"?`; may be empty
}

func (e *NotFound) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// nowhere is the beginning of a text about a resource that does not exist: "no file has …".
func (e *Explainer) nowhere() string {
	if e.d.Program {
		return "no group of the store"
	}
	return "no file"
}

// typeNamed returns the type with a short name, such as "CDS" or "cds", or with a type URL; nil for an
// empty name.
func typeNamed(name string) (*xds.Type, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // all types
	}
	if url, is := strings.CutPrefix(name, apis); is && url != "" {
		return xds.TypeOf(name), nil
	}
	var shorts []string
	for _, t := range xds.Types() {
		if strings.EqualFold(t.Short, name) {
			return t, nil
		}
		shorts = append(shorts, t.Short)
	}
	return nil, &NotFound{Field: "type", Message: fmt.Sprintf("there is no resource type %s", quote(name)), Hint: "types are " + strings.Join(shorts, ", ") + ", and type URLs"}
}

const apis = "type.googleapis.com/"

// unknownNode returns the error for a client that is not connected.
func (e *Explainer) unknownNode(node string) *NotFound {
	err := &NotFound{Field: "node", Message: fmt.Sprintf("no client with node id %s is connected", quote(node))}
	if near := e.nearNode(node); near != "" {
		err.Hint = fmt.Sprintf("did you mean %s?", quote(near))
	}
	return err
}

// maxNodes is the maximum number of node IDs that are compared with an unknown ID, for the hint "did you
// mean".
const maxNodes = 10_000

func (e *Explainer) nearNode(node string) string {
	return protoyaml.Nearest(node, slices.Values(e.d.Tracker.Nodes("", maxNodes)))
}
