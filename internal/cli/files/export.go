package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/envoy/bootstrap"
	"github.com/chancery-xds/chancery/internal/envoy/export"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An exporter has the flags of chancery export, and writes the files.
type exporter struct {
	cmd            *cobra.Command
	dir, out       string
	from           storeclient.Access
	configMap      string // name of the ConfigMaps; "": files for Envoy
	format         string
	watch          bool
	options        export.Options
	client         bootstrap.Options
	load           dir.Options
	sets           []string
	logging        cli.LogFlags
	log            *slog.Logger
	stdout, stderr io.Writer

	store      *store.Store
	source     *dir.Source
	to         *export.Exporter
	secrets    atomic.Bool     // at least one loaded resource contains a secret
	withSecret map[string]bool // files with secrets; only for --configmap
	printed    map[string]bool // warnings that were printed
}

// Export returns the command export.
func Export() *cobra.Command {
	var e exporter
	cmd := &cobra.Command{
		Use:   "export DIR|rev:REV --out OUT",
		Short: "Write files that Envoy can run from without a server",
		Long: `Export loads DIR as serve does, and writes it to OUT as files that Envoy itself
reads, without a server. Then

  envoy -c OUT/bootstrap.json

runs from them, and follows them when they change. In OUT are

  bootstrap.json         a bootstrap for Envoy that points to the files
  current                a link to the newest export; Envoy reads through it
  current/lds.yaml       all listeners; clusters in cds, scopes in srds
  current/eds/NAME.yaml  the endpoints of one cluster; likewise rds, sds, ecds and the others

Export replaces config sources that point to a server (ads, self, api_config_source)
by the file (path_config_source), at any depth. It copies resources that Envoy cannot
read from a file into the resources that refer to them: virtual hosts (VHDS), routes
of scopes, endpoints of LEDS. If a resource refers to something that is not in DIR,
export writes an empty file for it, and a warning.

One rename replaces the previous export: completely or not at all. If clusters are
added or removed, the export takes up to four steps: new clusters first, then
listeners and routes, then removals. It waits --settle between two steps, because
Envoy does not report when it has loaded the files.

With --watch, OUT follows DIR until SIGTERM or SIGINT. An error in DIR or a full
disk is logged and leaves OUT as it is; SIGHUP tries again at once.

If DIR has groups, Envoy gets the groups that match --node and --cluster.

In place of DIR there may be a revision of the store at --store, such as rev:r412; rev:head
is the newest. Without --store, export asks the server of a store at --server. A server does
not show secrets, so a revision with secrets cannot be exported from it.

OUT must not be inside DIR. If it does not exist it is created, with mode 0750;
everyone who can read OUT can read the secrets in it. If Envoy sees OUT at another
path, use --path-prefix, and mount OUT itself, not a directory inside it.

Envoy needs an inotify instance for each file that it watches, and aborts if none is
left: fs.inotify.max_user_instances is often 128, and can be raised.

With --configmap NAME, OUT gets manifests for chancery serve in Kubernetes instead, because
"kubectl create configmap --from-file" leaves out the subdirectories of DIR:

  configmaps.yaml   DIR as ConfigMaps NAME, NAME-2, NAME-3, each below 1 MiB
  secrets.yaml      the files of DIR with secrets, as Secrets of the same names; mode 0600
  deployment.patch  a patch for a Deployment: a volume that has all files at their paths

Exit codes: 0 done, or ended by a signal; 1 DIR or the store cannot be read, or OUT
cannot be written; 2 wrong usage; 3 of a revision: no server answers, or it denies access;
4 the revision does not exist.`,
		Example: `  chancery export ./config --out /var/lib/envoy && envoy -c /var/lib/envoy/bootstrap.json
  chancery export ./config --out /var/lib/envoy --format json --watch
  chancery export rev:r412 --store etcd://e1:2379,e2:2379,e3:2379/prod --out ./out
  chancery export ./config --out ./out --path-prefix /etc/envoy   # mount ./out at /etc/envoy
  chancery export ./config --configmap chancery-config --out ./k8s`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("export needs one directory, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e.cmd, e.dir, e.stdout, e.stderr = cmd, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := e.check(); err != nil {
				return err
			}
			defer e.logging.Close()
			return e.run()
		},
	}
	host, _ := os.Hostname()
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&e.out, "out", "", "`DIRECTORY` to write to; created if it does not exist")
	f.StringVar(&e.configMap, "configmap", "", "write DIR as manifests of ConfigMaps with this `NAME`, and of Secrets, for chancery serve in Kubernetes")
	f.StringVar(&e.format, "format", "yaml", "`FORMAT` of the files: yaml, json, pb_text or pb")
	f.BoolVar(&e.watch, "watch", false, "keep running, and export again when DIR changes")
	f.DurationVar(&e.options.Settle, "settle", time.Second, "`time` between two steps of a change, in which Envoy loads the files; 0: all in one step")
	f.StringVar(&e.options.Prefix, "path-prefix", "", "`PATH` at which Envoy sees OUT; default: the absolute path of OUT")
	f.BoolVar(&e.options.KeepSources, "keep-config-sources", false, "leave the config sources in resources as they are, and write no bootstrap")
	f.StringVar(&e.client.Node, "node", host, "`ID` of Envoy's node in the bootstrap; default: the host name of this machine")
	f.Lookup("node").DefValue = "" // so that the help does not depend on the machine
	f.StringVar(&e.client.Cluster, "cluster", "", "`NAME` of the node's cluster, such as the service that Envoy belongs to")
	f.StringVar(&e.client.Admin, "admin", bootstrap.DefaultAdmin, "`IP:PORT` or unix:///PATH of Envoy's admin interface")
	cli.MarkEnvoyAdmin(f)
	f.BoolVar(&e.load.AllowMassDelete, "allow-mass-delete", false, "allow a reload to remove more than half of the resources of a type, and an empty DIR to remove all")
	dirload.ProtoSetFlag(f, &e.sets)
	cli.SizeFlag(f, &e.load.MaxFile, "max-file", 64<<20, "maximum `SIZE` of a file in DIR")
	dirload.FollowLinksFlag(f, &e.load.FollowLinksOutside)
	dirload.LegacyV2Flag(f, &e.load.V2)
	cli.TitledFlags(f, "Store", e.from.At.Register)
	e.from.Flag = "server" // in this command, --admin is the Envoy's admin interface
	e.from.Server.RegisterAs(f, e.from.Flag)
	e.logging.Register(f)
	return cmd
}

