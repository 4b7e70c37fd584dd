package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// holdsText lists the first five frozen groups.
func holdsText(holds map[string]revisions.Hold) string {
	var all []string
	for i, h := range revisionapi.Holds(holds) {
		if i == 5 {
			all = append(all, "…")
			break
		}
		text := h.Group + " at " + h.Revision
		if h.Next != "" {
			text += " (rollout " + h.Rollout + " to " + h.Next + ")"
		}
		all = append(all, text)
	}
	if all == nil {
		return ""
	}
	return "; frozen: " + strings.Join(all, ", ")
}

// A storeSource serves the newest revision of a store.
type storeSource struct {
	services

	dir          string // the URL of the store, for logs and operators
	flags        storeFlags
	loading      fileFlags
	state        *state
	replicas     *replicaList
	exposure     dirload.Exposure // how the connection to the store would expose secrets
	engine       revisions.Engine // the storage of the store
	engineCloser io.Closer        // closes the engine
	repo         *revsource.Source
	dirView      *dir.Source // the served revision as a directory, for groups, places and warnings; clients do not watch its store
	next         dir.LastGood
	trouble      atomic.Pointer[storeTrouble] // why the newest revision is not served; nil: it is served
	refusals     *revsource.Refusals          // resources that clients have refused, on any server of the store
	accepted     *revsource.Accepted          // versions that clients accepted, on any server of the store; nil: no quarantine
	turnedAway   dedup.Counter                // log lines about clients that were turned away
	restoredAt   atomic.Pointer[time.Time]    // time of the last good configuration from disk, while it is served; nil: it is not
	rollouts     *rollout.Runner
	reviewedAt   time.Time // start of the last review; the reviewed revision is served later
	audit        *auditor
	root         string            // the directory that is committed to the store; "": none
	committer    *dircommit.Writer // commits root; nil: there is no root
}

// A storeTrouble is the reason why the newest revision is not served.
type storeTrouble struct {
	since time.Time
	err   error
}

// newStoreSource opens the store. The argument own describes this server for the other servers of the
// store.
func newStoreSource(sv services, c *Config, state *state, replicas *replicaList, own self) (*storeSource, error) {
	d := &storeSource{services: sv, dir: c.dir, root: c.root, flags: c.store, loading: c.files, exposure: c.storeExposure(), state: state, replicas: replicas}
	d.dirView = dir.New("", store.New(), d.options(d.log))
	d.flags.at.MayCreate = true
	engine, closer, err := d.flags.at.Open(d.log)
	if err != nil {
		return nil, err
	}
	d.engine, d.engineCloser = engine, closer
	d.refusals = revsource.NewRefusals(engine, d.log)
	own.writes, own.served = d.writesSince, func() revisions.State { return d.repo.State() }
	d.replicas.open(d.log, engine, own)
	d.repo = revsource.New(engine, d.store, revsource.Options{
		Types: d.types, CEL: cel.Compile, Log: d.log,
		Review: func(next *revisions.Snapshot) error {
			d.reviewedAt = time.Now()
			d.next = dircommit.Config(next, d.reviewedAt)
			return d.dirView.Restore(d.next)
		},
		Resource: d.read,
		Done:     func(_ revisions.Number, err error) { d.done(err) },
		Hint:     d.remedy,
	})
	d.openRollouts(engine)
	readRollout := func(ctx context.Context, id string) (*rollout.State, error) { return rollout.Read(ctx, engine, id) }
	d.audit = &auditor{repo: d.repo.Repository(), rollout: readRollout, log: d.log, bell: make(chan struct{}, 1), note: func(e api.Event) { d.view.tracker.Note(e) }}
	d.openCommitter(engine)
	if err := d.state.openKeeper(d.log, "/"+d.dir); err != nil {
		return nil, err
	}
	d.metrics.Source(d.dirView)
	d.metrics.LastGood(func() bool { return d.restoredAt.Load() != nil }, d.state.kept())
	return d, nil
}

