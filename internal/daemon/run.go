package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/daemon/health"
	"github.com/chancery-xds/chancery/internal/listen"
)

// A part of the server is started and stopped as a whole.
type part struct {
	name string

	// start returns when the part works. The goroutines of the part are counted in running, and end
	// with ctx.
	start func(ctx context.Context, running *sync.WaitGroup) error

	stop func() // nil: the part ends with ctx
}

// errStopped ends a start without a failure: a signal came during the first load.
var errStopped = errors.New("stopped before there was anything to serve")

// run starts the parts in their order and waits until serving returns. Then it stops the started parts in
// the reverse order, and waits for all their goroutines.
func run(parts []part, serving func() error) error {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var started []part
	defer func() {
		for _, p := range slices.Backward(started) {
			if p.stop != nil {
				p.stop()
			}
		}
		cancel()
		running.Wait()
	}()
	for _, p := range parts {
		switch err := p.start(ctx, &running); {
		case errors.Is(err, errStopped):
			return nil
		case err != nil:
			return err
		}
		started = append(started, p)
	}
	return serving()
}

// serve serves until a signal ends it.
func serve(c *Config, log *slog.Logger, stderr io.Writer) error {
	// Catch signals before the first load, so that a signal during the load is not lost.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	d, err := build(c, log, stderr)
	if d != nil && d.traced != nil {
		defer closeTraces(log, d.traced)
	}
	if err != nil {
		return err
	}
	return run(d.parts(signals, hangups), func() error { return d.wait(signals) })
}

// parts returns the parts in the order of their start. Four guarantees depend on the order:
//
//   - probes get an answer while files are loaded;
//   - no client can connect before the first load has ended;
//   - the source is kept up to date before a client gets an answer;
//   - the admin API shows clients until the last stream has ended.
func (d *daemon) parts(signals, hangups <-chan os.Signal) []part {
	return []part{
		{name: "metrics and health", start: d.openHealth},
		{name: "first load", start: func(context.Context, *sync.WaitGroup) error {
			loaded, err := d.source.load(signals)
			if err == nil && !loaded {
				return errStopped
			}
			return err
		}},
		{name: "registered endpoints", start: func(ctx context.Context, running *sync.WaitGroup) error {
			return d.endpoints.open(ctx, d.log, d.source, d.state.keeper, d.store, running)
		}},
		{name: "xDS listeners", start: d.openXDS, stop: d.xds.close},
		{name: "REST-JSON listener", start: func(context.Context, *sync.WaitGroup) error {
			return d.rest.open(d.log, d.types, d.server, d.clients, d.xds)
		}, stop: d.rest.close},
		{name: "admin listeners", start: func(context.Context, *sync.WaitGroup) error {
			return d.admin.open(d.log, d.room.Reserve()/4)
		}},
		{name: "updates of the source", start: func(ctx context.Context, running *sync.WaitGroup) error {
			d.source.run(ctx, running, hangups)
			return nil
		}},
		{name: "updates of access rules and keys", start: func(ctx context.Context, running *sync.WaitGroup) error {
			d.identity.run(ctx, running.Go)
			return nil
		}},
		{name: "quarantine", start: func(ctx context.Context, running *sync.WaitGroup) error {
			if d.held == nil {
				return nil
			}
			running.Go(func() { d.held.Run(ctx) })
			if d.state.keeper != nil {
				a := &acceptedKeeper{keeper: d.state.keeper, book: d.held.Evidence(), log: d.log, fault: &d.state.accepted}
				a.restore()
				running.Go(func() { a.run(ctx) })
			}
			return nil
		}},
		{name: "shedding", start: func(ctx context.Context, running *sync.WaitGroup) error {
			if d.shedding != nil {
				running.Go(func() { d.shedding.run(ctx) })
			}
			return nil
		}},
		{name: "memory", start: func(ctx context.Context, running *sync.WaitGroup) error {
			running.Go(func() { returnMemory(ctx) })
			return nil
		}},
		{name: "streams", start: d.serveAll},
	}
}

