package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/metrics"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/disk"
	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A relaySource serves the resources of another xDS server, the upstream.
type relaySource struct {
	services

	none     *dir.Source // a source without files, for the parts that need one
	upstream *xdsclient.Server
	client   *client.Client
	source   *relay.Source
	secrets  *internalsecret.Known
	held     xds.MemoryLimit // of all resources of the upstream

	looks   disk.Reads                   // calls of look, which wait for the client
	seen    atomic.Pointer[api.Upstream] // the result of the last look
	refused func() []relay.Refusal       // returns the refusals of clients, for the upstream; nil: they are not reported
}

// fileFlagNames are the flags of serve about files.
var fileFlagNames = []string{"load-at-once", "validate", "max-file", "follow-links-outside", "empty-assignments", "allow-empty", "confirm-removals", "allow-mass-delete", "state-without-secrets"}

// checkNoFileFlags returns a usage error if the user gave a flag about files for a source without
// files.
func checkNoFileFlags(given func(flag string) bool, arg string) error {
	for _, flag := range fileFlagNames {
		if given(flag) {
			return fmt.Errorf("--%s is about files, and %s has none", flag, arg)
		}
	}
	return nil
}

// relayFlagNames are the flags of serve about the upstream of a relay.
var relayFlagNames = []string{xdsclient.AllFlag, xdsclient.ResponseFlag, "pass-refusals"}

// checkNoRelayFlags returns a usage error if the user gave a flag about an upstream for a source that is no relay. The
// kind describes the source, such as "a store".
func checkNoRelayFlags(given func(flag string) bool, arg, kind string) error {
	for _, flag := range relayFlagNames {
		if given(flag) {
			return fmt.Errorf("--%s needs a relay, and %s is %s", flag, arg, kind)
		}
	}
	return nil
}

// clientConfig returns the configuration of the client of the upstream.
func (r *relaySource) clientConfig() (client.Config, error) {
	node, err := r.upstream.Node(nil, r.types)
	if err != nil {
		return client.Config{}, err
	}
	t, err := r.upstream.Transport(r.types)
	if err != nil {
		return client.Config{}, err
	}
	usable, secrets := xdsclient.BodyCheck(r.types, r.held), internalsecret.NewFinder(r.types)
	check := func(res *xds.Resource) error {
		if err := usable(res); err != nil || r.exposed == (dirload.Exposure{}) {
			return err
		}
		m, err := xdsclient.Unmarshal(r.types, res)
		if err != nil {
			return err // secrets in an unreadable resource cannot be found
		}
		return r.exposed.RefuseAny(secrets, res, m)
	}
	return client.Config{
		Node: node, Servers: []client.Server{{Transport: t}}, Log: r.log, Held: r.held,
		Check: func(res *xds.Resource) error {
			if err := check(res); err != nil || r.refused == nil {
				return err
			}
			return r.source.Check(res)
		},
	}, nil
}

// newRelaySource returns a source with a client of the upstream, which subscribes to nothing yet. The
// function refused returns the refusals of clients for the upstream; nil: the relay does not report
// them.
func newRelaySource(sv services, upstream *xdsclient.Server, kept stateFlags, most *limitFlags, refused func() []relay.Refusal) (*relaySource, error) {
	r := &relaySource{services: sv, upstream: upstream, refused: refused, held: most.upstream.Apply(upstream, "relay"), looks: disk.Reads{Wait: lookTime}}
	r.none = dir.New("", sv.store, dir.Options{Log: sv.log, Types: sv.types})
	const unkept = "resources of the upstream are not stored: a restart without it would serve nothing"
	if kept.root == "" {
		r.log.Warn(unkept, "hint", "--state-dir")
	}
	cfg, err := r.clientConfig()
	if err != nil {
		return nil, err
	}
	cfg.Metrics = metrics.New(metrics.Options{Registry: r.metrics.Registry()})
	r.client, err = xdsclient.NewClientWithLastGood(cfg, kept.root, kept.chosen, "/"+r.upstream.Text, "relay of "+r.upstream.Text, func(err error) {
		r.log.Warn(unkept, "error", err, "hint", "--state-dir")
	})
	if err != nil {
		return nil, cli.Fail(err, xdsclient.StateDirHint)
	}
	refs := xdsclient.References(r.types)
	r.secrets = internalsecret.NewKnown(r.types, func(t *xds.Type, name string, body []byte) bool {
		is := r.store.Snapshot().View(store.DefaultGroup).Table(t).Lookup(name)
		return is != nil && bytes.Equal(is.Body, body)
	})
	r.source = relay.New(r.store, r.client, relay.Options{
		Refs: func(of *xds.Resource) []xds.Ref {
			r.secrets.Note(of, time.Now())
			return refs(of)
		},
		Refused: r.refused, Committed: func() { r.view.committed(r.store); r.changed() }, Log: r.log, Owner: ownerOf,
		// The upstream counts the relay's node, too. This node may be as large as any node.
		Limits: relay.Limits{Types: most.Types, Names: most.Names, Held: most.Held - min(most.Node, most.Held/2)},
		Shown:  2 * most.upstream.All,
	})
	return r, nil
}

