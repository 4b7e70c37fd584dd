package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/listen/reloadsocket"
	"github.com/chancery-xds/chancery/internal/text"
)

// Reload returns the command reload.
func Reload() *cobra.Command {
	var root string
	var approve bool
	var timeout time.Duration
	var a cli.AdminFlags
	cmd := &cobra.Command{
		Use:   "reload [DIR]",
		Short: "Make a running server load its directory again",
		Long: `Reload asks a server to load its files now, waits for the result, and prints it. Use
it with --allow-mass-delete to allow, once, a removal that the server has rejected.

Without DIR it asks the server whose admin API is at --admin, and prints which server that
is. With DIR and --admin it is an error if that server does not serve DIR. DIR overrides
CHANCERY_ADMIN.

With DIR alone it asks the server that serves DIR. This server must run on this machine, as
the same user and with the same --state-dir. With --state-dir "" reload finds it by a
folder in $XDG_RUNTIME_DIR or $TMPDIR. If it finds no server, it asks the admin API at the
default address or at CHANCERY_ADMIN, if that server serves DIR or writes it to a store.

The admin API takes --allow-mass-delete only from an authenticated caller. The user of the
server needs no flag on its machine: reload uses the control socket of that server.

After --timeout the command no longer waits; the server may still load the files.

Exit codes: 0 loaded; 1 not loaded, or unknown, with the reason; 2 wrong usage; 3 no
server answers at --admin, or it denies access.`,
		Example: `  chancery reload
  chancery reload /etc/chancery
  chancery reload /etc/chancery --allow-mass-delete`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("reload takes the one directory that is served, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return errors.New("--timeout: must be more than 0")
			}
			var r reloadsocket.Reload
			var err error
			if len(args) == 0 || cli.OnCommandLine(cmd, "admin") {
				r, err = reloadByAPI(cmd, &a, strings.Join(args, ""), timeout, approve)
			} else {
				r, err = reloadDir(cmd, &a, root, args[0], timeout, approve)
			}
			if err != nil {
				return err
			}
			for _, why := range []string{cli.RelayReload, cli.StoreReload} {
				if slices.Contains(r.Errors, why) {
					return cli.Fail(errors.New(why), "")
				}
			}
			if i := slices.IndexFunc(r.Errors, func(e string) bool { return strings.HasPrefix(e, cli.StandbyReload) }); i >= 0 {
				return cli.Fail(errors.New(text.Line(r.Errors[i])), "")
			}
			for _, e := range r.Errors {
				fmt.Fprintln(cmd.ErrOrStderr(), text.Lines(e))
			}
			if len(r.Errors) > 0 {
				return cli.Fail(errors.New("reload rejected, keeping the previous configuration"), "")
			}
			for _, e := range r.Kept {
				fmt.Fprintln(cmd.ErrOrStderr(), text.Lines(e))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ok: %s in %s, %d set, %d removed\n", text.Amount(r.Resources, "resource"), text.Amount(r.Files, "file"), r.Set, r.Removed)
			if r.Held > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s missing from the files, to be removed after --confirm-removals, or at once with --allow-mass-delete\n", text.Amount(r.Held, "resource"))
			}
			if r.KeptGroups > 0 {
				return cli.Fail(fmt.Errorf("reload rejected for %s, keeping the previous configuration of it; the others are loaded", text.Amount(r.KeptGroups, "group")), "")
			}
			return nil
		},
	}
	cli.StateDirFlag(cmd.Flags(), &root)
	cmd.Flags().Lookup("state-dir").Usage = "`directory` of the server's --state-dir; empty: the server stores nothing"
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "maximum `time` to wait for the server")
	cmd.Flags().BoolVar(&approve, "allow-mass-delete", false, "allow this one load to remove all resources that are missing from the files, at once")
	a.Register(cmd.Flags())
	cmd.ValidArgsFunction = cli.CompleteDirectory
	cli.ServerUsage(cmd)
	return cmd
}

// reloadDir sends a reload to the server of this user that serves a directory. If none answers, it
// asks the server of the admin API, which may commit the directory to a store.
func reloadDir(cmd *cobra.Command, a *cli.AdminFlags, root, dir string, timeout time.Duration, approve bool) (reloadsocket.Reload, error) {
	if root == "" { // without a state directory, the socket is in the runtime directory
		root = lastgood.RuntimeRoot()
	}
	folder, err := lastgood.Folder(root, dir)
	if err != nil {
		return reloadsocket.Reload{}, cli.Fail(err, "")
	}
	r, err := askWithNotice(cmd.ErrOrStderr(), timeout, func(ctx context.Context) (reloadsocket.Reload, error) {
		return reloadsocket.Ask(ctx, folder, approve)
	})
	if errors.Is(err, reloadsocket.ErrNobody) && a.IsServing(cmd, dir) {
		return reloadByAPI(cmd, a, dir, timeout, approve)
	}
	switch {
	case errors.Is(err, reloadsocket.ErrNobody) && missing(dir):
		err = cli.Fail(fmt.Errorf("no running server serves %s: the directory does not exist", dir), "")
	case errors.Is(err, reloadsocket.ErrNobody):
		err = cli.Fail(fmt.Errorf("no running server serves %s", dir), "DIR, --state-dir and the user must be the same as for chancery serve")
	case err != nil:
		err = cli.Fail(err, "")
	case r.PID != 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: asked process %d, which serves %s\n", r.PID, text.Line(dir))
	}
	return r, err
}

// reloadByAPI sends a reload to the server of --admin.
func reloadByAPI(cmd *cobra.Command, a *cli.AdminFlags, dir string, timeout time.Duration, approve bool) (reloadsocket.Reload, error) {
	d, err := a.Dial()
	if err != nil {
		return reloadsocket.Reload{}, err
	}
	at, err := a.Identify(cmd, d, dir)
	if err != nil {
		return reloadsocket.Reload{}, err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "chancery: asking %s\n", at)
	if approve {
		d.Close()
		d, err = a.DialAuthenticated(cmd)
		if err != nil {
			return reloadsocket.Reload{}, err
		}
	}
	r, err := askWithNotice(cmd.ErrOrStderr(), timeout, func(ctx context.Context) (reloadsocket.Reload, error) {
		r, err := d.Reload(ctx, approve)
		if err != nil {
			return reloadsocket.Reload{}, cli.AdminError(err)
		}
		return reloadsocket.Reload{
			Files: r.Files, Resources: r.Resources, Set: r.Set, Removed: r.Removed, Held: r.Held, Errors: r.Errors,
			Groups: r.Groups, KeptGroups: r.KeptGroups, Kept: r.Kept,
		}, nil
	})
	if _, is := errors.AsType[cli.Failure](err); err != nil && !is {
		err = cli.Fail(err, "") // the timeout
	}
	return r, err
}

// noticeAfter is the time without an answer after which the user gets a notice.
const noticeAfter = 10 * time.Second

// askWithNotice asks a server, with a timeout. If the answer takes long, it prints a notice that the
// command still waits.
func askWithNotice(stderr io.Writer, timeout time.Duration, ask func(context.Context) (reloadsocket.Reload, error)) (reloadsocket.Reload, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout,
		fmt.Errorf("the server has not answered for %v: it is stuck, or has a lot to load", timeout))
	defer cancel()
	still := time.AfterFunc(noticeAfter, func() {
		fmt.Fprintf(stderr, "chancery: the server has not answered for %v: waiting, %v at most (--timeout)\n", noticeAfter, timeout)
	})
	defer still.Stop()
	r, err := ask(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r, err
}

// missing reports whether a path does not exist.
func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
