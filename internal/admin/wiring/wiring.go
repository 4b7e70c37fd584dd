// Package wiring connects the parts behind the admin API with a server: the tracker of clients, the quarantine,
// the explainer and CSDS. The daemon uses it, and package admin for other programs.
package wiring

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/csds"
	"github.com/chancery-xds/chancery/internal/admin/csds/live"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/web"
	"github.com/chancery-xds/chancery/xds"
)

// Options describe the server. Log, Types, Snapshot, Source and Place are required. The functions are called only
// after a client has connected.
type Options struct {
	Log      *slog.Logger
	Types    *envoy.Types
	Snapshot func() *store.Snapshot
	Newest   func() (store.Commit, bool) // the newest commit
	Source   func() explain.Source       // has the groups of nodes, and the places of resources

	// Place returns the place of a resource that a node gets, such as "clusters.yaml:12:3"; "": unknown.
	Place func(n *xds.Node, t *xds.Type, name string) string

	// Withholds is the source from whose watches the quarantine withholds refused resources. Nil: there is no
	// quarantine.
	Withholds quarantine.Watched

	// Moved and Revision are options of the quarantine: see [quarantine.Options]. Both may be nil.
	Moved    func()
	Revision func(groups string, t *xds.Type, name string, sum xds.Sum) string
}

// Parts are the parts of one server.
type Parts struct {
	Tracker *clients.Tracker   // an observer of the server
	Held    *quarantine.Source // the source of the server, and an observer; nil: there is no quarantine

	// Explainer returns an explainer that finds faulty resources. It is made at the first call, because the source
	// of the server may be made after the parts.
	Explainer func() *explain.Explainer

	o Options
}

// New returns the parts. The caller runs Held.
func New(o Options) *Parts {
	p := &Parts{o: o}
	p.Explainer = sync.OnceValue(func() *explain.Explainer {
		return explain.New(explain.Deps{Tracker: p.Tracker, Source: o.Source(), Snapshot: o.Snapshot})
	})
	if o.Withholds != nil {
		p.Held = p.quarantine()
	}
	var expectation endpointExpectation
	tracked := clients.Options{
		Groups: p.groups,
		Place:  o.Place,
		Newest: o.Newest,
		Identity: func(st *server.Stream) string {
			if st.Identity == nil {
				return ""
			}
			return st.Identity.String()
		},
		Unfilled: func(groups []string) string { return explain.Unfilled(o.Snapshot(), groups) },
		Expects: func(n *xds.Node, t *xds.Type) bool {
			return !t.Is(xds.Endpoint) || expectation.endpoints(o.Snapshot(), p.groups(n))
		},
	}
	if p.Held != nil {
		tracked.Kept = p.kept
	}
	p.Tracker = clients.New(tracked)
	return p
}

// groups returns the groups of a node.
func (p *Parts) groups(n *xds.Node) []string { return p.o.Source().Decide(n).Groups }

// Server returns the server of the admin API with its parts: what [Parts] has, and the page. The fields Tracker,
// Snapshot, Held and Selected of deps are set by Server. The other services are further gRPC services at the same
// address, which reflection lists.
func (p *Parts) Server(deps explain.Deps, otherServices ...string) *admin.Server {
	deps.Tracker, deps.Snapshot = p.Tracker, p.o.Snapshot
	deps.Selected = func() []*server.Stream { return p.Tracker.Selected(clients.Filter{All: true}) }
	s := &admin.Server{Tracker: p.Tracker, Page: web.Files(), Log: p.o.Log, Note: p.Tracker.Note}
	var held func(*server.Stream, *xds.Type) []live.Held
	if p.Held != nil {
		deps.Held, deps.Kept, s.Release, held = p.Held.Of, p.Held.Kept, p.Held.Release, p.heldForCSDS
	}
	status := csds.New(csds.Options{Types: p.o.Types, Clients: live.Clients(p.Tracker, held), OtherServices: otherServices, Log: p.o.Log})
	s.Explainer, s.Dump, s.GRPC = explainer{explain.New(deps)}, status.ConfigDump(), status.GRPC()
	return s
}

// suspectTimeout limits the search for the faulty resources of a NACK, which delays its stream.
const suspectTimeout = 100 * time.Millisecond

// Suspects finds the faulty resources of a NACK for the log, as status shows them: see [server.WithSuspects].
func (p *Parts) Suspects(node *xds.Node, t *xds.Type, names []string, text string) (all []server.Suspect) {
	ctx, cancel := context.WithTimeout(context.Background(), suspectTimeout)
	defer cancel()
	for _, r := range p.Explainer().Faulty(ctx, p.groups(node), t, text, names) {
		all = append(all, server.Suspect{Name: r.Name, Place: r.Place})
	}
	return all
}

// logText shortens a text from a client for the log, and makes it valid UTF-8.
func logText(s string) string { return strings.ToValidUTF8(text.Head(s, 256), "\uFFFD") }
