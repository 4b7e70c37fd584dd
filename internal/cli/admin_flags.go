package cli

import (
	"cmp"
	"context"
	"crypto/tls"
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
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/text"
)

// AskTimeout is the timeout of a request that the server can answer without waiting.
const AskTimeout = 30 * time.Second

// AdminFlags are the flags that choose the server for a command's requests.
type AdminFlags struct {
	Target adminclient.Target
	name   string // name of the flag with the server's URL; "": admin
}

// Register adds the flags. All commands that ask a server have the same flags.
func (a *AdminFlags) Register(f *pflag.FlagSet) { a.RegisterAs(f, "admin") }

// RegisterAs adds the flags for a command whose --admin has another meaning.
func (a *AdminFlags) RegisterAs(f *pflag.FlagSet, name string) {
	a.name = name
	TitledFlags(f, "Server", func(f *pflag.FlagSet) {
		f.StringVar(&a.Target.URL, name, adminclient.DefaultURL, "`URL` of the server's --admin-listen: http://HOST:PORT, https://HOST:PORT or unix:///PATH")
		f.StringVar(&a.Target.TokenFile, name+"-token-file", "", "`FILE` with the token that the server requires")
		f.StringVar(&a.Target.CA, name+"-ca", "", "`FILE` with the CA of the server's certificate")
		f.StringVar(&a.Target.Cert, name+"-cert", "", "`FILE` with a client certificate, in PEM")
		f.StringVar(&a.Target.Key, name+"-key", "", "`FILE` with its private key")
		for _, part := range []string{"", "-token-file", "-ca", "-cert", "-key"} {
			Annotate(f.Lookup(name+part), OwnVariable, variable("admin"+part))
		}
	})
}

// LocalFlag adds --local, for commands that ask for the state of all servers of a store.
func LocalFlag(f *pflag.FlagSet, local *bool) {
	f.BoolVar(local, "local", false, "with servers of a store: only the state of the server that answers, without the others")
}

// ServerUsage makes a command print its own flags first, and then the flags that choose the server.
func ServerUsage(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		sets := FlagsByTitle(cmd.LocalFlags(), "")
		slices.Reverse(sets)
		printTitles(w, sets)
		fmt.Fprintln(w, "\nThese environment variables replace flags:")
		for line := range slices.Chunk(variablesOf(cmd), 3) {
			fmt.Fprintln(w, "  "+strings.Join(line, " "))
		}
		return nil
	})
}

// SilenceHTTPLog disables the log of net/http, which would print a line if a port speaks only HTTP/2. The
// error of the request has the same information.
func SilenceHTTPLog() { log.SetOutput(io.Discard) }

// Dial returns a client of the chosen server.
func (a *AdminFlags) Dial() (*adminclient.Client, error) {
	SilenceHTTPLog()
	d, err := adminclient.Dial(a.Target)
	switch {
	case errors.Is(err, adminclient.ErrTarget):
		return nil, fmt.Errorf("--%s: %w", cmp.Or(a.name, "admin"), err)
	case (a.Target.Cert == "") != (a.Target.Key == ""):
		return nil, errors.New(a.WithFlagNames("--admin-cert and --admin-key: give both or none"))
	case err != nil:
		return nil, FailWith(NoServer, err, "")
	}
	return d, nil
}

// WithFlagNames replaces the flag names in a text by the names that this command uses for the flags.
func (a *AdminFlags) WithFlagNames(text string) string {
	if a.name == "" || a.name == "admin" {
		return text
	}
	// The server's flag --admin-listen is not renamed.
	return strings.NewReplacer("--admin-listen", "--admin-listen", "--admin", "--"+a.name).Replace(text)
}

// Ask requests an answer that the server can give without waiting, and closes the connection.
func Ask[T any](cmd *cobra.Command, a *AdminFlags, question func(context.Context, *adminclient.Client) (T, error)) (T, error) {
	d, err := a.Dial()
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return AskOver(cmd, d, question)
}

// AskAuthenticated is Ask for a command that a server takes only from an authenticated caller.
func AskAuthenticated[T any](cmd *cobra.Command, a *AdminFlags, question func(context.Context, *adminclient.Client) (T, error)) (T, error) {
	d, err := a.DialAuthenticated(cmd)
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return AskOver(cmd, d, question)
}

// DialAuthenticated is Dial for a command that a server takes only from an authenticated caller. If the flags
// have no credentials, and the server runs on this machine, it returns a client of the server's control socket.
func (a *AdminFlags) DialAuthenticated(cmd *cobra.Command) (*adminclient.Client, error) {
	d, err := a.Dial()
	t := a.Target
	if err != nil || strings.HasPrefix(t.URL, "unix:") || t.TokenFile != "" || t.Cert != "" {
		return d, err
	}
	about, err := AskOver(cmd, d, func(ctx context.Context, d *adminclient.Client) (*api.VersionInfo, error) { return d.About(ctx) })
	if host, _ := os.Hostname(); err != nil || about.Server.Control == "" || about.Server.Host != host {
		return d, err
	}
	d.Close()
	socket := AdminFlags{Target: adminclient.Target{URL: "unix://" + about.Server.Control}, name: a.name}
	return socket.Dial()
}