// check checks the flags. Its errors are errors of usage.
func (e *exporter) check() error {
	var err error
	switch {
	case e.out == "":
		return errors.New("--out is missing: the directory to write to")
	case e.options.Settle < 0:
		return errors.New("--settle must not be negative")
	}
	if err := dirload.CheckMaxFile(e.load.MaxFile); err != nil {
		return err
	}
	e.options.Format, err = export.ParseFormat(e.format)
	if err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	if err := e.checkOrigin(); err != nil {
		return err
	}
	if e.configMap != "" {
		if err := e.checkConfigMap(); err != nil {
			return err
		}
	}
	e.options.Bootstrap = func(listeners, clusters, watched string) ([]byte, error) {
		return bootstrap.EnvoyFiles(e.client, listeners, clusters, watched)
	}
	if _, err := e.options.Bootstrap("", "", ""); err != nil {
		return err
	}
	e.log, err = e.logging.Open(e.stderr)
	return err
}

// checkOrigin checks the flags about the origin of the resources: a directory or a revision.
func (e *exporter) checkOrigin() error {
	switch is := strings.HasPrefix(e.dir, storeclient.RevisionPrefix); {
	case is && e.from.At.URL == "" && cli.OnCommandLine(e.cmd, "admin") && !e.cmd.Flags().Changed("server"):
		return errors.New("--admin is the Envoy's address: use --server for the Chancery server that has " + e.dir)
	case is && e.configMap != "":
		return errors.New("--configmap is for a directory, and " + e.dir + " is a revision")
	case !is && cli.OnCommandLine(e.cmd, "store"): // the variable of other commands does not count
		return errors.New("--store is for rev:REV, and " + e.dir + " is a directory")
	case !is:
		return e.checkOutside()
	case e.watch:
		return errors.New("--watch follows a directory: a revision never changes")
	}
	if _, err := storeclient.ParseRevision(e.dir); err != nil {
		return err
	}
	_, err := e.from.ThroughServer(e.cmd)
	return err
}

