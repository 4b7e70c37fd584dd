package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/daemon/health"
	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A serving is what chancery serve is told by its flags.
type serving struct {
	dir             string
	source          source
	at              storeclient.Flags
	replicas        replicating
	shedding        shedding
	streams         func() int // open now
	storeWrite      bool       // commits of the admin API are taken
	storeKeep       int        // revisions that its sweeps keep; 0: it sweeps nothing
	front           front
	rest            restFront
	identity        identifying
	admin           adminFront
	endpoints       registering
	limits          bounding
	manner          manner
	monitor         string
	monitorAt       listen.Address // monitor, parsed
	insecureSecrets bool
	emptyMissing    bool
	validate        bool
	quarantine      bool
	passRefusals    bool
	drain           time.Duration
	drainDelay      time.Duration
	sets            []string
	types           *envoy.Types
	maxFile         int64
	followOutside   bool
	allowMassDelete bool
	allowEmpty      bool
	confirm         time.Duration
	state           state
	logging         cli.LogFlags
	log             *slog.Logger
	stderr          io.Writer
}

func Command() *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use:   "serve DIR|xds://UPSTREAM|[DIR] --store URL",
		Short: "Serve the configuration in a directory or a store, or relay another xDS server's",
		Long: `Serve loads all files of resources in DIR and its subdirectories, and serves the
resources to xDS clients over gRPC: SotW and delta, aggregated (ADS) and per type;
with --rest-listen over REST-JSON, too.

A file contains resources in the format of Envoy's own configuration files:

  - one resource, with "@type";
  - a DiscoveryResponse: a list under "resources:", of one or more types;
  - the protocol's Resource, which can set a name, aliases, a TTL or a version.

Files are YAML (.yaml, .yml; one or more documents), JSON (.json), or protobuf in
text (.txtpb, .textproto, .pb_text) or binary (.pb), which contain a
DiscoveryResponse. Serve skips files and directories whose names begin with "." or
"_". Unknown fields are errors.

A directory in DIR with a file group.yaml is a group, with all below it: the file
says which nodes get it (docs/groups.md). DIR itself is the group of all other nodes.

When a file changes, serve loads all files again. If one of them has an error, serve
logs the error with its location and keeps the previous configuration. After a
restart it does the same, with the last good configuration, which it stores in
--state-dir. If nothing is stored there, an error at the start ends the program.
While a directory has never had a resource, clients get no response: serve does not
tell them that all their resources are removed.
A group whose group.yaml has "on_error: alone" is loaded, or keeps its previous
configuration, by itself.

A load that removes the last file, or leaves less than half of the resources that a
type (of 20 or more) had in the last 10 minutes, is rejected, because an unmounted
volume looks the same. "chancery reload --allow-mass-delete" allows it. A load that
removes more than a tenth waits for --confirm-removals.

Serve reads TLS files again when they change. Unix sockets never use TLS: the mode of
the file, 0660, decides who may connect. Secrets, in resources of any type, are sent
to other machines only over TLS and only to clients with certificates (--client-ca),
unless --insecure-secrets is given.

With --client-ca a client may only be the node that its certificate names: by a DNS
name, a URI, or the last segment of its SPIFFE ID. Rules (--access FILE) can say
otherwise; --access any allows any node (docs/identity.md).

In place of DIR there may be another xDS server, of whatever make: xds://HOST:PORT. Serve
is a relay then: it asks that server once for what any of its clients wants, keeps the
last good in --state-dir, and serves that while the server is away (docs/relay.md). After
a ? there may be flags of the fetch command: xds://HOST:PORT?delta&node=ID&tls-ca=FILE

With --endpoints, programs register endpoints of clusters by the admin API while serve
runs, with a lease or without ("chancery endpoints", docs/endpoints.md).

With --store URL there is no DIR: serve has its configuration from a store, into which
"chancery apply" commits revisions, and serves each as a whole when it is committed. Any
number of servers may serve one store. With --store-write, "chancery apply" may ask the admin
API of the server to commit. With DIR, too, one of the servers, which they elect, commits what DIR
says when that has changed. While the store is away, they serve on; after a
restart, too: the last good is in --state-dir (docs/revisions.md).

An environment variable can replace each flag: CHANCERY_LISTEN for --listen,
CHANCERY_MAX_FILE for --max-file. If both are given, the flag is used. A SIZE is a
number of bytes, or a number with a unit: 67108864, 64MiB, 64MB.

Signals: SIGHUP reloads at once, also during shutdown. SIGTERM and SIGINT shut the
server down: it is not ready from then on, and after --drain-delay it sends its
clients elsewhere, closes their streams one by one within --drain, and exits. A
second SIGTERM or SIGINT makes it exit at once.

Exit codes: 0 ended by a signal; 1 the files cannot be loaded, or an address
cannot be listened on; 2 wrong usage.`,
		Example: `  chancery serve ./config
  chancery serve /etc/chancery --listen 0.0.0.0:18000 --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt
  chancery serve /etc/chancery --listen unix:///run/chancery/xds.sock --metrics-listen 127.0.0.1:9090
  chancery serve 'xds://upstream:18000?delta&node=relay-1' --listen 0.0.0.0:18000
  chancery serve --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("serve needs one directory or xds:// URL, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s.admin.chosen = cmd.Flags().Changed("admin-listen") || s.admin.guarded()
			if err := s.check(cmd.Flags().Changed); err != nil {
				return err
			}
			var err error
			s.dir, s.stderr = strings.Join(args, ""), cmd.ErrOrStderr()
			if s.source, err = sourceOfServe(cmd, &s); err != nil {
				return err
			}
			if err := s.endpoints.check(&s); err != nil {
				return err
			}
			s.state.chosen = cmd.Flags().Changed("state-dir")
			if s.log, err = s.logging.Open(s.stderr); err != nil {
				return err
			}
			defer s.logging.Close()
			s.log = slog.New(raises{s.log.Handler()})
			return s.run()
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	cli.TitledFlags(f, "Listening and TLS", func(f *pflag.FlagSet) { s.front.flags(f, &s.rest.address, &s.insecureSecrets, &s.monitor) })
	cli.TitledFlags(f, "Identity", s.identity.flags)
	cli.TitledFlags(f, "Admin API", func(f *pflag.FlagSet) { s.admin.flags(f); s.endpoints.flags(f) })
	cli.TitledFlags(f, "Store", s.storeFlags)
	cli.TitledFlags(f, "Files", s.fileFlags)
	cli.TitledFlags(f, "Loading and removing", s.loading)
	cli.TitledFlags(f, "Clients", func(f *pflag.FlagSet) { s.manner.flags(f); s.front.ageFlags(f); s.shedding.flags(f); s.draining(f) })
	s.limits.flags(f)
	cli.TitledFlags(f, "Log", s.logging.Register)
	cli.TitledUsage(cmd, "\"chancery help limits\" lists the flags that limit what clients may do.")
	return cmd
}

func (s *serving) storeFlags(f *pflag.FlagSet) {
	s.at.Register(f)
	s.replicas.flags(f)
	f.BoolVar(&s.storeWrite, "store-write", false, "let those who show who they are (unix socket, token or client certificate) commit to the store by the admin API, freeze groups, and change rollouts")
	f.IntVar(&s.storeKeep, "store-keep", 0, "keep the last `NUMBER` of revisions in the store, and those since one that a group is frozen at, and sweep older ones, once an hour at most; 0: sweep nothing")
}

func (s *serving) fileFlags(f *pflag.FlagSet) {
	f.BoolVar(&s.validate, "validate", false, "report what Envoy would refuse as an error, as chancery check does, and keep the previous configuration")
	dirload.ProtoSetFlag(f, &s.sets)
	cli.SizeFlag(f, &s.maxFile, "max-file", 64<<20, "maximum `SIZE` of a file")
	dirload.FollowLinksFlag(f, &s.followOutside)
	f.BoolVar(&s.emptyMissing, "empty-assignments", false, "send empty endpoints (ClusterLoadAssignment) for EDS clusters whose endpoints are in no file, so that Envoy does not wait for them")
}

func (s *serving) loading(f *pflag.FlagSet) {
	s.state.flags(f)
	f.BoolVar(&s.allowEmpty, "allow-empty", false, "serve a directory without resources: clients lose all resources that they have")
	f.DurationVar(&s.confirm, "confirm-removals", 5*time.Second, "`time` that resources must be missing from the files before they are removed, if they are more than a tenth of a type; 0: remove at once")
	f.BoolVar(&s.allowMassDelete, "allow-mass-delete", false, "allow every load to remove more than half of a type, or everything, at once; chancery reload --allow-mass-delete allows one load")
}

func (s *serving) draining(f *pflag.FlagSet) {
	f.BoolVar(&s.quarantine, "quarantine", true, "when a client refuses a response, find out which resource is at fault, and send the others without it: the client keeps what it accepted last of that resource; =false: nothing of the response is sent again before it changes")
	f.BoolVar(&s.passRefusals, "pass-refusals", false, "tell the upstream of a relay, which is asked by delta, what clients refuse and why: it may keep it from all clients then")
	f.DurationVar(&s.drain, "drain", 5*time.Second, "`time` over which streams are closed at shutdown")
	f.DurationVar(&s.drainDelay, "drain-delay", 0, "`time` at shutdown in which the server is not ready but still serves, so that load balancers notice")
}

// check parses the addresses; an error is one of usage. given says which flags were.
func (s *serving) check(given func(flag string) bool) error {
	if s.monitor != "" {
		var err error
		if s.monitorAt, err = listen.Parse(s.monitor); err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
	}
	if err := errors.Join(dirload.CheckMaxFile(s.maxFile), s.limits.check(given), s.manner.check()); err != nil {
		return err
	}
	for _, t := range []timeFlag{{"confirm-removals", s.confirm, 0, longest}, {"drain", s.drain, 0, longest}, {"drain-delay", s.drainDelay, 0, longest}} {
		if err := t.check(); err != nil {
			return err
		}
	}
	if err := s.rest.check(); err != nil {
		return err
	}
	if s.storeKeep < 0 || s.storeKeep > 0 && s.at.URL == "" {
		return errors.New("--store-keep: needs a --store, and must not be negative")
	}
	if s.storeWrite && s.at.URL == "" {
		return errors.New("--store-write: needs a --store, to which commits go")
	}
	if err := s.front.check(); err != nil {
		return err
	}
	if err := errors.Join(s.admin.check(), s.replicas.check(s), s.shedding.check(s)); err != nil {
		return err
	}
	if err := s.identity.check(s.front.tls.ClientCA); err != nil {
		return err
	}
	return s.checkAddresses()
}

// run serves until a signal ends it.
func (s *serving) run() error {
	// From now on, so that no signal is lost while files are loaded.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	var err error
	if s.types, err = dirload.ReadProtoSets(s.sets); err != nil {
		return err
	}
	s.limits.within(limitMemory(s.log))
	s.log.Info("limits derived from memory", "max_held_total", s.limits.HeldInAll, "max_unfinished", s.limits.Unfinished, "max_request", s.limits.request)
	limit := s.raiseFiles()
	st := store.New(s.endpoints.store()...)
	m := procmetrics.New(procmetrics.Options{Version: cli.Version(), Revision: cli.Revision(), Snapshot: st.Snapshot, Newest: st.Newest})
	observers := []server.Observer{m}
	traced, err := openTraces(s.log, st)
	if err != nil {
		return err
	}
	if traced != nil {
		defer closeTraces(s.log, traced)
		observers = append(observers, traced)
	}
	host, _ := os.Hostname()
	id := identifier(host)
	files := s.source.files
	var held *quarantine.Source // nil: nothing is
	if s.quarantine {
		held = s.quarantined(st, files)
		s.passUp(held)
	}
	s.admin.track(files, st.Snapshot, keptBy(held))
	if len(s.admin.parsed) > 0 || s.at.URL != "" { // rollouts of a store look at clients, too
		observers = append(observers, s.admin.tracker)
	}
	if len(s.admin.parsed) > 0 {
		s.identity.note, s.identity.turned = s.admin.tracker.Note, s.admin.tracker.TurnAway
		s.front.handshakes.Note = func(peer, reason, text string) {
			s.admin.tracker.TurnAway(api.TurnedAway{Kind: "handshake", From: peer, Text: reason + ": " + text})
		}
		m.Clients(s.admin.standings())
	}
	place := func(n *xds.Node, t *xds.Type, name string) string { return files().PlaceFor(n, t, name) }
	redact := func(_ *xds.Node, t *xds.Type, text string) (string, bool) { return s.source.redacted(t, text) }
	loads := make(chan struct{}, 1) // rings when there may be something else to serve
	shown, err := s.source.open(s, st, m, func() { traced.Committed(); ring(loads) })
	if err != nil {
		return err
	}
	if err := s.identity.open(context.Background(), s.log, shown, s.front.plain()); err != nil {
		return err
	}
	var seen server.Source[server.Watch] = &s.identity
	if held != nil {
		seen, observers = held, append(observers, held)
		m.Quarantined(held.Held, held.Searches)
	}
	xds := server.New(seen, append(slices.Concat(s.limits.options(), s.manner.options(), s.fresh()),
		server.WithLogger(s.log),
		server.WithObserver(server.Observers(observers...)),
		server.WithDrainTime(max(s.drain-handover, s.drain/2)), // from the signal on it is --drain
		server.WithAge(s.front.age),
		server.WithIdentifier(func() string { return id }),
		server.WithPlaces(place),
		server.WithRedactor(redact))...)
	m.Server(xds.Stats)
	s.streams = func() int { return xds.Stats().Open }
	m.Log(s.logging.Lines.Lost)
	s.front.handshakes.Log = s.log
	m.Handshakes(s.front.handshakes.Counts)
	clients, probes := s.connections(limit, m)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	var unready atomic.Pointer[string] // why
	unready.Store(new("the configuration is not loaded yet"))
	if s.monitor != "" {
		l, err := s.monitorAt.Open(ctx)
		if err != nil {
			return cli.Fail(err, "--metrics-listen chooses another address")
		}
		h := &health.Server{Metrics: m.Handler(), Log: s.log}
		h.Check("serving", func() error {
			if why := unready.Load(); why != nil {
				return errors.New(*why)
			}
			return s.source.ready()
		})
		h.Note("configuration", s.source.note)
		running.Go(func() {
			if err := h.Serve(ctx, probes.On(l)); err != nil {
				s.log.Error("the metrics listener failed", "error", err)
			}
		})
		s.log.Info("metrics and health", "http", l.Addr().String(), "profiles", listen.Loopback(l.Addr()))
	}

	if loaded, err := s.source.load(signals); !loaded {
		return err
	}
	if err := s.endpoints.open(ctx, s, st, &running); err != nil {
		return err
	}
	if err := s.front.open(s.log, s.types, xds, clients, s.limits.transport()); err != nil {
		return err
	}
	defer s.front.close()
	if s.front.certs != nil {
		m.TLS(s.front.certs.FirstExpiry)
	}
	if err := s.rest.open(s.log, s.types, xds, clients, &s.front); err != nil {
		return err
	}
	defer s.rest.close()
	if err := s.admin.open(s.log, limit.Reserve()/4); err != nil {
		return err
	}
	s.source.run(ctx, &running, hangups)
	s.identity.run(ctx, running.Go)
	if held != nil {
		running.Go(func() { held.Run(ctx) })
	}
	if s.shedding.wanted && s.replicas.all != nil {
		m.Shed(s.shedding.ended.Load)
		running.Go(func() { s.shedding.run(ctx, s, clients) })
	}
	xds.SetServing(s.source.known())
	served, polled := s.front.serve(), s.rest.serve()
	s.admin.serve(ctx, &running, s.adminServer(id, st, held)) // until the last stream has ended
	unready.Store(nil)
	s.log.Info("serving", "xds", s.front.at(), "tls", s.front.tls.Configured(), "client_certificates", s.front.tls.ClientCA != "", "bound", s.identity.bound, "dir", s.dir)
	if s.rest.address != "" {
		s.log.Info("serving REST-JSON", "http", s.rest.at(), "tls", s.front.secure(s.rest.parsed))
	}

	for {
		select {
		case <-loads:
			xds.SetServing(s.source.known())
		case err := <-served:
			return cli.Fail(fmt.Errorf("serve: %w", err), "")
		case err := <-polled:
			return cli.Fail(fmt.Errorf("serve REST-JSON: %w", err), "")
		case sig := <-signals:
			unready.Store(new("the server is shutting down"))
			xds.SetServing(false)
			s.log.Info("shutting down: closing streams", "signal", sig.String(), "streams", xds.Stats().Open, "within", s.drain.String(), "after", s.drainDelay.String())
			return s.end(xds, signals)
		}
	}
}

// end ends the streams, at once if another signal comes. "Not ready first, then
// GOAWAY, then streams, spread over time." (SAFE-12)
func (s *serving) end(xds *server.Server, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("second signal: %v", sig))
		case <-ctx.Done():
		}
	}()
	wait(ctx, s.drainDelay)
	s.front.goAway()
	s.rest.goAway()
	if xds.Stats().Open > 0 {
		wait(ctx, handover)
	}
	if err := xds.Drain(ctx); err != nil {
		return cli.Fail(fmt.Errorf("exited at once: %w", err), "")
	}
	s.front.finish(ctx)
	s.log.Info("ended")
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
