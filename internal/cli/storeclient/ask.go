package storeclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	"github.com/chancery-xds/chancery/internal/text"
)

// PlainText returns the address to which a commit would send secrets in plain text over a network, and
// the flags that would prevent this. The address is "" if the secrets would not cross a network in plain
// text.
func (s *Access) PlainText(cmd *cobra.Command) (to, hint string, err error) {
	through, err := s.ThroughServer(cmd)
	switch {
	case err != nil:
		return "", "", err
	case through && s.Server.Target.Plain():
		return s.Server.Target.URL, "https:// or unix:// as --admin", nil
	case through:
		return "", "", nil
	}
	_, of, err := s.At.Check()
	if err == nil && s.At.PlainText(of) {
		to = of.String()
	}
	return to, "--store-tls or --store-ca", err
}

// An Access holds the flags for access to a store: directly, or through a server of the store.
type Access struct {
	At       Flags
	Server   cli.AdminFlags
	Flag     string // name of the flag with the server's URL; "": admin
	OtherUse bool   // the command also asks the server about other things, so --store may be given together with the server's flag
}

// Register adds the flags of the store and of the server.
func (s *Access) Register(f *pflag.FlagSet) {
	cli.TitledFlags(f, "Store", s.At.Register)
	s.Server.Register(f)
}

// ThroughServer reports whether the command asks a server instead of the store. A flag on the command
// line has priority over an environment variable. The error is an error of usage.
func (s *Access) ThroughServer(cmd *cobra.Command) (bool, error) {
	store, admin := cli.OnCommandLine(cmd, "store"), cli.OnCommandLine(cmd, s.name())
	switch {
	case store && admin && !s.OtherUse:
		return false, errors.New("give --store or --" + s.name() + ", not both")
	case s.At.URL == "", admin && !store && !s.OtherUse:
		return true, nil
	}
	_, _, err := s.At.Check()
	return false, err
}

func (s *Access) name() string { return cmp.Or(s.Flag, "admin") }

// AskSteering sends a request for a freeze or a rollout to a store, or to a server of the store.
func AskSteering[T any](cmd *cobra.Command, s *Access, timeout time.Duration, ask func(context.Context, api.Steering) (T, error)) (T, error) {
	return askEngine(cmd, s, timeout, func(ctx context.Context, e revisions.Engine, r *revisions.Repository) (T, error) {
		return ask(ctx, rollout.Steering{Engine: e, Repo: r})
	}, func(ctx context.Context, d *adminclient.Client) (T, error) { return ask(ctx, d) })
}

// Ask sends a request to a store, or to a server of the store.
func Ask[T any](cmd *cobra.Command, s *Access, timeout time.Duration, local func(context.Context, *revisions.Repository) (T, error), remote func(context.Context, *adminclient.Client) (T, error)) (T, error) {
	return askEngine(cmd, s, timeout, func(ctx context.Context, _ revisions.Engine, r *revisions.Repository) (T, error) {
		return local(ctx, r)
	}, remote)
}

// askEngine is Ask with the engine of the store.
func askEngine[T any](cmd *cobra.Command, s *Access, timeout time.Duration, local func(context.Context, revisions.Engine, *revisions.Repository) (T, error), remote func(context.Context, *adminclient.Client) (T, error)) (answer T, err error) {
	through, err := s.ThroughServer(cmd)
	if err != nil {
		return answer, err
	}
	if !through {
		err = withEngine(cmd, &s.At, timeout, func(ctx context.Context, e revisions.Engine, r *revisions.Repository) error {
			answer, err = local(ctx, e, r)
			return err
		})
		return answer, err
	}
	d, err := s.Server.Dial()
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeoutCause(cli.Context(cmd), timeout, fmt.Errorf("no answer for %v", timeout))
	defer cancel()
	answer, err = remote(ctx, d)
	if _, is := errors.AsType[cli.Failure](err); is {
		return answer, err
	}
	return answer, s.serverError(cmd, err)
}

// serverError converts the error of a request about a server's store to an error of the command.
func (s *Access) serverError(cmd *cobra.Command, err error) error {
	r, is := errors.AsType[*adminclient.Refused](err)
	switch {
	case is && r.Code == http.StatusConflict:
		return cli.FailWith(cli.Conflicted, cli.PrintableError(r), text.Line(r.Answer.Hint))
	case is && len(r.Answer.Errors) > 0:
		for _, e := range r.Answer.Errors {
			fmt.Fprintln(cmd.ErrOrStderr(), text.Line(e))
		}
		return cli.FailWith(cli.Failed, fmt.Errorf("%w: nothing is committed", cli.PrintableError(r)), "")
	case is && (r.Code == http.StatusForbidden || r.Code == http.StatusServiceUnavailable): // the server denies access, or its store does not answer: the same exit code as without a server
		return cli.FailWith(cli.NoServer, cli.PrintableError(r), text.Line(r.Answer.Hint))
	case errors.Is(err, adminclient.ErrTooLarge):
		return cli.Fail(err, "give --store, to commit to the store directly")
	}
	err = cli.AdminError(err)
	if o, is := errors.AsType[cli.Failure](err); is {
		o.Hint = s.Server.WithFlagNames(o.Hint)
		if o.Code == cli.NoServer && !cmd.Flags().Changed(s.name()) {
			o.Hint = "--store URL names a store, and --" + s.name() + " URL a server of one"
		}
		return o
	}
	return err
}

// revision returns a revision of the store; 0 is the newest. The result hidden counts the resources
// that the server sent without their secrets.
func (s *Access) revision(cmd *cobra.Command, n revisions.Number) (at *revisions.Snapshot, hidden int, err error) {
	at, err = Ask(cmd, s, Timeout, func(ctx context.Context, r *revisions.Repository) (*revisions.Snapshot, error) {
		return revisionapi.At(ctx, r, n)
	}, func(ctx context.Context, d *adminclient.Client) (*revisions.Snapshot, error) {
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
			items[i], err = revisionapi.Item(l)
			if err != nil {
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
