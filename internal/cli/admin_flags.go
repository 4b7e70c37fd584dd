package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/text"
)

// AskTimeout is how long a command waits for an answer that the server can give at once.
const AskTimeout = 30 * time.Second

// AdminFlags are the flags that choose the server a command asks.
type AdminFlags struct {
	Target adminclient.Target
	name   string // of the flag that names the server; "": admin
}

// Register adds those that say which server; they are the same for all commands that ask one.
func (a *AdminFlags) Register(f *pflag.FlagSet) { a.RegisterAs(f, "admin") }

// RegisterAs is flags for a command whose --admin is something else.
func (a *AdminFlags) RegisterAs(f *pflag.FlagSet, name string) {
	a.name = name
	TitledFlags(f, "Server", func(f *pflag.FlagSet) {
		f.StringVar(&a.Target.URL, name, adminclient.DefaultURL, "`URL` of the server's --admin-listen: http://HOST:PORT, https://HOST:PORT or unix:///PATH")
		f.StringVar(&a.Target.TokenFile, name+"-token-file", "", "`FILE` with the token that the server wants")
		f.StringVar(&a.Target.CA, name+"-ca", "", "`FILE` with the CA of the server's certificate")
		f.StringVar(&a.Target.Cert, name+"-cert", "", "`FILE` with a client certificate, in PEM")
		f.StringVar(&a.Target.Key, name+"-key", "", "`FILE` with its private key")
	})
}

// LocalFlag adds --local, of commands that ask for what all servers of a store know.
func LocalFlag(f *pflag.FlagSet, local *bool) {
	f.BoolVar(local, "local", false, "of a server of a store: only what that server itself knows, not what the others do")
}

// ServerUsage has a command print its own flags first, and then those that say which server.
func ServerUsage(cmd *cobra.Command) { ServerUsageWith(cmd, "CHANCERY_ADMIN for --admin") }

// ServerUsageWith is usage with examples of variables.
func ServerUsageWith(cmd *cobra.Command, variables string) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		sets := FlagsByTitle(cmd.LocalFlags(), "")
		slices.Reverse(sets)
		printTitles(w, sets)
		fmt.Fprintf(w, "\nAn environment variable can replace each flag: %s.\n", variables)
		return nil
	})
}

// SilenceHTTPLog keeps net/http from printing what it makes of a port that speaks HTTP/2 only. An error says so.
func SilenceHTTPLog() { log.SetOutput(io.Discard) }

// Dial returns the server.
func (a *AdminFlags) Dial() (*adminclient.Client, error) {
	SilenceHTTPLog()
	d, err := adminclient.Dial(a.Target)
	switch {
	case errors.Is(err, adminclient.ErrTarget):
		return nil, fmt.Errorf("--%s: %w", cmp.Or(a.name, "admin"), err)
	case (a.Target.Cert == "") != (a.Target.Key == ""):
		return nil, errors.New(a.Called("--admin-cert and --admin-key: give both or none"))
	case err != nil:
		return nil, FailWith(NoServer, err, "")
	}
	return d, nil
}

// Called is a text with the flags as a command has them whose --admin is something else.
func (a *AdminFlags) Called(text string) string {
	if a.name == "" || a.name == "admin" {
		return text
	}
	// That flag is of the server, and stays.
	return strings.NewReplacer("--admin-listen", "--admin-listen", "CHANCERY_ADMIN", variable(a.name), "--admin", "--"+a.name).Replace(text)
}

// Ask asks a server that answers at once, over a connection that does not stay.
func Ask[T any](cmd *cobra.Command, a *AdminFlags, question func(context.Context, *adminclient.Client) (T, error)) (T, error) {
	d, err := a.Dial()
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return AskOver(cmd, d, question)
}

// GetStatus is the question how a server is.
func GetStatus(ctx context.Context, d *adminclient.Client) (*api.Status, error) {
	return d.Status(ctx, "")
}

