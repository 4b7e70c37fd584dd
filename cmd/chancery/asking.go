package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text"
)

// askTime is how long a command waits for an answer that the server can give at once.
const askTime = 30 * time.Second

// An asking is which server a command asks.
type asking struct {
	target api.Target
	name   string // of the flag that names the server; "": admin
}

// flags adds those that say which server; they are the same for all commands that ask one.
func (a *asking) flags(f *pflag.FlagSet) { a.flagsAs(f, "admin") }

// flagsAs is flags for a command whose --admin is something else.
func (a *asking) flagsAs(f *pflag.FlagSet, name string) {
	a.name = name
	titled(f, "Server", func(f *pflag.FlagSet) {
		f.StringVar(&a.target.URL, name, api.DefaultURL, "`URL` of the server's --admin-listen: http://HOST:PORT, https://HOST:PORT or unix:///PATH")
		f.StringVar(&a.target.TokenFile, name+"-token-file", "", "`FILE` with the token that the server wants")
		f.StringVar(&a.target.CA, name+"-ca", "", "`FILE` with the CA of the server's certificate")
		f.StringVar(&a.target.Cert, name+"-cert", "", "`FILE` with a client certificate, in PEM")
		f.StringVar(&a.target.Key, name+"-key", "", "`FILE` with its private key")
	})
}

// localFlag adds --local, of commands that ask for what all servers of a store know.
func localFlag(f *pflag.FlagSet, local *bool) {
	f.BoolVar(local, "local", false, "of a server of a store: only what that server itself knows, not what the others do")
}

// usage has a command print its own flags first, and then those that say which server.
func usage(cmd *cobra.Command) { usageWith(cmd, "CHANCERY_ADMIN for --admin") }

// usageWith is usage with examples of variables.
func usageWith(cmd *cobra.Command, variables string) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		sets := titles(cmd.LocalFlags(), "")
		slices.Reverse(sets)
		printTitles(w, sets)
		fmt.Fprintf(w, "\nAn environment variable can replace each flag: %s.\n", variables)
		return nil
	})
}

// quietHTTP keeps net/http from printing what it makes of a port that speaks HTTP/2 only. An error says so.
func quietHTTP() { log.SetOutput(io.Discard) }

// dial returns the server.
func (a *asking) dial() (*api.Daemon, error) {
	quietHTTP()
	d, err := api.Dial(a.target)
	switch {
	case errors.Is(err, api.ErrTarget):
		return nil, fmt.Errorf("--%s: %w", cmp.Or(a.name, "admin"), err)
	case (a.target.Cert == "") != (a.target.Key == ""):
		return nil, errors.New(a.called("--admin-cert and --admin-key: give both or none"))
	case err != nil:
		return nil, failWith(noServer, err, "")
	}
	return d, nil
}

// called is a text with the flags as a command has them whose --admin is something else.
func (a *asking) called(text string) string {
	if a.name == "" || a.name == "admin" {
		return text
	}
	// That flag is of the server, and stays.
	return strings.NewReplacer("--admin-listen", "--admin-listen", "CHANCERY_ADMIN", variable(a.name), "--admin", "--"+a.name).Replace(text)
}

// ask asks a server that answers at once, over a connection that does not stay.
func ask[T any](cmd *cobra.Command, a *asking, question func(context.Context, *api.Daemon) (T, error)) (T, error) {
	d, err := a.dial()
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return askOf(cmd, d, question)
}

// statusAt is the question how a server is.
func statusAt(ctx context.Context, d *api.Daemon) (*api.Status, error) {
	return d.Status(ctx, "")
}

// askOf is ask over the connection that there is, for who asks again and again.
func askOf[T any](cmd *cobra.Command, d *api.Daemon, question func(context.Context, *api.Daemon) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(contextOf(cmd), askTime, fmt.Errorf("no answer for %v", askTime))
	defer cancel()
	answer, err := question(ctx, d)
	return answer, asked(err)
}

// identify says which server answers, so that who has two of them sees which one it was. If a
// directory is given it must be the one that the server serves.
func (a *asking) identify(cmd *cobra.Command, d *api.Daemon, dir string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(contextOf(cmd), askTime, fmt.Errorf("no answer for %v", askTime))
	defer cancel()
	about, err := d.About(ctx)
	if err != nil {
		if refused, is := errors.AsType[*api.Refused](err); is && refused.Code == http.StatusNotFound && dir == "" {
			return text.Line(d.Shown()), nil // of another version: it does not say
		}
		return "", asked(err)
	}
	s := about.Server
	at := text.Line(d.Shown())
	if s.PID != 0 {
		at = text.Line(fmt.Sprintf("%s, which serves %s (process %d on %s)", d.Shown(), cmp.Or(s.Path, s.Dir), s.PID, s.Host))
	}
	if dir != "" && !serves(s, dir) {
		return "", failWith(failed, fmt.Errorf("the server at %s does not serve %s", at, dir), "--admin chooses another server")
	}
	return at, nil
}

// serving reports whether a server that nobody has named answers soon, and serves a directory.
func (a *asking) serving(cmd *cobra.Command, dir string) bool {
	d, err := a.dial()
	if err != nil {
		return false
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(contextOf(cmd), guessTime)
	defer cancel()
	about, err := d.About(ctx)
	return err == nil && serves(about.Server, dir)
}

// contextOf is that of a command; of one that completes there is none.
func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// asked returns an error of the API as one of a command.
func asked(err error) error {
	if err == nil {
		return nil
	}
	if u, is := errors.AsType[*api.Unreachable](err); is {
		hint := "is chancery serve running? --admin or CHANCERY_ADMIN must be the address of its --admin-listen"
		if errors.Is(err, os.ErrPermission) {
			hint = "the socket is for the user and the group of the server only"
		}
		return failWith(noServer, printed(u), hint)
	}
	r, is := errors.AsType[*api.Refused](err)
	if !is {
		return failWith(failed, err, "")
	}
	f := fail(printed(r), text.Line(r.Said.Hint))
	switch r.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		if f.hint == "" {
			f.hint = "give --admin-token-file, or --admin-cert and --admin-key"
		}
		f.code = noServer
		return f
	case http.StatusNotFound:
		f.err = errors.New(text.Line(r.Said.Message)) // which parameter it was says nothing here
		if strings.HasPrefix(f.hint, "/api/v1/groups") {
			f.hint = "chancery get groups lists those that there are"
		} else if strings.HasPrefix(f.hint, "/api/") {
			f.hint = "chancery get clients lists those that are connected"
		}
		f.code = notFound
		return f
	case http.StatusBadRequest: // of a value that only the server knows to be wrong
		f.code = misuse
		return f
	}
	return f
}

// printed is an error that a server has worded, as it may be printed.
func printed(err error) error { return errors.New(text.Lines(err.Error())) }