// read returns the resource that a review or the restored configuration made from an item.
func (d *storeSource) read(it *revisions.Item) *xds.Resource {
	r := it.Resource
	l, ok := d.dirView.Lookup(it.Group, r.Type, r.Name)
	if !ok || l.Sum != r.Sum || l.Version != r.Version || l.OnDemand != r.OnDemand {
		return nil
	}
	return l.Resource
}

// done records whether the newest revision is served.
func (d *storeSource) done(err error) {
	now := time.Now()
	if err == nil {
		d.trouble.Store(nil)
		d.restoredAt.Store(nil)
		if d.state.keeper != nil {
			d.state.keeper.Keep(d.next)
		}
	} else {
		t := &storeTrouble{now, err}
		if previous := d.trouble.Load(); previous != nil {
			t.since = previous.since
		}
		d.trouble.Store(t)
	}
	if _, rejected := errors.AsType[*revsource.RejectedError](err); err == nil || rejected {
		d.view.loaded(now, err, d.store)
	}
	d.noteServed(d.reviewedAt, err)
	notify(d.audit.bell)
	d.metrics.Loaded(now, err)
	d.changed()
}

// load implements [source]. While the store is unreachable, the server serves the last good
// configuration. If there is none, clients wait.
func (d *storeSource) load(signals <-chan os.Signal) (bool, error) {
	loaded := make(chan error, 1)
	go func() {
		d.restore()
		_, err := d.repo.Load(context.Background()) // the engine has its own timeouts
		loaded <- err
	}()
	select {
	case err := <-loaded:
		d.done(err)
		switch {
		case err == nil:
			d.log.Info("revision is served", d.repo.Attributes()...)
		case d.restoredAt.Load() != nil:
			d.log.Warn("serving the last good configuration, not the newest revision", d.withRemedy(err, "revision", d.repo.Served().Number.String(), "of", d.restoredAt.Load().UTC().Format(time.RFC3339), "store", d.dir)...)
		default:
			d.log.Warn("there is nothing to serve yet: clients wait", d.withRemedy(err, "store", d.dir)...)
		}
		return true, nil
	case sig := <-signals:
		d.log.Info("stopped before the store was read", "signal", sig.String())
		return false, nil
	}
}

// restore serves the stored configuration, if there is one.
func (d *storeSource) restore() {
	if d.state.keeper == nil {
		return
	}
	c, err := d.state.keeper.Load()
	var items []*revisions.Item
	if err == nil {
		items, err = dircommit.Items("", c)
	}
	if err == nil {
		err = d.dirView.Restore(c)
	}
	if err == nil {
		err = d.repo.Restore(items, c.Mark)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		d.log.Warn("the stored last good configuration cannot be used", "error", err)
	default:
		d.restoredAt.Store(&c.At)
	}
}

// run implements [source].
func (d *storeSource) run(ctx context.Context, running *sync.WaitGroup, hangups <-chan os.Signal) {
	running.Go(func() {
		var workers sync.WaitGroup
		if d.committer != nil {
			workers.Go(func() { d.committer.Run(ctx) })
			workers.Go(func() { d.reloadOnHangup(ctx, hangups) })
		}
		workers.Go(func() { d.refusals.Run(ctx) })
		if d.accepted != nil {
			workers.Go(func() { d.accepted.Run(ctx) })
		}
		workers.Go(func() { d.replicas.run(ctx) })
		workers.Go(func() { d.rollouts.Run(ctx) })
		workers.Go(func() { d.audit.run(ctx) })
		if d.flags.keep > 0 {
			w := sweeper{repo: d.repo.Repository(), keep: d.flags.keep, log: d.log, swept: func(s revisions.Swept) { d.view.tracker.Note(sweptText(s)) }}
			workers.Go(func() { w.run(ctx) })
		}
		d.repo.Run(ctx)
		workers.Wait()
		_ = d.engineCloser.Close() // at shutdown an error does not matter
	})
	if d.state.keeper != nil {
		running.Go(func() { d.state.keeper.Run(ctx) })
	}
}

func (d *storeSource) files() *dir.Source { return d.dirView }

func (d *storeSource) redacted(t *xds.Type, text string) (string, bool) {
	return d.dirView.Redacted(t, text)
}

