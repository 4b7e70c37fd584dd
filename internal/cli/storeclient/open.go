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

// withEngine calls f with what a store is kept in, too.
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
	err = f(ctx, e, revisions.Open(e, revisions.Options{}))
	if p, is := errors.AsType[*revisionapi.Problem](err); is {
		return ofProblem(p)
	}
	_, told := errors.AsType[cli.Failure](err)
	switch {
	case err == nil || told:
		return err
	case of != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, revisions.ErrUnavailable)) && !errors.Is(err, revisions.ErrUnknown):
		hint := "--store says where it is, and --timeout for how long it is asked; one with TLS needs --store-tls or --store-ca"
		if at.tls() {
			hint = "--store says where it is, and --timeout for how long it is asked; is it one with TLS, which --store-tls, --store-ca and --store-cert are for?"
		}
		return cli.FailWith(cli.NoServer, fmt.Errorf("no etcd answers at %s: %w", of, err), hint)
	case errors.Is(err, revisions.ErrUnknown):
		return cli.Fail(err, "chancery history says what is committed")
	case errors.Is(err, revisions.ErrConflict):
		return cli.FailWith(cli.Conflicted, err, "look at what has changed (chancery history), and try again")
	case errors.Is(err, revisions.ErrNotFound):
		return cli.FailWith(cli.NotFound, err, "chancery history lists what is kept")
	}
	return cli.Fail(fmt.Errorf("%s: %w", at.URL, err), "")
}

// ofProblem ends a command as an answer of the admin API does that says the same.
func ofProblem(p *revisionapi.Problem) error {
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

// SweepTimeout is the time limit of a sweep, for a store that was never swept.
const SweepTimeout = 10 * time.Minute
