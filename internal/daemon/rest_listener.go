package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/internal/auth/identity"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/rest"
	"github.com/chancery-xds/chancery/server"
)

// restFlags are the flags of the listener of REST-JSON.
type restFlags struct {
	address string // "": no REST-JSON

	parsed listen.Address // address, after check
}

// A restFront serves xDS over REST-JSON.
type restListener struct {
	restFlags
	listener net.Listener
	web      *http.Server
}

// How long things may take. A poll is held for [server.MaxHold].
const (
	restRead  = 2 * time.Minute // to send a request
	restBegin = time.Minute     // of that, its headers; and between two polls
	restWrite = server.MaxHold + 30*time.Second
	restEnd   = time.Second // requests under way when the server ends; polls are answered by then
)

// check parses the address; an error is one of usage.
func (r *restFlags) check() error {
	if r.address == "" {
		return nil
	}
	a, err := listen.Parse(r.address)
	if err != nil {
		return fmt.Errorf("--rest-listen: %w", err)
	}
	r.parsed = a
	return nil
}

// plain returns an address at which others may read what is sent, or "".
func (r *restFlags) plain(f *listenFlags) string {
	if r.address == "" || f.secure(r.parsed) || r.parsed.Loopback() {
		return ""
	}
	return r.parsed.String()
}

// open listens, with the TLS of the front, which is open.
func (r *restListener) open(log *slog.Logger, types *envoy.Types, xds *server.Server, clients *listen.Limit, f *xdsListeners) error {
	if r.address == "" {
		return nil
	}
	r.web = &http.Server{
		Handler:           rest.New(xds, rest.WithLogger(log), rest.WithResolver(types)),
		ReadHeaderTimeout: restBegin,
		ReadTimeout:       restRead,
		WriteTimeout:      restWrite,
		IdleTimeout:       restBegin,
		MaxHeaderBytes:    16 << 10,
		Protocols:         new(http.Protocols),
		ErrorLog:          f.handshakes.ErrorLog(), // what clients do
	}
	r.web.Protocols.SetHTTP1(true)
	r.web.Protocols.SetHTTP2(true)
	r.web.Protocols.SetUnencryptedHTTP2(true)
	switch {
	case f.secure(r.parsed):
		r.web.TLSConfig = webTLS(f.certs.Config())
	case r.parsed.Network == "unix":
		r.web.ConnContext = identity.ConnContext
	}
	l, err := r.parsed.Open(context.Background())
	if err != nil {
		return cli.Fail(err, "--rest-listen chooses another address")
	}
	r.listener = clients.On(l)
	return nil
}

// webTLS returns a configuration made for gRPC, which knows HTTP/2 only, with
// HTTP/1.1 besides.
func webTLS(c *tls.Config) *tls.Config {
	current := c.GetConfigForClient
	with := func(c *tls.Config) *tls.Config {
		c = c.Clone()
		c.NextProtos = []string{"h2", "http/1.1"}
		return c
	}
	c = with(c)
	c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := current(h)
		if err != nil {
			return nil, err
		}
		return with(c), nil
	}
	return c
}

// serve serves until the listener fails, which it tells, or the front is closed.
func (r *restListener) serve() <-chan error {
	if r.address == "" {
		return nil
	}
	failed := make(chan error, 1)
	go func() {
		var err error
		if r.web.TLSConfig != nil {
			err = r.web.ServeTLS(r.listener, "", "")
		} else {
			err = r.web.Serve(r.listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()
	return failed
}

// at returns the address that is listened on.
func (r *restListener) at() string {
	if r.parsed.Network == "unix" {
		return r.parsed.String()
	}
	return r.listener.Addr().String()
}

// goAway takes no more connections, and has those that there are end when their polls
// have.
func (r *restListener) goAway() {
	if r.listener != nil {
		go r.web.Shutdown(context.Background()) //nolint:errcheck // close is told
	}
}

// close ends connections. Polls end before, when the server is drained.
func (r *restListener) close() {
	if r.listener == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), restEnd)
	defer cancel()
	if r.web.Shutdown(ctx) != nil {
		_ = r.web.Close()
	}
	_ = r.listener.Close() // of a server that has not begun
}
