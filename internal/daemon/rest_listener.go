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

	parsed listen.Address // the address, after check
}

// A restListener serves xDS over REST-JSON.
type restListener struct {
	restFlags
	listener net.Listener
	web      *http.Server
}

// Timeouts of a connection. A poll is held for [server.MaxHold].
const (
	restRead  = 2 * time.Minute // to receive a request
	restBegin = time.Minute     // to receive the headers; also the time between two polls
	restWrite = server.MaxHold + 30*time.Second
	restEnd   = time.Second // for requests in flight at shutdown; polls were answered before
)

// check parses the address; it returns usage errors.
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

// plain returns an address on which others could read the traffic, or "".
func (r *restFlags) plain(f *listenFlags) string {
	if r.address == "" || f.secure(r.parsed) || r.parsed.Loopback() {
		return ""
	}
	return r.parsed.String()
}

// open listens. It uses the TLS of the xDS listeners, which must be open.
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
		ErrorLog:          f.handshakes.ErrorLog(), // logs the errors of clients
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

// webTLS adds HTTP/1.1 to a TLS configuration for gRPC, which has HTTP/2 only.
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

// serve accepts connections until the listener fails or is closed. The returned channel receives the
// failure.
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

// at returns the address of the listener, with the port that the system chose.
func (r *restListener) at() string {
	if r.parsed.Network == "unix" {
		return r.parsed.String()
	}
	return r.listener.Addr().String()
}

// goAway accepts no more connections. An open connection ends with its poll.
func (r *restListener) goAway() {
	if r.listener != nil {
		go r.web.Shutdown(context.Background()) //nolint:errcheck // close returns the error
	}
}

// close ends the connections. Their polls have ended when the server was drained.
func (r *restListener) close() {
	if r.listener == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), restEnd)
	defer cancel()
	if r.web.Shutdown(ctx) != nil {
		_ = r.web.Close()
	}
	_ = r.listener.Close() // the server may not serve yet
}
