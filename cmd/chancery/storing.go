package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	"github.com/chancery-xds/chancery/internal/text"
)

// A storing says how a command comes to a store: by itself, or through a server of it.
type storing struct {
	at     storeFlags
	server asking
	flag   string // that names the server; "": admin
	more   bool   // the server is asked of something else, too: then --store counts, if both are given
}

func (s *storing) flags(f *pflag.FlagSet) {
	titled(f, "Store", s.at.flags)
	s.server.flags(f)
}

// through reports whether a server is asked. What is on the command line counts more than a
// variable; an error is one of usage.
func (s *storing) through(cmd *cobra.Command) (bool, error) {
	store, admin := onCommandLine(cmd, "store"), onCommandLine(cmd, s.name())
	switch {
	case store && admin && !s.more:
		return false, errors.New("give --store or --" + s.name() + ", not both")
	case s.at.url == "", admin && !store && !s.more:
		return true, nil
	}
	_, _, err := s.at.check()
	return false, err
}

func (s *storing) name() string { return cmp.Or(s.flag, "admin") }

// askSteering has something done about which revision is served of a group.
func askSteering[T any](cmd *cobra.Command, s *storing, timeout time.Duration, ask func(context.Context, admin.Steering) (T, error)) (T, error) {
	return askEngine(cmd, s, timeout, func(ctx context.Context, e revisions.Engine, r *revisions.Repository) (T, error) {
		return ask(ctx, rollout.Steering{Engine: e, Repo: r})
	}, func(ctx context.Context, d *api.Daemon) (T, error) { return ask(ctx, d) })
}

// askStore asks a store, or the server of one.
func askStore[T any](cmd *cobra.Command, s *storing, timeout time.Duration, local func(context.Context, *revisions.Repository) (T, error), remote func(context.Context, *api.Daemon) (T, error)) (T, error) {
	return askEngine(cmd, s, timeout, func(ctx context.Context, _ revisions.Engine, r *revisions.Repository) (T, error) {
		return local(ctx, r)
	}, remote)
}

// askEngine is askStore, with what the store is kept in.
func askEngine[T any](cmd *cobra.Command, s *storing, timeout time.Duration, local func(context.Context, revisions.Engine, *revisions.Repository) (T, error), remote func(context.Context, *api.Daemon) (T, error)) (answer T, err error) {
	through, err := s.through(cmd)
	if err != nil {
		return answer, err
	}
	if !through {
		err = withEngine(cmd, &s.at, timeout, func(ctx context.Context, e revisions.Engine, r *revisions.Repository) error {
			answer, err = local(ctx, e, r)
			return err
		})
		return answer, err
	}
	d, err := s.server.dial()
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeoutCause(contextOf(cmd), timeout, fmt.Errorf("no answer for %v", timeout))
	defer cancel()
	answer, err = remote(ctx, d)
	if p, is := errors.AsType[*revisionapi.Problem](err); is {
		return answer, ofProblem(p)
	}
	return answer, s.asked(cmd, err)
}

// asked is asked for what a server says of its store.
func (s *storing) asked(cmd *cobra.Command, err error) error {
	r, is := errors.AsType[*api.Refused](err)
	switch {
	case is && r.Code == http.StatusConflict:
		return failWith(conflicted, printed(r), text.Line(r.Said.Hint))
	case is && len(r.Said.Errors) > 0:
		for _, e := range r.Said.Errors {
			fmt.Fprintln(cmd.ErrOrStderr(), text.Line(e))
		}
		return failWith(failed, fmt.Errorf("%w: nothing is committed", printed(r)), "")
	case is && (r.Code == http.StatusForbidden || r.Code == http.StatusServiceUnavailable): // as without a server: it or the store does not answer
		return failWith(noServer, printed(r), text.Line(r.Said.Hint))
	case errors.Is(err, api.ErrTooLarge):
		return fail(err, "give --store: then it goes to the store itself")
	}
	err = asked(err)
	if o, is := errors.AsType[failure](err); is {
		if o.hint = s.server.called(o.hint); o.code == noServer && !cmd.Flags().Changed(s.name()) {
			o.hint = "--store URL names a store, and --" + s.name() + " URL a server of one"
		}
		return o
	}
	return err
}

// revision returns one of the store, 0 being the newest, and whether something in it is not shown.
func (s *storing) revision(cmd *cobra.Command, n revisions.Number) (at *revisions.Snapshot, hidden int, err error) {
	at, err = askStore(cmd, s, storeTime, func(ctx context.Context, r *revisions.Repository) (*revisions.Snapshot, error) {
		return revisionapi.At(ctx, r, n)
	}, func(ctx context.Context, d *api.Daemon) (*revisions.Snapshot, error) {
		rev := "head"
		if n > 0 {
			rev = n.String()
		}
		of, lines, err := d.RevisionItems(ctx, rev)
		if err != nil {
			return nil, err
		}
		items := make([]*revisions.Item, len(lines))
		for i, l := range lines {
			if l.Redacted {
				hidden++
			}
			if items[i], err = revisionapi.Item(l); err != nil {
				return nil, fmt.Errorf("%s: %w", revisionapi.Place(l), err)
			}
		}
		at, err := revisions.Of(items)
		if err == nil {
			at.Revision.Time = of.Time
		}
		return at, err
	})
	return at, hidden, err
}
