package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/metrics"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/envoy"
	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A relaying is the upstream of a server that serves no directory.
type relaying struct {
	log      *slog.Logger
	store    *store.Store
	none     *dir.Source // of files
	upstream *xdsServer
	client   *client.Client
	source   *relay.Source
	secrets  *confidences
	refused  func() []relay.Refusal // what clients refuse, which the upstream is told; nil: it is not
}

// notOfRelay are the flags of serve that are about files.
var notOfRelay = []string{"validate", "max-file", "follow-links-outside", "empty-assignments", "allow-empty", "confirm-removals", "allow-mass-delete", "state-without-secrets"}

// noFileFlags refuses flags about files for what has none.
func noFileFlags(cmd *cobra.Command, arg string) error {
	for _, flag := range notOfRelay {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s is about files, and %s has none", flag, arg)
		}
	}
	return nil
}

// relayOf returns what is served of a URL. Its errors are of usage.
func relayOf(cmd *cobra.Command, arg string, s *serving) (*relaying, error) {
	if err := noFileFlags(cmd, arg); err != nil {
		return nil, err
	}
	var none xdsFlags
	up, err := none.server(arg)
	switch {
	case err != nil:
		return nil, err
	case s.passRefusals && !up.delta:
		// A NACK of SotW refuses all of a type, and a server may take for gone what it keeps back for that.
		return nil, errors.New("--pass-refusals needs an upstream that is asked by delta: " + arg + " does not say delta")
	case s.passRefusals && !s.quarantine:
		return nil, errors.New("--pass-refusals needs --quarantine, which finds out what is refused")
	}
	return &relaying{upstream: up}, nil
}

// clientConfig is a client of the upstream.
func (r *relaying) clientConfig(s *serving) (client.Config, error) {
	node, err := r.upstream.node(nil, s.types)
	if err != nil {
		return client.Config{}, err
	}
	t, err := r.upstream.transport(s.types)
	if err != nil {
		return client.Config{}, err
	}
	var way exposure
	if !s.insecureSecrets {
		way = exposed(&s.front, &s.rest)
	}
	readable, secrets := readable(s.types), internalsecret.NewFinder(s.types)
	check := func(r *xds.Resource) error {
		if err := readable(r); err != nil || way == (exposure{}) {
			return err
		}
		m, err := message(s.types, r)
		if err != nil {
			return err // nobody could find its secrets
		}
		return way.refuseAny(secrets, r, m)
	}
	return client.Config{
		Node: node, Servers: []client.Server{{Transport: t}}, Log: s.log,
		Check: func(res *xds.Resource) error {
			if err := check(res); err != nil || r.refused == nil {
				return err
			}
			return r.source.Check(res)
		},
	}, nil
}

// readable returns what says that a resource of a type that xDS knows is no such message, or calls itself
// otherwise than what is around it: a client that gets it without that would know it by the wrong name,
// and could get two of one name. Others are passed on as they are.
func readable(types *envoy.Types) func(*xds.Resource) error {
	return func(r *xds.Resource) error {
		if !r.Type.Known() {
			return nil
		}
		m, err := message(types, r)
		if err != nil || r.Type.Name == "" {
			return err
		}
		own := m.ProtoReflect()
		name := own.Get(own.Descriptor().Fields().ByName(protoreflect.Name(r.Type.Name))).String()
		if name != "" && xds.CanonicalName(name) != r.Name {
			return fmt.Errorf("resource %q is called %q in its body", r.Name, name)
		}
		return nil
	}
}

const unkeptHint = "--state-dir chooses another directory; an empty one stores nothing"

// keptClient is a client that keeps the last good of what is called so in a folder of root; "": nowhere. If it
// cannot, and nobody has chosen root, it keeps none, and warns.
func keptClient(cfg client.Config, root string, chosen bool, of string, warn func(error)) (*client.Client, error) {
	if root == "" {
		return client.New(cfg)
	}
	var err error
	if cfg.Dir, err = lastgood.Folder(root, of); err != nil {
		return nil, err
	}
	c, err := client.New(cfg)
	if err != nil && !chosen {
		warn(err)
		cfg.Dir = ""
		c, err = client.New(cfg)
	}
	return c, err
}