// GetStatus requests the status of a server, for Ask.
func GetStatus(ctx context.Context, d *adminclient.Client) (*api.Status, error) {
	return d.Status(ctx, "")
}

// AskOver is Ask over an open connection, for repeated requests.
func AskOver[T any](cmd *cobra.Command, d *adminclient.Client, question func(context.Context, *adminclient.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(Context(cmd), AskTimeout, fmt.Errorf("no answer for %v", AskTimeout))
	defer cancel()
	answer, err := question(ctx, d)
	return answer, AdminError(err)
}

// Identify returns a text with the address, the directory and the process of the server, so that a user
// with two servers sees which server answered. If dir is not "", the server must serve that directory.
func (a *AdminFlags) Identify(cmd *cobra.Command, d *adminclient.Client, dir string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(Context(cmd), AskTimeout, fmt.Errorf("no answer for %v", AskTimeout))
	defer cancel()
	about, err := d.About(ctx)
	if err != nil {
		if refused, is := errors.AsType[*adminclient.Refused](err); is && refused.Code == http.StatusNotFound && dir == "" {
			return text.Line(d.URL()), nil // an older server does not know this request
		}
		return "", AdminError(err)
	}
	s := about.Server
	at := text.Line(d.URL())
	if s.PID != 0 {
		what := cmp.Or(text.Prefixed("which serves ", cmp.Or(s.Path, s.Dir)), s.Replica) // a program with package admin has a name only
		at = text.Line(fmt.Sprintf("%s, %s (process %d on %s)", d.URL(), what, s.PID, s.Host))
	}
	if dir != "" && !ServesDir(s, dir) {
		return "", FailWith(Failed, fmt.Errorf("the server at %s does not serve %s", at, dir), "--admin chooses another server")
	}
	return at, nil
}

// IsServing reports whether the server answers in time and serves a directory.
func (a *AdminFlags) IsServing(cmd *cobra.Command, dir string) bool {
	d, err := a.Dial()
	if err != nil {
		return false
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(Context(cmd), DefaultServerTimeout)
	defer cancel()
	about, err := d.About(ctx)
	return err == nil && ServesDir(about.Server, dir)
}

// Context returns the context of a command. During the completion of arguments, a command has no context.
func Context(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// AdminError converts an error of the admin API to an error of a command.
func AdminError(err error) error {
	if err == nil {
		return nil
	}
	if u, is := errors.AsType[*adminclient.Unreachable](err); is {
		hint := "is chancery serve running? --admin or CHANCERY_ADMIN must be the address of its --admin-listen"
		_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
		switch {
		case untrusted:
			hint = "give the CA of the server's certificate with --admin-ca, and use a name in the certificate for --admin"
		case errors.Is(err, os.ErrPermission):
			hint = "only the user and the group of the server may use the socket"
		case u.Local():
			hint += runningHint()
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
		const give = "give --admin-token-file, or --admin-cert and --admin-key"
		switch {
		case f.Hint == "":
			f.Hint = give
		case r.Code == http.StatusUnauthorized: // the server's hint is about the roles file
			f.Hint = give + "; " + f.Hint
		}
		f.Code = NoServer
		return f
	case http.StatusNotFound:
		f.Err = errors.New(text.Line(r.Answer.Message)) // without the name of the parameter, which the user does not know
		if strings.HasPrefix(f.Hint, "/api/v1/groups") {
			f.Hint = "chancery get groups lists the groups"
		} else if strings.HasPrefix(f.Hint, "/api/") {
			f.Hint = "chancery get clients lists the connected clients"
		}
		f.Code = NotFound
		return f
	case http.StatusBadRequest: // only the server can check the value
		f.Code = Misuse
		return f
	}
	return f
}

// runningHint returns the end of a hint that names the servers of this user on this machine; "" if none runs.
// Such a server has another --admin-listen, or waits until another process frees its address.
func runningHint() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all := lastgood.ControlSockets(ctx)
	if len(all) == 0 {
		return ""
	}
	return "; servers of this user answer at other addresses: --admin unix://" + strings.Join(all, " or unix://")
}

// PrintableError removes control characters from the text of an error, because the text comes from a
// server.
func PrintableError(err error) error { return errors.New(text.Lines(err.Error())) }

// DefaultServerTimeout is the timeout for the server at the default address, if the user did not name a
// server.
const DefaultServerTimeout = 2 * time.Second

// ServesDir reports whether a server runs on this machine and serves a directory, or commits that
// directory to its store.
func ServesDir(s api.Server, dir string) bool {
	host, _ := os.Hostname()
	path, err := filepath.Abs(dir)
	if err != nil || s.Path == "" || s.Host != host {
		return false
	}
	return path == s.Path || resolved(path) != "" && resolved(path) == resolved(s.Path)
}

// resolved returns a path without symbolic links, or "" if the path does not exist.
func resolved(path string) string {
	p, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	return p
}