// read loads the resources to export.
func (e *exporter) read() (report dir.Report, empty bool, err error) {
	if strings.HasPrefix(e.dir, storeclient.RevisionPrefix) {
		n, err := storeclient.ParseRevision(e.dir)
		if err == nil {
			var hidden int
			e.source, e.store, _, hidden, err = storeclient.RevisionSource(e.cmd, &e.from, n, e.load)
			if err == nil && hidden > 0 {
				err = cli.Fail(fmt.Errorf("%s has secrets in %s, which a server does not show", e.dir, textutil.Amount(hidden, "resource")), "--store URL exports them from the store itself")
			}
		}
		return report, false, err
	}
	e.store = store.New()
	e.source = dir.New(e.dir, e.store, e.load)
	report, err = e.source.Load()
	if err != nil {
		err = dirload.LoadError(e.stderr, e.dir, "exported", err)
	}
	return report, len(report.Counts) == 0, err
}

// checkOutside returns an error if OUT is inside DIR, because the export would then be loaded again. It
// also returns an error if DIR is part of an export to OUT.
func (e *exporter) checkOutside() error {
	inside, err := export.Inside(e.out, e.dir)
	if inside {
		return fmt.Errorf("--out: %s is inside %s, so the export would be loaded again: choose a directory outside", e.out, e.dir)
	}
	if err == nil {
		inside, err = export.Inside(e.dir, filepath.Join(e.out, ".generations"))
	}
	if inside {
		return fmt.Errorf("--out: DIR %s is part of this export, which would be replaced: choose another directory", e.dir)
	}
	if err != nil {
		return cli.Fail(err, "")
	}
	return nil
}

func (e *exporter) run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	changed := make(chan struct{}, 1)
	var err error
	e.load.Types, err = dirload.ReadProtoSets(e.sets)
	if err != nil {
		return err
	}
	e.options.Types = e.load.Types
	e.load.CEL = cel.Compile
	e.load.Log, e.load.Flag, e.load.Review, e.load.HowToAllow = e.log, dirload.FlagOfOption, e.review, "start the export again: a start accepts DIR as it is"
	e.load.Done = func(_ time.Time, err error) {
		if err == nil {
			notify(changed)
		}
	}
	report, empty, err := e.read()
	switch {
	case err != nil:
		return err
	case empty && !e.load.AllowMassDelete:
		return cli.Fail(fmt.Errorf("there is nothing to export: no file in %s has a resource", e.dir), "--allow-mass-delete exports an empty directory")
	}
	if e.configMap != "" {
		return e.exportConfigMaps(report)
	}
	e.to, err = export.Open(e.out, e.options)
	if err != nil {
		return cli.Fail(err, "")
	}
	defer e.to.Close()
	if !e.watch { // with --watch, Run logs the warnings
		for _, p := range report.Warnings {
			fmt.Fprintln(e.stderr, p.Error())
		}
	}
	if err := e.export(ctx); err != nil {
		return cli.Fail(err, "")
	}
	if !e.watch {
		return nil
	}

	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { e.source.Run(ctx) })
	e.follow(ctx, changed, hangups, e.source.Reload)
	e.log.Info("ended")
	return nil
}

// review notes which resources contain secrets.
func (e *exporter) review(all []dir.Loaded) ([]dir.Loaded, error) {
	e.secrets.Store(slices.ContainsFunc(all, func(l dir.Loaded) bool { return l.Secret != "" }))
	if e.configMap != "" {
		e.withSecret = map[string]bool{}
		for _, l := range all {
			e.withSecret[l.File] = e.withSecret[l.File] || l.Secret != ""
		}
	}
	return nil, nil
}

