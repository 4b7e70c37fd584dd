package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/admin"
	authcerts "github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/auth/identity"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/listen"
)

// AdminAddress is the default address of the admin API, for the server and for commands.
const AdminAddress = "127.0.0.1:18001"

// maxAdminConnections is the maximum number of connections of the admin API.
const maxAdminConnections = 256

// adminFlags are the flags of the admin API.
type adminFlags struct {
	addresses []string
	token     string // the file with the token; "": requests need no token
	tls       authcerts.Files
	roles     string // the file with the roles of callers; "": callers have all roles

	links []string // links of the page to other programs, as NAME=URL

	chosen bool             // a flag requests the API or authentication, so a failure to serve the API ends the start
	parsed []listen.Address // the addresses, after check
}

// served reports whether the flags request an admin API.
func (a *adminFlags) served() bool { return len(a.parsed) > 0 }

// adminListeners serve the admin API.
type adminListeners struct {
	adminFlags

	mu        sync.Mutex       // guards listeners after open; not held during I/O
	listeners []net.Listener   // that serve, or will
	inUse     []listen.Address // in use by another process at the start; serve tries them again
	control   controlSocket
	limit     *listen.Limit
	certs     *authcerts.Source      // nil: no TLS
	lastToken func() (string, error) // the token in the file; nil: requests need no token
	callers   *adminRoles            // nil: callers have all roles
}

func (a *adminFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&a.addresses, "admin-listen", []string{AdminAddress}, "`HOST:PORT` or unix:///PATH to serve the admin API on, which shows the state of each client; may be repeated; empty: no admin API")
	f.Lookup("admin-listen").DefValue = AdminAddress // without brackets
	f.StringVar(&a.token, "admin-token-file", "", "`FILE` with a token that requests of the admin API must have, except on unix sockets (Authorization: Bearer TOKEN)")
	f.StringVar(&a.tls.Cert, "admin-tls-cert", "", "`FILE` with the certificate of the admin API, in PEM; turns TLS on")
	f.StringVar(&a.tls.Key, "admin-tls-key", "", "`FILE` with the private key of --admin-tls-cert")
	f.StringVar(&a.roles, "admin-roles", "", "`FILE` with the callers of the admin API and their roles; each request then needs a token, a certificate or a unix socket, and a certificate for --admin-client-ca is not required")
	f.StringArrayVar(&a.links, "page-link", nil, "`NAME=URL` of a link from the page to another program, such as 'Logs=https://logs.example/?q={node}'; {node}, {group}, {type} and {name} are replaced; may be repeated")
	f.StringVar(&a.tls.ClientCA, "admin-client-ca", "", "`FILE` with the CA that the certificates of callers must chain to (mutual TLS)")
}

// authenticates reports whether callers must authenticate. Then another program on the same port is
// dangerous: it would receive the callers' tokens and could send false answers.
func (a *adminFlags) authenticates() bool {
	return a.token != "" || a.roles != "" || a.tls.Configured()
}

// check parses the addresses; it returns usage errors.
func (a *adminFlags) check() error {
	if _, err := pageLinks(a.links); err != nil {
		return err
	}
	for _, s := range a.addresses {
		if s == "" {
			continue
		}
		at, err := listen.Parse(s)
		if err != nil {
			return fmt.Errorf("--admin-listen: %w", err)
		}
		a.parsed = append(a.parsed, at)
	}
	if a.tls.Configured() && (a.tls.Cert == "" || a.tls.Key == "") {
		return errors.New("TLS of the admin API needs both --admin-tls-cert and --admin-tls-key; --admin-client-ca needs them, too")
	}
	for _, at := range a.parsed {
		if !at.Loopback() && a.token == "" && a.tls.ClientCA == "" && a.roles == "" {
			return fmt.Errorf("--admin-listen: %s can be reached from other machines: give --admin-token-file, --admin-client-ca or --admin-roles, so that callers must authenticate", at)
		}
	}
	return nil
}

