package daemon

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclients "github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/daemon/trace"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// services are shared by the sources and the parts of a server.
type services struct {
	log     *slog.Logger
	types   *envoy.Types
	store   *store.Store
	metrics *procmetrics.Metrics
	view    *view
	exposed dirload.Exposure // how the listeners would expose secrets; the zero value: they do not, or the flags allow it
	changed func()           // called when the configuration may have changed
}

// A daemon holds the parts of a server. Only build, run and the admin API of this package see all of
// them: each part gets only what it needs.
type daemon struct {
	services

	cfg       *Config
	id        string        // control_plane.identifier of responses
	traced    *trace.Traces // nil: tracing is off
	source    source
	shown     watchFunc          // opens the watches of the source that clients see
	state     *state             // the last good configuration on disk
	replicas  *replicaList       // the other servers of the store
	identity  *identityFinder    // decides which client may be which node
	held      *quarantine.Source // withholds resources that clients refuse; nil: --quarantine=false
	server    *server.Server
	shedding  *shedder // nil: --shed-surplus is off
	xds       *xdsListeners
	rest      *restListener
	admin     *adminListeners
	endpoints *endpointServer

	room            listen.Files  // number of connections that the limit of open files allows
	clients, probes *listen.Limit // limits of connections: of xDS clients; of health and metrics

	tracked        bool          // the tracker follows the clients
	loads          chan struct{} // receives a value when the configuration may have changed
	served, polled <-chan error  // failures of the listeners of xDS and of REST-JSON
	unready        atomic.Pointer[string]
}

// build makes the parts of a server without starting them: no goroutine serves, and no listener is
// open. Its side effects, in this order: it reads --proto-set, sets the memory limit of Go, raises
// the limit of open files, connects to the collector of traces, opens the store or the client of the
// upstream, and reads the access rules and the keys of tokens.
//
// If build fails after it has opened the traces, it returns the daemon with the error, so that the
// caller can close the traces.
func build(c *Config, log *slog.Logger, stderr io.Writer) (*daemon, error) {
	d := &daemon{
		cfg: c, loads: make(chan struct{}, 1),
		state:     &state{stateFlags: c.state},
		replicas:  &replicaList{replicaFlags: c.store.replicas},
		identity:  &identityFinder{identityFlags: c.identity},
		xds:       &xdsListeners{listenFlags: c.listening},
		rest:      &restListener{restFlags: c.rest},
		admin:     &adminListeners{adminFlags: c.admin},
		endpoints: &endpointServer{endpointFlags: c.endpoints},
	}
	if path := c.admin.token; path != "" {
		d.admin.lastToken = newTokenFile(func() (string, error) { return readToken(path) }, log).Token
	}
	d.unready.Store(new("the configuration is not loaded yet"))
	host, _ := os.Hostname()
	d.id = identifier(host)
	if err := d.buildServices(log); err != nil {
		return nil, err
	}
	var err error
	d.traced, err = openTraces(log, d.store)
	if err != nil {
		return nil, err
	}
	files := func() *dir.Source { return d.source.files() } // the source exists before the first client connects
	wired := wiring.Options{
		Log: log, Types: d.types, Snapshot: d.store.Snapshot, Newest: d.store.Newest, Moved: d.refusalsChanged(), Revision: d.revisionOf,
		Source: func() explain.Source { return files() },
		Place:  func(n *xds.Node, t *xds.Type, name string) string { return files().PlaceFor(n, t, name) },
	}
	if c.quarantine {
		wired.Withholds = d.identity
	}
	d.view.parts = wiring.New(wired)
	d.view.tracker, d.held = d.view.parts.Tracker, d.view.parts.Held
	d.source, d.shown, err = d.buildSource(stderr)
	if err != nil {
		return d, err
	}
	if err := d.buildIdentity(); err != nil {
		return d, err
	}
	d.buildServer()
	d.buildMetrics()
	return d, nil
}

// buildServices makes the services that the parts share.
func (d *daemon) buildServices(log *slog.Logger) (err error) {
	c := d.cfg
	d.log, d.view, d.exposed = log, new(view), c.exposed()
	var left []error
	d.types, left = envoy.LoadUsable(c.files.sets...)
	for _, err := range left {
		log.Error("descriptors of --proto-set left out", "error", err)
	}
	c.limits.deriveFrom(cli.LimitMemory(log))
	log.Info("limits derived from memory", "max_held_total", c.limits.HeldInAll, "max_unfinished", c.limits.Unfinished, "max_request", c.limits.request, "max_streams", c.limits.Streams)
	d.room = raiseFiles(log)
	d.store = store.New(c.endpoints.store()...)
	d.metrics = procmetrics.New(procmetrics.Options{
		Version: cli.Version(), Revision: cli.Revision(), Snapshot: d.store.Snapshot, Newest: d.store.Newest,
		Group: func(n *xds.Node) string { return firstGroup(d.source.files().Decide(n).Groups) }, // the source exists before the first client
	})
	d.changed = func() { d.traced.Committed(); notify(d.loads) }
	return nil
}