// notify sends a value without waiting. If a value is already in the channel, it does nothing.
func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// retryInterval is the time until a failed export is retried. It is also the time between two checks
// whether another program has changed the export.
const retryInterval = 10 * time.Second

// damaged is the log message for an export whose files another program has changed.
const damaged = "export was changed by another program, writing it again"

// follow exports each change until ctx is done.
func (e *exporter) follow(ctx context.Context, changed <-chan struct{}, hangups <-chan os.Signal, reload func()) {
	check := time.NewTicker(retryInterval)
	defer check.Stop()
	var retry <-chan time.Time
	lastError := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			reload()
		case <-changed:
		case <-retry:
		case <-check.C:
			if retry != nil || e.to.Intact() {
				continue
			}
			e.log.Warn(damaged, "out", e.out)
		}
		retry = nil
		err := e.export(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			lastError = ""
			continue
		}
		retry = time.After(retryInterval)
		if err.Error() != lastError {
			lastError = err.Error()
			e.log.Error("export failed, keeping the previous files", "error", err, "again_in", retryInterval.String())
		}
	}
}

// export exports the loaded resources and reports the result.
func (e *exporter) export(ctx context.Context) error {
	d := e.source.Decide(&xds.Node{ID: e.client.Node, Cluster: e.client.Cluster})
	if d.Groups == nil {
		return fmt.Errorf("no group matches the node of --node %q and --cluster %q, and such nodes are refused", e.client.Node, e.client.Cluster)
	}
	r, err := e.to.Export(ctx, e.store.Snapshot().View(d.Groups...))
	if err != nil {
		return err
	}
	e.warn(e.cautions(r, e.secrets.Load))
	if !e.watch {
		fmt.Fprintf(e.stdout, "ok: %s in %s of %s, %d written, %d removed\n", textutil.Amount(r.Resources, "resource"), textutil.Amount(r.Files, "file"), e.out, r.Written, r.Removed)
		if !e.options.KeepSources && e.options.Prefix == "" {
			fmt.Fprintf(e.stdout, "run: envoy -c %s\n", filepath.Join(e.out, "bootstrap.json"))
		}
	} else if r.Steps > 0 {
		e.log.Info("exported", "out", e.out, "resources", r.Resources, "files", r.Files, "written", r.Written, "removed", r.Removed, "steps", r.Steps)
	}
	return nil
}

// cautions returns the warnings of an export. It adds warnings about the permissions of OUT and about the
// limits of the Envoy's machine.
func (e *exporter) cautions(r export.Report, secrets func() bool) []string {
	warnings := r.Warnings
	if e.to.Exposed() && secrets() {
		warnings = append(warnings, fmt.Sprintf("every user of this machine can read the secrets in %s: run chmod o= %[1]s", e.out))
	}
	if r.Watches > manyWatches {
		warnings = append(warnings, fmt.Sprintf("Envoy needs an inotify instance for each of %d files, and aborts if none is left: raise fs.inotify.max_user_instances, often 128, well above that number where Envoy runs", r.Watches))
	}
	return warnings
}

// manyWatches is the number of watched files above which the command warns. By default Linux allows 128
// inotify instances for each user.
const manyWatches = 100

// maxWarnings is the maximum number of warnings that an export prints.
const maxWarnings = 20

// warn prints or logs the warnings that the previous export did not have.
func (e *exporter) warn(warnings []string) {
	now := make(map[string]bool, len(warnings))
	var fresh []string
	for _, w := range warnings {
		if !now[w] && !e.printed[w] {
			fresh = append(fresh, w)
		}
		now[w] = true
	}
	e.printed = now
	if more := len(fresh) - maxWarnings; more > 0 {
		fresh = append(fresh[:maxWarnings], fmt.Sprintf("and %s more", textutil.Amount(more, "warning")))
	}
	for _, w := range fresh {
		if e.watch {
			e.log.Warn("export warning", "problem", w)
		} else {
			fmt.Fprintln(e.stderr, "chancery: warning:", w)
		}
	}
}
