package storeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// WithRepository calls f with the repository of a store.
func WithRepository(cmd *cobra.Command, at *Flags, timeout time.Duration, f func(ctx context.Context, r *revisions.Repository) error) error {
	return withEngine(cmd, at, timeout, func(ctx context.Context, _ revisions.Engine, r *revisions.Repository) error { return f(ctx, r) })
}

// withEngine calls f with the engine and the repository of a store.
func withEngine(cmd *cobra.Command, at *Flags, timeout time.Duration, f func(ctx context.Context, e revisions.Engine, r *revisions.Repository) error) error {
	_, of, err := at.Check()
	if err != nil {
		return err
	}
	e, closer, err := at.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer closer.Close()
	ctx, cancel := context.WithTimeout(cli.Context(cmd), timeout)
	defer cancel()
	repo := revisions.Open(e, revisions.Options{})
	if !at.LostHead {
		_, err = repo.Newest(ctx) // f reports all other errors
	}
	if !errors.Is(err, revisions.ErrLostHead) {
		err = f(ctx, e, repo)
	}
	if p, is := errors.AsType[*revisionapi.Problem](err); is {
		return problemError(p)
	}
	_, isFailure := errors.AsType[cli.Failure](err)
	switch {
	case err == nil || isFailure:
		return err
	case of != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, revisions.ErrUnavailable)) && !errors.Is(err, revisions.ErrUnknown):
		hint := "--store is the address of the store, and --timeout the time to wait; an etcd with TLS needs --store-tls or --store-ca"
		if at.tls() {
			hint = "--store is the address of the store, and --timeout the time to wait; does the etcd use TLS, as --store-tls, --store-ca and --store-cert say?"
		}
		return cli.FailWith(cli.NoServer, fmt.Errorf("no etcd answers at %s: %w", of, err), hint)
	case errors.Is(err, revisions.ErrUnknown):
		return cli.Fail(err, "chancery history shows whether it was committed")
	case errors.Is(err, revisions.ErrConflict):
		return cli.FailWith(cli.Conflicted, err, "see the changes with chancery history, and try again")
	case errors.Is(err, revisions.ErrNotFound):
		return cli.FailWith(cli.NotFound, err, "chancery history lists the kept revisions")
	}
	return cli.Fail(fmt.Errorf("%s: %w", at.URL, err), revisionapi.Remedy(err))
}

// problemError converts a problem to an error of the command. The admin API's answer for the same problem
// gives the same error.
func problemError(p *revisionapi.Problem) error {
	code := cli.Misuse
	switch {
	case errors.Is(p, revisions.ErrNotFound):
		code = cli.NotFound
	case errors.Is(p, revisions.ErrConflict):
		code = cli.Conflicted
	case errors.Is(p, revisionapi.ErrCannot):
		code = cli.Failed
	}
	return cli.FailWith(code, cli.PrintableError(p), textutil.Line(p.Hint))
}

// SweepTimeout is the default time limit of a sweep, long enough for a store that was never swept.
const SweepTimeout = 10 * time.Minute