// buildSource makes the source, and the function that opens watches of it.
func (d *daemon) buildSource(stderr io.Writer) (source, watchFunc, error) {
	c := d.cfg
	switch {
	case c.store.at.URL != "":
		src, err := newStoreSource(d.services, c, d.state, d.replicas, self{admin: d.admin.urlFor, token: d.admin.lastToken, streams: d.open})
		if err != nil {
			return nil, nil, err
		}
		if d.held != nil {
			src.accepted = revsource.NewAccepted(src.engine, src.repo, d.held.Evidence(), d.nameInStore(), d.log)
		}
		return src, watchFuncOf[*store.Watch](d.store), nil
	case c.upstream != nil:
		src, err := newRelaySource(d.services, c.upstream, c.state, &c.limits, d.refusals())
		if err != nil {
			return nil, nil, err
		}
		return src, watchFuncOf[*relay.Watch](src.source), nil
	}
	src := &directorySource{services: d.services, dir: c.dir, flags: c.files, state: d.state, stderr: stderr}
	return src, watchFuncOf[*store.Watch](d.store), nil
}

// nameInStore returns the name of this server's part of shared evidence. With a state directory it stays the same
// after a restart.
func (d *daemon) nameInStore() string {
	host, _ := os.Hostname()
	if d.state.keeper != nil {
		if name, err := d.state.keeper.ServerName(); err == nil {
			return host + " " + name
		}
	}
	return host + " " + rand.Text()
}

// open returns the number of open streams.
func (d *daemon) open() int { return d.server.Stats().Open }

// buildIdentity reads the access rules and the keys of tokens.
func (d *daemon) buildIdentity() error {
	if d.admin.served() {
		d.identity.note, d.identity.turnedAway = d.view.tracker.Note, d.view.tracker.NoteTurnedAway
		d.xds.handshakes.Note = func(peer, reason, text string) {
			d.view.tracker.NoteTurnedAway(api.TurnedAway{Kind: "handshake", From: peer, Text: reason + ": " + text})
		}
	}
	d.xds.handshakes.Log = d.log
	return d.identity.open(context.Background(), d.log, d.shown, d.xds.plain())
}

// buildServer makes the xDS server. Between the source and the server are the identities and the quarantine.
func (d *daemon) buildServer() {
	c := d.cfg
	d.clients, d.probes = connectionLimits(d.log, c.limits.connections, c.limits.room, d.room, d.metrics)
	observers := []server.Observer{d.metrics, settler{d.clients}}
	if d.traced != nil {
		observers = append(observers, d.traced)
	}
	if d.admin.served() || c.store.at.URL != "" { // rollouts of a store count the answers of clients, too
		observers, d.tracked = append(observers, d.view.tracker), true
	}
	var seen server.Source[server.Watch] = d.identity
	if d.held != nil {
		seen, observers = d.held, append(observers, d.held)
	}
	d.server = server.New(seen, append(slices.Concat(c.limits.options(), c.clients.options(), catchUpOptions(d.source)),
		server.WithLogger(d.log),
		server.WithObserver(server.Observers(observers...)),
		server.WithDrainTime(max(c.drain-goAwayDelay, c.drain/2)), // the drain and goAwayDelay together take --drain from the signal on
		server.WithAge(c.listening.age),
		server.WithIdentifier(func() string { return d.id }),
		server.WithPlaces(func(n *xds.Node, t *xds.Type, name string) string { return d.source.files().PlaceFor(n, t, name) }),
		server.WithSuspects(d.view.parts.Suspects),
		server.WithRedactor(func(_ *xds.Node, t *xds.Type, text string) (string, bool) { return d.source.redacted(t, text) }))...)
	if c.shed.wanted && d.replicas.all != nil {
		d.shedding = &shedder{log: d.log, others: d.replicas.all, streams: d.open, clients: d.clients, all: d.allStreams}
	}
}

func (d *daemon) allStreams() []*server.Stream {
	return d.view.tracker.Selected(adminclients.Filter{All: true})
}

// buildMetrics connects the metrics to the parts that they read.
func (d *daemon) buildMetrics() {
	if d.admin.served() {
		d.metrics.Clients(d.view.standings())
	}
	if d.held != nil {
		d.metrics.Quarantined(d.held.Held, d.held.Early, d.held.Searches)
	}
	if d.shedding != nil {
		d.metrics.Shed(d.shedding.ended.Load)
	}
	d.metrics.Server(d.server.Stats)
	d.metrics.Log(d.cfg.logging.Lines.Lost)
	d.metrics.Handshakes(d.xds.handshakes.Counts)
}
