package daemon

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A directory is the directory of a server.
type directory struct {
	*serving
	store   *store.Store
	metrics *procmetrics.Metrics
	changed func()
	src     *dir.Source // nil before load
}

// open implements [source].
func (d *directory) open(_ *serving, st *store.Store, m *procmetrics.Metrics, changed func()) (watched, error) {
	d.store, d.metrics, d.changed = st, m, changed
	return watchedOf[*store.Watch](st), nil
}

// load implements [source].
func (d *directory) load(signals <-chan os.Signal) (bool, error) {
	s := d.serving
	r := &review{empty: s.emptyMissing}
	if !s.insecureSecrets {
		r.exposed = exposed(&s.front, &s.rest)
	}
	if err := s.state.open(s.log, s.dir); err != nil {
		return false, err
	}
	opts := dir.Options{
		Log: s.log, MaxFile: s.maxFile, FollowLinksOutside: s.followOutside, V2: s.manner.v2, AllowMassDelete: s.allowMassDelete, HowToAllow: s.state.howToAllow(s.dir), AllowEmpty: s.allowEmpty,
		Types: s.types, CEL: cel.Compile, Confirm: s.confirm, References: true, Validate: s.validate, Flag: dirload.FlagOfOption, Review: r.load, Done: func(at time.Time, err error) {
			s.state.loaded(err)
			s.admin.loaded(at, err, d.store)
			d.metrics.Loaded(at, err)
			d.changed()
		},
	}
	if s.state.keeper != nil {
		opts.Keep = s.state.keeper.Keep
	}
	d.src = dir.New(s.dir, d.store, opts)
	d.metrics.Source(d.src)
	d.metrics.LastGood(func() bool { return s.state.restored.Load() != nil }, s.state.kept())
	loaded := make(chan error, 1)
	go func() { loaded <- d.first() }()
	select {
	case err := <-loaded:
		if err != nil {
			s.state.drop()
			return false, err
		}
	case sig := <-signals: // much to load takes longer than who sent it waits
		s.log.Info("stopped before the files were loaded", "signal", sig.String())
		return false, nil
	}
	return true, nil
}

// first restores what was kept, and loads the files for the first time. With mistakes in
// them it serves the last good configuration; without one there is nothing to serve.
func (d *directory) first() error {
	s := d.serving
	s.state.restore(s.log, d.src)
	report, err := d.src.Load()
	last := s.state.restored.Load()
	switch {
	case err != nil && last == nil:
		return dirload.LoadError(s.stderr, s.dir, "served", err)
	case err != nil:
		d.src.Tell(err)
		s.log.Warn("serving the last good configuration, not the files", "of", last.At.UTC().Format(time.RFC3339), "state", s.state.keeper.Dir())
		return nil
	}
	s.log.Info("loaded", report.Attrs()...)
	if report.Kept != nil {
		d.src.Tell(report.Kept)
	}
	if len(report.Counts) == 0 {
		s.log.Warn("the configuration is empty: no file has a resource", "dir", s.dir, "files", report.Files, "clients_wait", !s.allowEmpty)
	}
	return nil
}

// run implements [source]. Hangups have the files loaded also while the server is ending, since until
// its last stream has ended it serves what the files say.
func (d *directory) run(ctx context.Context, running *sync.WaitGroup, hangups <-chan os.Signal) {
	running.Go(func() { d.src.Run(ctx) })
	running.Go(func() {
		for {
			select {
			case <-hangups:
				d.src.Reload()
			case <-ctx.Done():
				return
			}
		}
	})
	d.state.run(ctx, running, d.log, d.src)
}

func (d *directory) files() *dir.Source { return d.src }

func (d *directory) redacted(t *xds.Type, text string) (string, bool) { return d.src.Redacted(t, text) }

func (d *directory) known() bool {
	s := d.store.Snapshot()
	return s.View(store.DefaultGroup) != nil || len(s.Groups()) > 0
}

func (d *directory) ready() error {
	if !d.known() {
		return errors.New("the configuration is empty: no file has a resource")
	}
	return nil
}

func (d *directory) note() string {
	if !d.known() {
		return "none"
	}
	return d.state.note()
}

func (d *directory) config() api.Config { return d.admin.config(d.store, d.src) }

func (d *directory) reload(ctx context.Context, approve bool) api.Reload {
	return reloaded(operator{d.src}.Reload(ctx, approve))
}

func (d *directory) away() func() (string, bool) { return nil }
