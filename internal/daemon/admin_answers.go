package daemon

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/cli"
	endpointsv1 "github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// adminServer returns the server of the admin API. The parts that answer its requests must exist.
func (d *daemon) adminServer() *admin.Server {
	src := d.source.files
	var otherServices []string
	if d.endpoints.registry != nil {
		otherServices = []string{endpointsv1.Endpoints_ServiceDesc.ServiceName}
	}
	answers := d.view.parts.Server(explain.Deps{
		Source: src(), Upstream: d.source.upstreamNote(), Undecided: undecidedForExplain(d.source), Store: storeForExplain(d.source), Frozen: frozenForExplain(d.source),
		Allowed:    d.identity.allowed(func(n *xds.Node) []string { return src().Decide(n).Groups }),
		Denied:     d.view.denied,
		Registered: d.endpoints.registered(),
		Sides:      diffSides(d.source),
	}, otherServices...)
	answers.About = d.about()
	answers.Version = api.VersionInfo{Version: cli.Version(), Revision: cli.Revision(), Go: runtime.Version()}
	answers.Config = d.source.config
	answers.Groups = func() []api.Group { return d.view.groups(src()) }
	answers.Reload, answers.Troubles = d.source.reload, d.troubles
	answers.Level, answers.GroupTime = &d.cfg.logging.Now, d.cfg.drain
	answers.Endpoints, answers.Revisions = d.endpoints.registry, revisionsOf(d.source, d.held)
	answers.TakenBack = takenBackOf(d.source)
	if d.replicas.all != nil {
		answers.Replicas = d.replicas.all
	}
	return answers
}

// troubles returns the signs of problems of this process, for the status.
func (d *daemon) troubles() []api.Trouble {
	return slices.Concat(admin.Troubles(api.NotStored, d.state.faults()), d.admin.callers.troubles(),
		admin.Troubles(api.RejectedTLS, d.xds.certs.Faults()), admin.Troubles(api.RejectedTLS, d.admin.certs.Faults()))
}

// about returns the description of this process.
func (d *daemon) about() api.Server {
	c := d.cfg
	a := api.Server{Version: cli.Version(), Replica: d.id, Since: time.Now(), XDS: d.xds.at(), Dir: c.dir, PID: os.Getpid(), ID: d.replicas.id, Control: d.admin.control.path()}
	if c.root != "" {
		a.Path, _ = filepath.Abs(c.root)
	}
	a.Host, _ = os.Hostname()
	a.Links, _ = pageLinks(c.admin.links) // the flags were checked
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
		rule, place := src.Rule(name)
		all = append(all, api.Group{Name: name, Resources: by[name], Rule: rule, Place: place, Rejected: rejected[name]})
	}
	return all
}
