package daemon

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclients "github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/csds"
	"github.com/chancery-xds/chancery/internal/admin/csds/live"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/internal/listen/reloadsocket"
	"github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// adminServer returns what answers; all that it asks exists by now.
func (s *serving) adminServer(id string, st *store.Store, held *quarantine.Source) *admin.Server {
	src := s.source.files
	var beside []string
	if s.endpoints.registry != nil {
		beside = []string{endpointsv1.Endpoints_ServiceDesc.ServiceName}
	}
	clients := csds.New(csds.Options{Types: s.types, Clients: live.Clients(s.admin.tracker, keptFrom(held)), Beside: beside, Log: s.log})
	answers := &admin.Server{
		About:   about(s, id),
		Version: api.VersionInfo{Version: cli.Version(), Revision: cli.Revision(), Go: runtime.Version()},
		Config:  s.source.config,
		Groups:  func() []api.Group { return s.admin.groups(src()) },
		Tracker: s.admin.tracker,
		Holds:   holds(held),
		Explainer: explains{explain.New(explain.Deps{
			Tracker: s.admin.tracker, Source: src(), Snapshot: st.Snapshot, Upstream: s.source.away(), Store: servedOf(s.source), Frozen: frozenOf(s.source),
			Allowed:    s.identity.allowed(func(n *xds.Node) []string { return src().Decide(n).Groups }),
			Held:       heldBy(held),
			Denied:     s.admin.denied,
			Registered: s.endpoints.registered(),
			Selected:   func() []*server.Stream { return s.admin.tracker.Selected(adminclients.Filter{All: true}) },
		})},
		Reload:    s.source.reload,
		Endpoints: s.endpoints.registry,
		Revisions: s.revisions(),
		Dump:      clients.ConfigDump(),
		GRPC:      clients.GRPC(),
		Level:     &s.logging.Now,
		Log:       s.log,
	}
	if s.replicas.all != nil {
		answers.Replicas = s.replicas.all
	}
	return answers
}

// about says which process answers.
func about(s *serving, id string) api.Server {
	a := api.Server{Version: cli.Version(), Replica: id, Since: time.Now(), XDS: s.front.at(), Dir: s.dir, PID: os.Getpid(), ID: s.replicas.id}
	switch d := s.source.(type) {
	case *directory:
		a.Path, _ = filepath.Abs(s.dir)
	case *stored:
		if d.root != "" {
			a.Path, _ = filepath.Abs(d.root)
		}
	}
	a.Host, _ = os.Hostname()
	return a
}

// denied returns how a client was denied last that may not be a node, if it is remembered.
func (a *adminFront) denied(node string) (api.Event, bool) {
	for _, e := range a.tracker.TurnedAway(shown(node)) {
		if e.Kind == "denied" {
			return api.Event{At: e.At, Kind: "deny", Node: e.Node, Peer: e.From, Text: e.Text}, true
		}
	}
	return api.Event{}, false
}

// groups are those that are served, and those that never were since they are alone with errors.
func (a *adminFront) groups(src *dir.Source) (all []api.Group) {
	by := src.Summary().By
	names := slices.Collect(maps.Keys(by))
	rejected := map[string]*api.Rejected{}
	if alone := a.alone.Load(); alone != nil {
		for i := range *alone {
			r := &(*alone)[i]
			rejected[r.Group] = r
			names = append(names, r.Group)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		_, place := src.Rule(name)
		all = append(all, api.Group{Name: name, Resources: by[name], Place: place, Rejected: rejected[name]})
	}
	return all
}

// reloaded is what became of a load, as the API tells it.
func reloaded(r reloadsocket.Reload) api.Reload {
	return api.Reload{Files: r.Files, Resources: r.Resources, Set: r.Set, Removed: r.Removed, Held: r.Held, Errors: r.Errors, Groups: r.Groups, KeptGroups: r.KeptGroups, Kept: r.Kept}
}

// explains has the API ask the explainer.
type explains struct{ e *explain.Explainer }

func (x explains) Explain(ctx context.Context, node, typ, name string) (api.Explanation, error) {
	a, err := x.e.Explain(ctx, node, typ, name)
	return a, noSuch(err)
}

func (x explains) ClientResources(ctx context.Context, node, typ, name string, limit int) (api.ClientResources, error) {
	a, err := x.e.ClientResources(ctx, node, typ, name, limit)
	return a, noSuch(err)
}

func (x explains) Served(ctx context.Context, q admin.ResourceQuery) (api.ResourceList, error) {
	a, err := x.e.Served(ctx, explain.Query{Type: q.Type, Name: q.Name, Group: q.Group, Limit: q.Limit, Subscribers: q.Subscribers, Body: q.Name != ""})
	return a, noSuch(err)
}

func (x explains) Impact(ctx context.Context, changes api.ImpactRequest) (api.Impact, error) {
	a, err := x.e.Impact(ctx, changes)
	return a, noSuch(err)
}

func (x explains) Node(node string) (api.NodeInfo, error) {
	a, err := x.e.Node(node)
	return a, noSuch(err)
}

func (x explains) Wait(ctx context.Context, clients []api.Client) { x.e.Wait(ctx, clients) }

func (x explains) Blame(ctx context.Context, refusals []api.Refusal) []api.Refusal {
	return x.e.Blame(ctx, refusals)
}

// noSuch has an error say what there is not, in the words of the API.
func noSuch(err error) error {
	if e, ok := errors.AsType[*explain.NotFound](err); ok {
		return &admin.NotFound{Field: e.Field, Message: e.Message, Hint: e.Hint}
	}
	return err
}
