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
	"github.com/chancery-xds/chancery/internal/listen/reloadsocket"
	endpointsv1 "github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/web"
	"github.com/chancery-xds/chancery/xds"
)

// adminServer returns the server of the admin API. The parts that answer its requests must exist.
func (d *daemon) adminServer() *admin.Server {
	src := d.source.files
	var otherServices []string
	if d.endpoints.registry != nil {
		otherServices = []string{endpointsv1.Endpoints_ServiceDesc.ServiceName}
	}
	clients := csds.New(csds.Options{Types: d.types, Clients: live.Clients(d.view.tracker, heldForCSDS(d.held)), OtherServices: otherServices, Log: d.log})
	answers := &admin.Server{
		About:   d.about(),
		Version: api.VersionInfo{Version: cli.Version(), Revision: cli.Revision(), Go: runtime.Version()},
		Config:  d.source.config,
		Groups:  func() []api.Group { return d.view.groups(src()) },
		Tracker: d.view.tracker,
		Explainer: explainerAPI{explain.New(explain.Deps{
			Tracker: d.view.tracker, Source: src(), Snapshot: d.store.Snapshot, Upstream: d.source.upstreamNote(), Undecided: undecidedForExplain(d.source), Store: storeForExplain(d.source), Frozen: frozenForExplain(d.source),
			Allowed:    d.identity.allowed(func(n *xds.Node) []string { return src().Decide(n).Groups }),
			Held:       heldForExplain(d.held),
			Denied:     d.view.denied,
			Registered: d.endpoints.registered(),
			Selected:   func() []*server.Stream { return d.view.tracker.Selected(adminclients.Filter{All: true}) },
		})},
		Reload:    d.source.reload,
		Endpoints: d.endpoints.registry,
		Revisions: revisionsOf(d.source, d.held),
		Dump:      clients.ConfigDump(),
		GRPC:      clients.GRPC(),
		Page:      web.Files(),
		Level:     &d.cfg.logging.Now,
		GroupTime: d.cfg.drain,
		Log:       d.log,
	}
	if d.held != nil {
		answers.Release = d.held.Release
	}
	answers.TakenBack = takenBackOf(d.source)
	if d.replicas.all != nil {
		answers.Replicas = d.replicas.all
	}
	return answers
}

// about returns the description of this process.
func (d *daemon) about() api.Server {
	c := d.cfg
	a := api.Server{Version: cli.Version(), Replica: d.id, Since: time.Now(), XDS: d.xds.at(), Dir: c.dir, PID: os.Getpid(), ID: d.replicas.id, Control: d.admin.control.path()}
	if c.root != "" {
		a.Path, _ = filepath.Abs(c.root)
	}
	a.Host, _ = os.Hostname()
	return a
}

// denied returns the last denial of a node; false if none is stored.
func (v *view) denied(node string) (api.Event, bool) {
	for _, e := range v.tracker.TurnedAway(logText(node)) {
		if e.Kind == "denied" {
			return api.Event{At: e.At, Kind: "deny", Node: e.Node, Peer: e.From, Text: e.Text}, true
		}
	}
	return api.Event{}, false
}

// groups returns the served groups, and the groups with "on_error: alone" that were never served
// because of their errors.
func (v *view) groups(src *dir.Source) (all []api.Group) {
	by := src.Summary().ByGroup
	names := slices.Collect(maps.Keys(by))
	rejected := map[string]*api.Rejected{}
	if alone := v.rejectedGroups.Load(); alone != nil {
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

// reloadAnswer converts the result of a reload for the admin API.
func reloadAnswer(r reloadsocket.Reload) api.Reload {
	return api.Reload{Files: r.Files, Resources: r.Resources, Set: r.Set, Removed: r.Removed, Held: r.Held, Errors: r.Errors, Groups: r.Groups, KeptGroups: r.KeptGroups, Kept: r.Kept}
}

// An explainerAPI lets the admin API ask the explainer.
type explainerAPI struct{ e *explain.Explainer }

func (x explainerAPI) Explain(ctx context.Context, node, typ, name string) (api.Explanation, error) {
	a, err := x.e.Explain(ctx, node, typ, name)
	return a, notFound(err)
}

func (x explainerAPI) ClientResources(ctx context.Context, node, typ, name string, limit int) (api.ClientResources, error) {
	a, err := x.e.ClientResources(ctx, node, typ, name, limit)
	return a, notFound(err)
}

func (x explainerAPI) Served(ctx context.Context, q admin.ResourceQuery) (api.ResourceList, error) {
	a, err := x.e.Served(ctx, explain.Query{Type: q.Type, Name: q.Name, Group: q.Group, Limit: q.Limit, Offset: q.Offset, Subscribers: q.Subscribers, Body: q.Name != ""})
	return a, notFound(err)
}

func (x explainerAPI) Impact(ctx context.Context, changes api.ImpactRequest) (api.Impact, error) {
	a, err := x.e.Impact(ctx, changes)
	return a, notFound(err)
}

func (x explainerAPI) Node(node string) (api.NodeInfo, error) {
	a, err := x.e.Node(node)
	return a, notFound(err)
}

func (x explainerAPI) Unused(name string) string { return x.e.Unused(name) }

func (x explainerAPI) Wait(ctx context.Context, clients []api.Client) { x.e.Wait(ctx, clients) }

func (x explainerAPI) Blame(ctx context.Context, refusals []api.Refusal) []api.Refusal {
	return x.e.Blame(ctx, refusals)
}

// notFound converts the not-found error of the explainer into that of the admin API.
func notFound(err error) error {
	if e, ok := errors.AsType[*explain.NotFound](err); ok {
		return &admin.NotFound{Field: e.Field, Message: e.Message, Hint: e.Hint}
	}
	return err
}
