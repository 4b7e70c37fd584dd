package daemon

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

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/metrics"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
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
	upstream *xdsclient.Server
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
	var none xdsclient.Flags
	up, err := none.Server(arg)
	switch {
	case err != nil:
		return nil, err
	case s.passRefusals && !up.Delta:
		// A NACK of SotW refuses all of a type, and a server may take for gone what it keeps back for that.
		return nil, errors.New("--pass-refusals needs an upstream that is asked by delta: " + arg + " does not say delta")
	case s.passRefusals && !s.quarantine:
		return nil, errors.New("--pass-refusals needs --quarantine, which finds out what is refused")
	}
	return &relaying{upstream: up}, nil
}

// clientConfig is a client of the upstream.
func (r *relaying) clientConfig(s *serving) (client.Config, error) {
	node, err := r.upstream.Node(nil, s.types)
	if err != nil {
		return client.Config{}, err
	}
	t, err := r.upstream.Transport(s.types)
	if err != nil {
		return client.Config{}, err
	}
	var way dirload.Exposure
	if !s.insecureSecrets {
		way = exposed(&s.front, &s.rest)
	}
	readable, secrets := xdsclient.BodyCheck(s.types), internalsecret.NewFinder(s.types)
	check := func(r *xds.Resource) error {
		if err := readable(r); err != nil || way == (dirload.Exposure{}) {
			return err
		}
		m, err := xdsclient.Unmarshal(s.types, r)
		if err != nil {
			return err // nobody could find its secrets
		}
		return way.RefuseAny(secrets, r, m)
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
	if r.client, err = xdsclient.NewKeptClient(cfg, s.state.root, s.state.chosen, "/"+r.upstream.Text, func(err error) {
		s.log.Warn(unkept, "error", err, "hint", "--state-dir")
	}); err != nil {
		return nil, cli.Fail(err, xdsclient.StateDirHint)
	}
	refs := xdsclient.References(s.types)
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
	err := errors.New("the upstream " + r.upstream.Text + " has not answered yet, and nothing of it is stored")
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
	return api.Reload{Errors: []string{cli.RelayReload}}
}

// status says what the upstream is, and how it is.
func (r *relaying) status() api.Upstream {
	u := api.Upstream{URL: r.upstream.Text}
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
