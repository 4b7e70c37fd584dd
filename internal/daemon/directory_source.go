package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A directorySource serves the files of a directory.
type directorySource struct {
	services

	dir    string
	flags  fileFlags
	state  *state
	stderr io.Writer   // for the errors of the first load
	src    *dir.Source // nil before load
}

// load implements [source].
func (d *directorySource) load(signals <-chan os.Signal) (bool, error) {
	if err := d.state.open(d.log, d.dir); err != nil {
		return false, err
	}
	opts := d.flags.options(&d.services)
	opts.AllowEmpty, opts.HowToAllow = d.flags.allowEmpty, d.state.howToAllow(d.dir)
	opts.Done = func(at time.Time, err error) {
		d.state.loaded(err)
		d.view.loaded(at, err, d.store)
		d.metrics.Loaded(at, err)
		d.changed()
	}
	if d.state.keeper != nil {
		opts.Keep = d.state.keeper.Keep
	}
	d.src = dir.New(d.dir, d.store, opts)
	d.metrics.Source(d.src)
	d.metrics.LastGood(func() bool { return d.state.restored.Load() != nil }, d.state.kept())
	loaded := make(chan error, 1)
	go func() { loaded <- d.first() }()
	select {
	case err := <-loaded:
		if err != nil {
			d.state.drop()
			return false, err
		}
	case sig := <-signals: // a large load can take longer than the program that sent the signal waits
		d.log.Info("stopped before the files were loaded", "signal", sig.String())
		return false, nil
	}
	return true, nil
}

// first restores the stored configuration, and then loads the files for the first time. If the files
// have errors, the server serves the last good configuration. If none is stored, the start fails.
func (d *directorySource) first() error {
	d.state.restore(d.log, d.src)
	report, err := d.src.Load()
	last := d.state.restored.Load()
	switch {
	case err != nil && last == nil:
		return dirload.LoadError(d.stderr, d.dir, "served", err)
	case err != nil:
		d.src.LogError(err)
		d.log.Warn("serving the last good configuration, not the files", "of", last.At.UTC().Format(time.RFC3339), "state", d.state.keeper.Dir())
		return nil
	}
	d.log.Info("loaded", report.Attrs()...)
	if report.Rejected != nil {
		d.src.LogError(report.Rejected)
	}
	if len(report.Counts) == 0 {
		d.log.Warn("the configuration is empty: no file has a resource", "dir", d.dir, "files", report.Files, "clients_wait", !d.flags.allowEmpty, "hint", dir.EmptyHint(d.dir))
	}
	return nil
}

// run implements [source]. A hangup reloads the files also during shutdown: the server serves the newest
// files until its last stream has ended.
func (d *directorySource) run(ctx context.Context, running *sync.WaitGroup, hangups <-chan os.Signal) {
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

func (d *directorySource) files() *dir.Source { return d.src }

func (d *directorySource) redacted(t *xds.Type, text string) (string, bool) {
	return d.src.Redacted(t, text)
}

func (d *directorySource) hasConfig() bool {
	s := d.store.Snapshot()
	return s.View(store.DefaultGroup) != nil || len(s.Groups()) > 0
}

func (d *directorySource) ready() error {
	if !d.hasConfig() {
		return errors.New("the configuration is empty: no file has a resource")
	}
	return nil
}

func (d *directorySource) note() string {
	if !d.hasConfig() {
		return "none"
	}
	return d.state.note()
}

func (d *directorySource) config() api.Config { return d.view.config(d.store, d.src) }

func (d *directorySource) reload(ctx context.Context, approve bool) api.Reload {
	return wiring.ReloadAnswer(operator{d.src}.Reload(ctx, approve))
}

func (d *directorySource) upstreamNote() func() (string, bool) { return nil }
