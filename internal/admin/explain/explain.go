// Package explain says how a resource gets from its file to a client, link by link, and which
// link is broken; what a client has of each type by name; and which resource is at fault when a
// client refuses a response and its text names none.
//
// It asks the tracker who is connected, each stream what it knows, the store what there is and
// the source where that stands, for one client at a time. It remembers nothing but in which
// resources it has found nothing wrong, and starts no goroutine.
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

// A Tracker knows the clients: a [status.Tracker].
type Tracker interface {
	Client(node string) []api.Client
	Streams(node string) []*server.Stream
	Nodes(prefix string, most int) []string
}

// A Source knows where resources stand: a [dir.Source].
type Source interface {
	Decide(n *xds.Node) groups.Decision
	Standings(t *xds.Type, name string) []dir.Standing
	Within(group string, t *xds.Type, name string) (dir.Standing, bool)
	Rule(group string) (text, place string)
	Near(t *xds.Type, name string) string
	Unloaded() (since time.Time, err error)
	Suspects(name string) []findings.Problem
	Examine(l dir.Loaded) []findings.Problem
	FieldAt(l dir.Loaded, path string) string
	Types() *envoy.Types
}

// Deps are what an Explainer asks. Tracker, Source and Snapshot are needed.
type Deps struct {
	Tracker  Tracker
	Source   Source
	Snapshot func() *store.Snapshot

	// Allowed says whether a client may have a resource that its groups have, and the rule that
	// says so. The stream is one of the client's, nil if it is not connected. Nil: whether a
	// client may have something is seen by what it sees of its groups.
	Allowed func(st *server.Stream, n *xds.Node, t *xds.Type, name string) (ok bool, why string)

	// Denied returns the newest event of a client that was refused because it may not be the node,
	// if it is remembered. Nil: nobody was.
	Denied func(node string) (api.Event, bool)

	// Selected returns the streams of all clients, to count who has a resource. Nil: nobody is
	// counted.
	Selected func() []*server.Stream

	// Held returns what of a type is in quarantine on a stream: its client has refused it. It is
	// called by the stream's goroutine. Nil: nothing is.
	Held func(st *server.Stream, t *xds.Type) []quarantine.Held

	// Upstream says what a relay's upstream is and how, and whether anything of it is known. Nil: it is
	// no relay, and files are served.
	Upstream func() (text string, known bool)

	// Store says what a store's revision is that is served, and whether one is. Nil: files are served.
	Store func() (text string, known bool)

	// Frozen says of a resource that is not served whether the newest revision of a store has it, in a group that is
	// frozen at another one, and what to do; "": it has not. Nil: nothing is frozen.
	Frozen func(t *xds.Type, name string) (text, advice string)

	// Registered says of a group which endpoints of a name are registered, and how many, if they are: these are served, and
	// not what the group has itself, also when none is left. Nil: none are.
	Registered func(group, name string) (text string, n int, ok bool)

	Now func() time.Time // nil: time.Now
}

// An Explainer answers questions. It is safe for concurrent use.
type Explainer struct {
	d     Deps
	sound sound
}

// New returns an explainer.
func New(d Deps) *Explainer {
	if d.Now == nil {
		d.Now = time.Now
	}
	return &Explainer{d: d}
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

// typeNamed returns the type with a short name, such as "CDS" or "cds", or a URL; nil if name is
// empty.
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

// unknownNode is the error of a question about a client that is not connected.
func (e *Explainer) unknownNode(node string) *NotFound {
	err := &NotFound{Field: "node", Message: fmt.Sprintf("no client with node id %s is connected", quote(node))}
	if near := e.nearNode(node); near != "" {
		err.Hint = fmt.Sprintf("did you mean %s?", quote(near))
	}
	return err
}

// maxNodes is how many ids of nodes are compared with one that nobody has.
const maxNodes = 10_000

func (e *Explainer) nearNode(node string) string {
	return protoyaml.Nearest(node, slices.Values(e.d.Tracker.Nodes("", maxNodes)))
}
