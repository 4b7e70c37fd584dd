package files

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/envoy/bootstrap"
	"github.com/chancery-xds/chancery/internal/envoy/export"
	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An agent writes the resources of an xDS server as files.
type agent struct {
	xdsclient.Flags
	exporter
	limits xdsclient.Limits
	held   xds.MemoryLimit  // of all resources and referenced names
	state  string           // directory of the last good resources, one folder for each agent; "": store none
	given  bool             // the user has set state
	wants  map[xds.Ref]bool // names to which the agent subscribes, in addition to all clusters and listeners
}

// Agent returns the command agent.
func Agent() *cobra.Command {
	a := agent{wants: map[xds.Ref]bool{}}
	cmd := &cobra.Command{
		Use:   "agent xds://HOST:PORT OUT",
		Short: "Write the resources of an xDS server as files, for an Envoy without a server",
		Long: `Agent is a client of an xDS server of any kind, and writes the resources that it receives
to OUT, as files that Envoy itself reads. Then

  envoy -c OUT/bootstrap.json

runs from them, and follows them when they change. Agent subscribes to all listeners and
clusters, and to the resources that they refer to. The content of OUT, and the steps of a
change, are the same as with "chancery export --out OUT".

Agent writes nothing before the server has answered for all of it, so Envoy always finds a
complete configuration. While the server is unreachable, and after a restart without it, the
files stay unchanged. If the server sends an unusable resource, its last good version stays,
also after a restart (--state-dir). If all clusters or all listeners are gone, agent removes
them after 5 s.

The URL and its flags are those of "chancery fetch".

Exit codes: 0 ended by a signal; 1 OUT cannot be written; 2 wrong usage.`,
		Example: `  chancery agent xds://xds.example:18000 /var/lib/envoy --delta --node edge-1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("agent needs an xDS server and a directory, not %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.Server(args[0])
			if err != nil {
				return err
			}
			if err := a.limits.Check(); err != nil {
				return err
			}
			a.given = cmd.Flags().Changed("state-dir")
			a.out, a.stdout, a.stderr, a.watch = args[1], cmd.OutOrStdout(), cmd.ErrOrStderr(), true
			if a.options.Settle < 0 {
				return errors.New("--settle must not be negative")
			}
			a.options.Format, err = export.ParseFormat(a.format)
			if err != nil {
				return fmt.Errorf("--format: %w", err)
			}
			a.log, err = a.logging.Open(a.stderr)
			if err != nil {
				return err
			}
			defer a.logging.Close()
			a.limits.DeriveFrom(cli.LimitMemory(a.log))
			return a.run(cmd, s)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&a.format, "format", "yaml", "`FORMAT` of the files: yaml, json, pb_text or pb")
	f.DurationVar(&a.options.Settle, "settle", time.Second, "`time` between two steps of a change, in which Envoy loads the files; 0: all in one step")
	f.StringVar(&a.options.Prefix, "path-prefix", "", "`PATH` at which Envoy sees OUT; default: the absolute path of OUT")
	f.StringVar(&a.exporter.client.Admin, "admin", bootstrap.DefaultAdmin, "`IP:PORT` or unix:///PATH of Envoy's admin interface")
	cli.MarkEnvoyAdmin(f)
	a.NodeFlags.Register(f)
	f.Lookup("node").Usage = "`ID` of the agent's node, and of Envoy; default: the host name of this machine"
	a.Flags.Register(f)
	a.limits.Register(f, "")
	cli.StateDirFlag(f, &a.state)
	f.Lookup("state-dir").Usage = "`directory` that stores the last good resources, in a folder for each server and OUT; empty: store nothing"
	dirload.ProtoSetFlag(f, &a.exporter.sets)
	a.logging.Register(f)
	cli.TakeVariables(cmd)
	return cmd
}

// run writes the files until the program gets a signal.
func (a *agent) run(cmd *cobra.Command, s *xdsclient.Server) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	types, err := dirload.ReadProtoSets(a.exporter.sets)
	if err != nil {
		return err
	}
	node, err := s.Node(cmd.InOrStdin(), types)
	if err != nil {
		return err
	}
	a.exporter.client.Node, a.exporter.client.Cluster = node.ID, node.Cluster
	a.options.Types = types
	a.options.Bootstrap = func(listeners, clusters, watched string) ([]byte, error) {
		return bootstrap.EnvoyFiles(a.exporter.client, listeners, clusters, watched)
	}
	if _, err := a.options.Bootstrap("", "", ""); err != nil { // check the flags before creating a file
		return err
	}
	cfg, err := a.clientConfig(s, node)
	if err != nil {
		return err
	}
	a.to, err = export.Open(a.out, a.options)
	if err != nil {
		return errors.Join(cli.Fail(err, ""), cfg.Servers[0].Transport.Close())
	}
	defer a.to.Close()
	c, err := a.open(cfg, s)
	if err != nil {
		return errors.Join(cli.Fail(err, xdsclient.StateDirHint), cfg.Servers[0].Transport.Close())
	}
	st := store.New()
	src := relay.New(st, c, a.relayOptions())
	done := make(chan struct{})
	go func() { defer close(done); xdsclient.Run(ctx, src, c, a.log) }()
	defer func() { cancel(); <-done }()
	w, err := src.Watch(ctx, node)
	if err != nil {
		return cli.Fail(err, "")
	}
	defer w.Close()
	a.log.Info("agent of an xDS server", "server", s.Text, "out", a.out)
	a.mirror(ctx, w, st)
	a.log.Info("ended")
	return nil
}

// relayOptions returns the options of the source. The agent limits its names itself.
func (a *agent) relayOptions() relay.Options {
	return relay.Options{
		Refs: xdsclient.References(a.options.Types), Log: a.log, Shown: 2 * a.held.Bytes,
		Limits: relay.Limits{Types: math.MaxInt, Names: math.MaxInt, Held: math.MaxInt},
	}
}

// clientConfig returns the configuration of the client.
func (a *agent) clientConfig(s *xdsclient.Server, node *xds.Node) (client.Config, error) {
	a.held = a.limits.Apply(s, "agent")
	t, err := s.Transport(a.options.Types)
	if err != nil {
		return client.Config{}, err
	}
	return client.Config{Node: node, Servers: []client.Server{{Transport: t}}, Log: a.log, Held: a.held, Check: xdsclient.BodyCheck(a.options.Types, a.held)}, nil
}

// open creates the client. If possible, the client stores the last good resources.
func (a *agent) open(cfg client.Config, s *xdsclient.Server) (*client.Client, error) {
	const notStored = "resources of the server are not stored"
	if a.state == "" && !a.given {
		a.log.Warn(notStored, "error", "no directory is known for them", "hint", "--state-dir")
	}
	out, err := filepath.Abs(a.out)
	if err != nil {
		return nil, err
	}
	return xdsclient.NewClientWithLastGood(cfg, a.state, a.given, "/"+s.Text+"/"+out, "agent of "+s.Text+" for "+out, func(err error) {
		a.log.Warn(notStored, "error", err, "hint", "--state-dir")
	})
}

// secrets reports whether an exported resource contains a secret.
func (a *agent) secrets(all xds.Tables) bool {
	finder := internalsecret.NewFinder(a.options.Types)
	for _, t := range all {
		for r := range t.All() {
			if m, err := xdsclient.Unmarshal(a.options.Types, r); err == nil && len(finder.Find(m).Values) > 0 {
				return true
			}
		}
	}
	return false
}

// mirror subscribes to all resources and their references, and exports them whenever the set is complete.
func (a *agent) mirror(ctx context.Context, w *relay.Watch, st *store.Store) {
	for _, t := range []*xds.Type{xds.Cluster, xds.Listener} {
		w.Interested(t, true, nil, nil)
	}
	check := time.NewTicker(retryInterval)
	defer check.Stop()
	var retry <-chan time.Time
	lastError := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.C():
		case <-retry:
		case <-check.C:
			if retry != nil || a.to.Intact() {
				continue
			}
			a.log.Warn(damaged, "out", a.out)
		}
		retry = nil
		view, _, err := w.Next()
		if err != nil || view == nil {
			continue
		}
		all := st.Snapshot().View(store.DefaultGroup) // at least as new as the view
		complete, err := a.subscribe(w, view, all)
		if err == nil && !complete {
			continue
		}
		var r export.Report
		if err == nil {
			r, err = a.to.Export(ctx, all)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			retry = time.After(retryInterval)
			if err.Error() != lastError {
				lastError = err.Error()
				a.log.Error("export failed, keeping the previous files", "error", err, "again_in", retryInterval.String())
			}
			continue
		}
		lastError = ""
		if r.Steps > 0 {
			a.log.Info("exported", "out", a.out, "resources", r.Resources, "files", r.Files, "written", r.Written, "removed", r.Removed, "steps", r.Steps)
		}
		a.warn(a.cautions(r, func() bool { return a.secrets(all) }))
	}
}

// subscribe subscribes to the resources to which others refer, and unsubscribes from resources to which
// no other refers any more. It reports whether the server has answered for all subscribed resources. If the resources
// and the names exceed the limit, it changes no subscription.
func (a *agent) subscribe(w *relay.Watch, view xds.View, all xds.Tables) (bool, error) {
	undecided, _ := view.(xds.Undecided)
	complete := undecided == nil || !undecided.Undecided(xds.Cluster, xds.Wildcard) && !undecided.Undecided(xds.Listener, xds.Wildcard)
	refs, used := map[xds.Ref]bool{}, 0
	for _, t := range all {
		for r := range t.All() {
			used += r.Memory()
			for _, to := range r.Refs {
				if to.Name == xds.Wildcard || to.Name == "" || to.Type.Is(xds.Cluster) || to.Type.Is(xds.Listener) || refs[to] {
					continue
				}
				refs[to] = true
				if all.Table(to.Type).Lookup(to.Name) != nil {
					continue
				}
				used += xds.NameMemory(to.Name)
				if a.held.Bytes > 0 && used > a.held.Bytes { // SAFE-14
					return false, a.held.Exceeded(xds.LimitHeld, "referenced names take too much memory in addition to the resources")
				}
			}
		}
	}
	for to := range refs {
		if !a.wants[to] {
			w.Interested(to.Type, false, []string{to.Name}, nil)
		}
		complete = complete && (undecided == nil || view.Table(to.Type).Lookup(to.Name) != nil || !undecided.Undecided(to.Type, to.Name))
	}
	for to := range a.wants {
		if !refs[to] {
			w.Interested(to.Type, false, nil, []string{to.Name})
		}
	}
	a.wants = refs
	return complete, nil
}