// ownerOf returns the owner of a stream: its identity, or its address if it has none.
func ownerOf(ctx context.Context) string {
	if id, _ := identityOf(ctx); id.Kind != access.None {
		return id.String()
	}
	if p, ok := peer.FromContext(ctx); ok {
		return fair.Owner(p.Addr)
	}
	return ""
}

// ready returns the reason why clients cannot be served; nil if they can.
func (r *relaySource) ready() error {
	if r.source.Ready() {
		return nil
	}
	err := errors.New("the upstream " + r.upstream.Text + " has not answered yet, and none of its resources are stored")
	if s := r.status(); s.Error != "" {
		err = fmt.Errorf("%w: %s", err, s.Error)
	}
	return err
}

// note describes the upstream, for /readyz.
func (r *relaySource) note() string {
	s := r.status()
	switch {
	case s.Connected:
		return s.URL + ", connected since " + s.Since.UTC().Format(time.RFC3339)
	case s.Idle && r.source.Ready():
		return s.URL + ", idle: no client subscribes to a resource"
	case s.Since != nil:
		return "the last good configuration of " + s.URL + ", which is disconnected since " + s.Since.UTC().Format(time.RFC3339) + ": " + s.Error
	case r.source.Ready():
		return "the last good configuration from disk: the upstream " + s.URL + " is not connected"
	}
	return s.URL + ", which has not answered yet"
}

// load implements [source]. It does not wait: the resources of the upstream arrive while the server
// serves.
func (r *relaySource) load(<-chan os.Signal) (bool, error) { return true, nil }

func (r *relaySource) files() *dir.Source { return r.none }

func (r *relaySource) hasConfig() bool { return r.source.Ready() }

func (r *relaySource) redacted(t *xds.Type, text string) (string, bool) {
	return r.secrets.Redacted(t, text, time.Now())
}

// upstreamNote implements [source].
func (r *relaySource) upstreamNote() func() (string, bool) {
	return func() (string, bool) { return r.note(), r.source.Ready() }
}

// undecidedForExplain returns a function that reports whether the upstream of a relay has not answered whether a
// resource exists. It returns nil for a server that is no relay.
func undecidedForExplain(s source) func(*xds.Type, string) bool {
	r, ok := s.(*relaySource)
	if !ok {
		return nil
	}
	return r.source.Undecided
}

func (r *relaySource) reload(context.Context, bool) api.Reload {
	return api.Reload{Errors: []string{cli.RelayReload}}
}

// lookTime is how long a status waits for the client of the upstream.
const lookTime = 500 * time.Millisecond

// status returns the state of the upstream. While the client applies a large response, this is an earlier state.
func (r *relaySource) status() api.Upstream {
	r.looks.Do(context.Background(), time.Now(), 0, func() {
		u := r.look()
		r.seen.Store(&u)
	})
	if u := r.seen.Load(); u != nil {
		return *u
	}
	return api.Upstream{URL: r.upstream.Text}
}

// look asks the client for the state of the upstream.
func (r *relaySource) look() api.Upstream {
	u := api.Upstream{URL: r.upstream.Text}
	servers := r.client.Servers()
	u.Idle = len(servers) == 0
	for _, s := range servers {
		u.Connected = s.Connected
		if !s.Since.IsZero() {
			u.Since = &s.Since
		}
		if s.Exceeded != nil {
			u.Exceeded = wiring.Clipped([]string{s.Exceeded.Error()})
		}
		if s.Err != nil {
			u.Error, u.ErrorAt = wiring.Clipped([]string{strings.TrimPrefix(s.Err.Error(), s.Server+": ")}), &s.ErrAt
		}
	}
	for _, s := range r.client.Dump() {
		if s.State == client.Nacked {
			u.Refused++
		}
	}
	return u
}

// config returns the served configuration, for status.
func (r *relaySource) config() api.Config {
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
func (r *relaySource) run(ctx context.Context, running *sync.WaitGroup, _ <-chan os.Signal) {
	running.Go(func() { xdsclient.Run(ctx, r.source, r.client, r.log) })
}