// openHealth serves metrics and health if --metrics-listen is given. If another process uses the address, it
// is tried until it is free, because clients need the configuration without metrics, too.
func (d *daemon) openHealth(ctx context.Context, running *sync.WaitGroup) error {
	if d.cfg.health.address == "" {
		return nil
	}
	h := &health.Server{Metrics: d.metrics.Handler(), Log: d.log}
	h.Check("serving", func() error {
		if why := d.unready.Load(); why != nil {
			return errors.New(*why)
		}
		return d.source.ready()
	})
	if d.tracked {
		h.Ready = d.view.tracker.Ready
	}
	h.Note("configuration", d.source.note)
	at := d.cfg.health.parsed
	l, err := at.Open(ctx)
	switch {
	case errors.Is(err, listen.ErrInUse):
		logInUse(d.log, "metrics and health", "--metrics-listen", err)
		running.Go(func() {
			l, err := at.OpenWhenFree(ctx)
			switch {
			case err == nil:
				d.serveHealth(ctx, h, l)()
			case ctx.Err() == nil:
				d.log.Error("the metrics listener failed", "error", err)
			}
		})
		return nil
	case err != nil:
		return cli.Fail(err, "--metrics-listen chooses another address")
	}
	running.Go(d.serveHealth(ctx, h, l))
	return nil
}

// serveHealth logs the address of metrics and health. The returned function answers requests until ctx is done.
func (d *daemon) serveHealth(ctx context.Context, h *health.Server, l net.Listener) func() {
	d.log.Info("metrics and health", "http", l.Addr().String(), "profiles", listen.Loopback(l.Addr()))
	return func() {
		if err := h.Serve(ctx, d.probes.On(l)); err != nil {
			d.log.Error("the metrics listener failed", "error", err)
		}
	}
}

func (d *daemon) openXDS(ctx context.Context, running *sync.WaitGroup) error {
	if err := d.xds.open(d.log, d.types, d.server, d.clients, d.cfg.limits.transport()); err != nil {
		return err
	}
	if d.xds.certs != nil {
		d.metrics.TLS(d.xds.certs.FirstExpiry)
		running.Go(func() { d.xds.certs.Run(ctx) })
	}
	return nil
}

// serveAll starts to answer clients and operators.
func (d *daemon) serveAll(ctx context.Context, running *sync.WaitGroup) error {
	d.server.SetServing(d.source.hasConfig())
	d.served, d.polled = d.xds.serve(), d.rest.serve()
	d.admin.serve(ctx, running, d.adminServer()) // ctx is done after the last stream
	d.unready.Store(nil)
	d.log.Info("serving", "xds", d.xds.at(), "tls", d.xds.tls.Configured(), "client_certificates", d.xds.tls.ClientCA != "", "bound", d.identity.bound, "dir", d.cfg.dir)
	if d.rest.address != "" {
		d.log.Info("serving REST-JSON", "http", d.rest.at(), "tls", d.xds.secure(d.rest.parsed))
	}
	return nil
}

// wait returns when a listener has failed, or when the streams have ended after a signal.
func (d *daemon) wait(signals <-chan os.Signal) error {
	for {
		select {
		case <-d.loads:
			d.server.SetServing(d.source.hasConfig())
		case err := <-d.served:
			return cli.Fail(fmt.Errorf("serve: %w", err), "")
		case err := <-d.polled:
			return cli.Fail(fmt.Errorf("serve REST-JSON: %w", err), "")
		case sig := <-signals:
			d.unready.Store(new("the server is shutting down"))
			d.server.SetServing(false)
			d.log.Info("shutting down: closing streams", "signal", sig.String(), "streams", d.server.Stats().Open, "within", d.cfg.drain.String(), "after", d.cfg.drainDelay.String())
			return d.end(signals)
		}
	}
}

// end closes the streams; a second signal closes them at once. "Not ready first, then GOAWAY, then streams,
// spread over time." (SAFE-12)
func (d *daemon) end(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("second signal: %v", sig))
		case <-ctx.Done():
		}
	}()
	sleep(ctx, d.cfg.drainDelay)
	d.xds.goAway()
	d.rest.goAway()
	if d.server.Stats().Open > 0 {
		sleep(ctx, goAwayDelay)
	}
	if err := d.server.Drain(ctx); err != nil {
		return cli.Fail(fmt.Errorf("exited at once: %w", err), "")
	}
	d.xds.finish(ctx)
	d.log.Info("ended")
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
