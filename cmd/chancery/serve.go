package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	_ "github.com/chancery-xds/chancery/internal/envoyprotos" // what files may hold
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/source/dir"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
)

// A serving is what chancery serve is told by its flags.
type serving struct {
	dir             string
	listen          string
	address         listen.Address // listen, parsed
	drain           time.Duration
	maxFile         int64
	allowMassDelete bool
	log             *slog.Logger
	stderr          io.Writer
}

func serveCommand() *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use:   "serve DIR",
		Short: "Serve the configuration in a directory",
		Long: `Serve loads every file *.yaml, *.yml and *.json in DIR and the directories below,
and serves what is in them to xDS clients over gRPC: SotW and delta, aggregated
(ADS) and per type.

A file holds resources as Envoy's own configuration files do:

  - one resource, with "@type";
  - a DiscoveryResponse: a list under "resources:", types mixed as you like;
  - the protocol's Resource, where name, aliases, ttl or version are wanted.

YAML files may hold several documents. Names that begin with "." or "_" are
skipped. Unknown fields are errors.

Files are loaded again when they change, all of them or none: any mistake is
logged with file, line and column, and what was loaded before stays. At start a
mistake ends the program. A reload that removes more than half of a type's
resources (of 20 or more), or the last file, is refused, since it is what an
unmounted volume looks like.

Signals: SIGHUP reloads at once. SIGTERM and SIGINT end the streams within the
drain time, then the program; a second one ends it at once.

Exit codes: 0 ended by a signal; 1 the files cannot be loaded, or the address
cannot be listened on; 2 wrong use.`,
		Example: `  chancery serve ./config
  chancery serve /etc/chancery --listen 0.0.0.0:18000`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("serve wants one directory, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if s.address, err = listen.Parse(s.listen); err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			s.dir, s.stderr = args[0], cmd.ErrOrStderr()
			s.log = newLog(s.stderr)
			return s.run()
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.listen, "listen", "127.0.0.1:18000", "`HOST:PORT` or unix:PATH to serve xDS at; 0.0.0.0 is all interfaces, port 0 any free port")
	f.BoolVar(&s.allowMassDelete, "allow-mass-delete", false, "let a reload remove more than half of a type, or everything")
	f.DurationVar(&s.drain, "drain", 5*time.Second, "`time` over which streams are ended at the end")
	f.Int64Var(&s.maxFile, "max-file", 64<<20, "largest file in `bytes`")
	return cmd
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

	st := store.New()
	src := dir.New(s.dir, st, dir.Options{Log: s.log, MaxFile: s.maxFile, AllowMassDelete: s.allowMassDelete})
	report, err := src.Load()
	if err != nil {
		return s.notLoaded(err)
	}
	s.log.Info("loaded", report.Attrs()...)
	if len(report.Counts) == 0 {
		s.log.Warn("there is nothing to serve yet: no resource in any *.yaml, *.yml or *.json", "dir", s.dir, "files", report.Files)
	}

	l, err := s.address.Open(context.Background())
	if err != nil {
		return failure{err, "--listen chooses another address"}
	}
	host, _ := os.Hostname()
	xds := server.New(st, server.WithLogger(s.log), server.WithDrainTime(s.drain), server.WithIdentifier(func() string { return host }))
	g := grpc.NewServer(server.GRPCOptions()...)
	xds.Register(g)
	reflection.RegisterV1(g)

	ctx, cancel := context.WithCancel(context.Background())
	reloads := make(chan struct{})
	go func() {
		defer close(reloads)
		src.Run(ctx)
	}()
	defer func() { cancel(); <-reloads }()
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	defer g.Stop()
	s.log.Info("serving", "xds", l.Addr().String(), "dir", s.dir)

	for {
		select {
		case <-hangups:
			src.Reload()
		case err := <-served:
			return failure{fmt.Errorf("serve: %w", err), ""}
		case sig := <-signals:
			s.log.Info("ending streams", "signal", sig.String(), "streams", xds.Stats().Open, "within", s.drain.String())
			return s.end(xds, signals)
		}
	}
}

// end ends the streams, at once if another signal comes.
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
	if err := xds.Drain(ctx); err != nil {
		return failure{fmt.Errorf("ended at once, with streams open: %w", err), ""}
	}
	s.log.Info("ended")
	return nil
}

func (s *serving) notLoaded(err error) error {
	errs, ok := errors.AsType[dir.Errors](err)
	if !ok || len(errs) == 1 {
		return failure{err, ""}
	}
	for _, e := range errs {
		fmt.Fprintln(s.stderr, e)
	}
	return failure{fmt.Errorf("%d mistakes in %s: nothing is served", len(errs), s.dir), ""}
}

// newLog returns a log for people if w is a terminal, else for machines.
func newLog(w io.Writer) *slog.Logger {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(slog.NewTextHandler(w, nil))
		}
	}
	return slog.New(slog.NewJSONHandler(w, nil))
}