// open implements [source]: it begins to be a client, which asks for nothing yet.
func (r *relaying) open(s *serving, st *store.Store, m *procmetrics.Metrics, changed func()) (watched, error) {
	r.log, r.store, r.none = s.log, st, noFiles(s, st)
	const unkept = "what the upstream gives is not stored: a restart without it would serve nothing"
	if s.state.root == "" {
		s.log.Warn(unkept, "hint", "--state-dir")
	}
	cfg, err := r.clientConfig(s)
	if err != nil {
		return nil, err
	}
	cfg.Metrics = metrics.New(metrics.Options{Registry: m.Registry()})
	if r.client, err = keptClient(cfg, s.state.root, s.state.chosen, "/"+r.upstream.text, func(err error) {
		s.log.Warn(unkept, "error", err, "hint", "--state-dir")
	}); err != nil {
		return nil, fail(err, unkeptHint)
	}
	refs := references(s.types)
	r.secrets = newConfidences(s.types, func(t *xds.Type, name string) *xds.Resource {
		return st.Snapshot().View(store.DefaultGroup).Table(t).Lookup(name)
	})
	r.source = relay.New(st, r.client, relay.Options{
		Refs: func(of *xds.Resource) []xds.Ref {
			r.secrets.note(of, time.Now())
			return refs(of)
		},
		Refused: r.refused, Committed: func() { s.admin.committed(st); changed() }, Log: s.log, Owner: ownerOf,
		// The relay's node counts, too, and may be as large as any.
		Limits: relay.Limits{Types: s.limits.Types, Names: s.limits.Names, Held: s.limits.Held - min(s.limits.Node, s.limits.Held/2)},
	})
	return watchedOf[*relay.Watch](r.source), nil
}

// ownerOf says whose a stream is: an identity's, or else an address's.
func ownerOf(ctx context.Context) string {
	if who, _ := identityOf(ctx); who.Kind != access.None {
		return who.String()
	}
	if p, ok := peer.FromContext(ctx); ok {
		return fair.Owner(p.Addr)
	}
	return ""
}

// ready says why clients cannot be served; nil: they can.
func (r *relaying) ready() error {
	if r.source.Ready() {
		return nil
	}
	err := errors.New("the upstream " + r.upstream.text + " has not answered yet, and nothing of it is stored")
	if s := r.status(); s.Error != "" {
		err = fmt.Errorf("%w: %s", err, s.Error)
	}
	return err
}

// note says how the upstream is, for who asks about readiness.
func (r *relaying) note() string {
	s := r.status()
	switch {
	case s.Connected:
		return s.URL + ", connected since " + s.Since.UTC().Format(time.RFC3339)
	case s.Idle && r.source.Ready():
		return s.URL + ", which is asked for nothing now, as no client wants anything"
	case s.Since != nil:
		return "the last good of " + s.URL + ", which is lost since " + s.Since.UTC().Format(time.RFC3339) + ": " + s.Error
	case r.source.Ready():
		return "from disk (last good), the upstream " + s.URL + " is away"
	}
	return s.URL + ", which has not answered yet"
}

// load implements [source]: what the upstream has comes while it is served.
func (r *relaying) load(<-chan os.Signal) (bool, error) { return true, nil }

func (r *relaying) files() *dir.Source { return r.none }

func (r *relaying) known() bool { return r.source.Ready() }

func (r *relaying) redacted(t *xds.Type, text string) (string, bool) {
	return r.secrets.redacted(t, text, time.Now())
}

// away implements [source].
func (r *relaying) away() func() (string, bool) {
	return func() (string, bool) { return r.note(), r.source.Ready() }
}

func (r *relaying) reload(context.Context, bool) api.Reload {
	return api.Reload{Errors: []string{relayReload}}
}

// status says what the upstream is, and how it is.
func (r *relaying) status() api.Upstream {
	u := api.Upstream{URL: r.upstream.text}
	servers := r.client.Servers()
	u.Idle = len(servers) == 0
	for _, s := range servers {
		u.Connected = s.Connected
		if !s.Since.IsZero() {
			u.Since = &s.Since
		}
		if s.Err != nil {
			u.Error, u.ErrorAt = clipped([]string{strings.TrimPrefix(s.Err.Error(), s.Server+": ")}), &s.ErrAt
		}
	}
	for _, s := range r.client.Dump() {
		if s.State == client.Nacked {
			u.Refused++
		}
	}
	return u
}

// config says what is served.
func (r *relaying) config() api.Config {
	u := r.status()
	c := api.Config{Upstream: &u, Groups: 1}
	for _, t := range r.store.Snapshot().View(store.DefaultGroup) {
		for range t.All() {
			c.Resources++
		}
	}
	if newest, ok := r.store.Newest(); ok {
		c.Revision, c.At = newest.Seq, &newest.Time
	}
	return c
}

// run implements [source].
func (r *relaying) run(ctx context.Context, running *sync.WaitGroup, _ <-chan os.Signal) {
	running.Go(func() {
		r.source.Run(ctx)
		if err := r.client.Close(); err != nil {
			r.log.Warn("the client of the upstream does not close", "error", err)
		}
	})
}

// noFiles is the directory of a server that has none: it says of each resource that it is in no file.
func noFiles(s *serving, st *store.Store) *dir.Source {
	return dir.New("", st, dir.Options{Log: s.log, Types: s.types})
}