// AskOver is ask over the connection that there is, for who asks again and again.
func AskOver[T any](cmd *cobra.Command, d *adminclient.Client, question func(context.Context, *adminclient.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(Context(cmd), AskTimeout, fmt.Errorf("no answer for %v", AskTimeout))
	defer cancel()
	answer, err := question(ctx, d)
	return answer, AdminError(err)
}

// Identify says which server answers, so that who has two of them sees which one it was. If a
// directory is given it must be the one that the server serves.
func (a *AdminFlags) Identify(cmd *cobra.Command, d *adminclient.Client, dir string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(Context(cmd), AskTimeout, fmt.Errorf("no answer for %v", AskTimeout))
	defer cancel()
	about, err := d.About(ctx)
	if err != nil {
		if refused, is := errors.AsType[*adminclient.Refused](err); is && refused.Code == http.StatusNotFound && dir == "" {
			return text.Line(d.URL()), nil // of another version: it does not say
		}
		return "", AdminError(err)
	}
	s := about.Server
	at := text.Line(d.URL())
	if s.PID != 0 {
		at = text.Line(fmt.Sprintf("%s, which serves %s (process %d on %s)", d.URL(), cmp.Or(s.Path, s.Dir), s.PID, s.Host))
	}
	if dir != "" && !ServesDir(s, dir) {
		return "", FailWith(Failed, fmt.Errorf("the server at %s does not serve %s", at, dir), "--admin chooses another server")
	}
	return at, nil
}

// IsServing reports whether a server that nobody has named answers soon, and serves a directory.
func (a *AdminFlags) IsServing(cmd *cobra.Command, dir string) bool {
	d, err := a.Dial()
	if err != nil {
		return false
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(Context(cmd), GuessTimeout)
	defer cancel()
	about, err := d.About(ctx)
	return err == nil && ServesDir(about.Server, dir)
}

// Context is that of a command; of one that completes there is none.
func Context(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// AdminError returns an error of the API as one of a command.
func AdminError(err error) error {
	if err == nil {
		return nil
	}
	if u, is := errors.AsType[*adminclient.Unreachable](err); is {
		hint := "is chancery serve running? --admin or CHANCERY_ADMIN must be the address of its --admin-listen"
		if errors.Is(err, os.ErrPermission) {
			hint = "the socket is for the user and the group of the server only"
		}
		return FailWith(NoServer, PrintableError(u), hint)
	}
	r, is := errors.AsType[*adminclient.Refused](err)
	if !is {
		return FailWith(Failed, err, "")
	}
	f := Fail(PrintableError(r), text.Line(r.Answer.Hint))
	switch r.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		if f.Hint == "" {
			f.Hint = "give --admin-token-file, or --admin-cert and --admin-key"
		}
		f.Code = NoServer
		return f
	case http.StatusNotFound:
		f.Err = errors.New(text.Line(r.Answer.Message)) // which parameter it was says nothing here
		if strings.HasPrefix(f.Hint, "/api/v1/groups") {
			f.Hint = "chancery get groups lists those that there are"
		} else if strings.HasPrefix(f.Hint, "/api/") {
			f.Hint = "chancery get clients lists those that are connected"
		}
		f.Code = NotFound
		return f
	case http.StatusBadRequest: // of a value that only the server knows to be wrong
		f.Code = Misuse
		return f
	}
	return f
}

// PrintableError is an error that a server has worded, as it may be printed.
func PrintableError(err error) error { return errors.New(text.Lines(err.Error())) }

// GuessTimeout is how long a server may take that nobody has named.
const GuessTimeout = 2 * time.Second

// ServesDir reports whether a server of this machine serves a directory, or writes it to the store that it serves.
func ServesDir(s api.Server, dir string) bool {
	host, _ := os.Hostname()
	path, err := filepath.Abs(dir)
	if err != nil || s.Path == "" || s.Host != host {
		return false
	}
	return path == s.Path || resolved(path) != "" && resolved(path) == resolved(s.Path)
}

// resolved is a path without symbolic links; "" if there is nothing.
func resolved(path string) string {
	p, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	return p
}