// open opens the listeners. An address that another process uses, for example the server that this one
// replaces, does not end the start: serve tries it again. It does end the start if callers must authenticate,
// because they would send their tokens to the other process.
func (a *adminListeners) open(log *slog.Logger, most int) error {
	if len(a.parsed) == 0 {
		return nil
	}
	if a.token != "" {
		if _, err := readToken(a.token); err != nil {
			return cli.Fail(err, "")
		}
	}
	if a.roles != "" {
		a.callers = newAdminRoles(a.roles)
		if err := a.callers.load(log); err != nil {
			return err
		}
	}
	if a.tls.Configured() {
		var err error
		files := a.tls
		files.Optional = a.callers != nil
		a.certs, err = authcerts.Open(files, log)
		if err != nil {
			return cli.Fail(err, "")
		}
	}
	a.control.open(log)
	a.limit = listen.NewLimit(max(16, min(maxAdminConnections, most)))
	for _, at := range a.parsed {
		l, err := at.Open(context.Background())
		switch {
		case errors.Is(err, listen.ErrInUse) && !a.authenticates():
			logInUse(log, "admin API", "--admin-listen", err)
			a.inUse = append(a.inUse, at)
			continue
		case err != nil && !a.chosen:
			log.Warn("the admin API is not served", "error", err, "hint", "--admin-listen chooses another address")
			continue
		case err != nil:
			a.close()
			return cli.Fail(err, "--admin-listen chooses another address")
		}
		a.add(log, l)
	}
	return nil
}

// logInUse logs that a part waits until its address is free.
func logInUse(log *slog.Logger, part, flag string, err error) {
	log.Warn("the address of a listener is in use, trying it until it is free", "for", part, "error", err, "hint", flag+" chooses another address")
}

// add adds an open listener and returns it with the limit of connections.
func (a *adminListeners) add(log *slog.Logger, l net.Listener) net.Listener {
	if !listen.Loopback(l.Addr()) && !a.tls.Configured() {
		log.Warn("the admin API sends and gets everything in plain text, the token included", "http", l.Addr().String(), "hint", "--admin-tls-cert, --admin-tls-key")
	}
	l = a.limit.On(l)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, l)
	return l
}

// opened returns the open listeners.
func (a *adminListeners) opened() []net.Listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.listeners)
}

// serve answers requests until ctx is done.
func (a *adminListeners) serve(ctx context.Context, running *sync.WaitGroup, s *admin.Server) {
	s.Token = a.lastToken
	if a.certs != nil {
		s.TLS = webTLS(a.certs.Config())
		running.Go(func() { a.certs.Run(ctx) })
	}
	if a.callers != nil {
		s.Roles = a.callers.current.Load
		s.OIDC = a.callers.oidc
		s.Identity, s.ConnContext = new(identity.Finder).Find, identity.ConnContext
		running.Go(func() { a.callers.run(ctx, s.Log) })
	}
	running.Go(func() { s.RunGroupCommands(ctx) })
	answer := func(l net.Listener) {
		if err := s.Serve(ctx, l); err != nil {
			s.Log.Error("the listener of the admin API failed", "error", err)
		}
	}
	if l := a.control.listener; l != nil {
		running.Go(func() {
			defer a.control.close()
			if err := s.ServeOwn(ctx, a.limit.On(l)); err != nil {
				s.Log.Error("the listener of the admin API failed", "error", err)
			}
		})
	}
	logged := func(l net.Listener) {
		s.Log.Info("admin API", "http", addressOf(l), "tls", a.certs != nil, "token", a.token != "", "roles", a.roles != "")
	}
	for _, l := range a.opened() {
		running.Go(func() { answer(l) })
		logged(l)
	}
	for _, at := range a.inUse {
		running.Go(func() {
			l, err := at.OpenWhenFree(ctx)
			switch {
			case ctx.Err() != nil:
				if l != nil {
					_ = l.Close()
				}
			case err != nil:
				s.Log.Error("the listener of the admin API failed", "error", err)
			default:
				l = a.add(s.Log, l)
				logged(l)
				answer(l)
			}
		})
	}
}

// addressOf returns the address of a listener, with the port that the system chose.
func addressOf(l net.Listener) string {
	addr := l.Addr()
	if addr.Network() == "unix" {
		return "unix://" + addr.String()
	}
	return addr.String()
}

// close closes the listeners before they serve.
func (a *adminListeners) close() {
	a.control.close()
	for _, l := range a.listeners {
		_ = l.Close()
	}
}

// The minimum and maximum length of a token in bytes; a short token can be guessed.
const minToken, maxToken = 16, 4096

// readToken reads the token of --admin-token-file.
func readToken(path string) (string, error) { return readTokenFile("--admin-token-file", path) }

// readTokenFile reads a token from the file that a flag names.
func readTokenFile(flag, path string) (string, error) {
	b, err := disk.ReadSecret(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	token := string(bytes.TrimSpace(b))
	switch {
	case len(b) > maxToken:
		return "", fmt.Errorf("%s: %s has more than %d bytes", flag, path, maxToken)
	case len(token) < minToken:
		return "", fmt.Errorf("%s: the token in %s has %d bytes, but must have %d or more", flag, path, len(token), minToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s: the token in %s must be one word of ASCII characters", flag, path)
	}
	return token, nil
}