func (d *storeSource) hasConfig() bool {
	return d.repo.Served().Number > 0 || d.restoredAt.Load() != nil
}

func (d *storeSource) ready() error {
	if d.hasConfig() {
		return nil
	}
	err := errors.New("no revision to serve, neither from disk nor from the store " + d.dir)
	if t := d.trouble.Load(); t != nil {
		err = fmt.Errorf("%w: %w%s", err, t.err, textutil.Prefixed(": ", d.remedy(t.err)))
	}
	return err
}

// remedy returns how to commit the first revision of an empty store, or to repair a store that is damaged or was
// replaced; "": neither.
func (d *storeSource) remedy(err error) string {
	if hint := revisionapi.Remedy(err); hint != "" {
		return hint
	}
	switch {
	case !errors.Is(err, revsource.ErrEmpty):
		return ""
	case d.root != "":
		return "the content of " + d.root + " becomes the first revision as soon as it has a resource and no errors"
	}
	return "chancery apply commits one"
}

// withRemedy adds an error, and its remedy if one is known, to the attributes of a log line.
func (d *storeSource) withRemedy(err error, attrs ...any) []any {
	attrs = append(attrs, "error", err)
	if hint := d.remedy(err); hint != "" {
		attrs = append(attrs, "hint", hint)
	}
	return attrs
}

func (d *storeSource) note() string { return d.servedText() + d.writerText() }

// servedText describes the served configuration.
func (d *storeSource) servedText() string {
	text := "no revision of " + d.dir
	if n := d.repo.Served().Number; n > 0 {
		text = "revision " + n.String() + " of " + d.dir + holdsText(d.repo.Holds())
	} else if d.restoredAt.Load() != nil {
		text = "the configuration of " + d.dir
	}
	if at := d.restoredAt.Load(); at != nil {
		text += " from disk (last good), of " + at.UTC().Format(time.RFC3339)
	}
	if t := d.trouble.Load(); t != nil {
		text += "; the newest revision is not served since " + t.since.UTC().Format(time.RFC3339) + ": " + strings.Join(wiring.ProblemsOf(t.err), "; ")
	}
	return text
}

func (d *storeSource) config() api.Config {
	c := d.view.config(d.store, d.dirView)
	s := &api.Store{URL: d.dir, LastGood: d.restoredAt.Load()}
	if r := d.repo.Served(); r.Number > 0 {
		s.Revision, s.Author, s.Message = r.Number.String(), r.Author, r.Message
		s.Holds = revisionapi.Holds(d.repo.Holds())
		if !r.Time.IsZero() { // a revision restored from disk has no time
			s.At = &r.Time
		}
	}
	if t := d.trouble.Load(); t != nil {
		s.Error, s.Since = wiring.Clipped(wiring.ProblemsOf(t.err))+textutil.Prefixed(": ", d.remedy(t.err)), &t.since
	}
	s.RolledBack = d.rolledBack()
	if conn, ok := d.engineCloser.(*etcdkv.Conn); ok {
		if b := conn.LastBack(); b != nil {
			s.WentBack = &api.WentBack{At: b.At, From: int(b.From), To: int(b.To)}
		}
	}
	if d.committer != nil {
		s.Writer = d.writer()
		src := d.committer.Source()
		if src != nil { // this server is elected, and loads the directory
			c.Removals = wiring.RemovalsOf(src)
		}
	}
	c.Store = s
	return c
}

func (d *storeSource) reload(ctx context.Context, approve bool) api.Reload {
	switch {
	case d.committer == nil:
		return api.Reload{Errors: []string{cli.StoreReload}}
	case d.committer.Source() == nil:
		return api.Reload{Errors: []string{d.standbyText(ctx)}}
	}
	return wiring.ReloadAnswer(operator{d.committer.Source()}.Reload(ctx, approve))
}

func (d *storeSource) upstreamNote() func() (string, bool) { return nil }

// storeForExplain returns a function that describes the served revision. It returns nil without a
// store.
func storeForExplain(s source) func() (string, bool) {
	d, ok := s.(*storeSource)
	if !ok {
		return nil
	}
	return func() (string, bool) { return d.servedText(), d.hasConfig() }
}
