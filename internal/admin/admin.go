// Package admin serves the admin API of the daemon: it shows operators the connected clients and their
// state, and carries out a few commands. Answers are JSON; package api has the types. The package uses
// the rest of the daemon through small interfaces.
//
// The package decides nothing about clients and keeps no state: each answer shows the present state of
// the daemon. docs/admin-api.md describes the API for users.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/limit/inbound"
	"github.com/chancery-xds/chancery/internal/limit/rate"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Server serves the admin API. A field is required unless its comment gives the meaning of nil. The
// fields must not change after the call of Serve.
type Server struct {
	About   api.Server      // describes the process; the same in each answer
	Version api.VersionInfo // answer of /version

	Config func() api.Config  // returns the served configuration
	Groups func() []api.Group // returns the groups, sorted by name, without Clients

	Tracker   Tracker
	Explainer Explainer
	Reload    Loads
	Level     *slog.LevelVar // level of the log; nil: unknown
	Settles   Settles        // nil: the stream itself is asked
	Dump      http.Handler   // serves /config_dump; nil: not served
	GRPC      http.Handler   // serves gRPC requests at the same address; nil: none
	Page      fs.FS          // files of the operator's page, as web.Files returns them; nil: no page

	// Token returns the bearer token that requests must have. If Token fails, the server refuses all
	// requests. Nil: requests need no token. Requests on unix sockets never need a token.
	Token func() (string, error)
	TLS   *tls.Config // configuration for listeners that are not unix sockets; nil: plain text

	// Roles returns the present content of the roles file: each request then needs a credential, and each caller has
	// only the roles that the file binds to it. Nil: there is no roles file, and callers have all roles.
	Roles func() *roles.Policy

	// Identity returns the identity that the connection of a request proves: the context has the certificate or the
	// process of the caller as a [peer.Peer]. ConnContext is that of an [http.Server], and adds the process. Both are
	// required with Roles.
	Identity    func(ctx context.Context) (access.Identity, error)
	ConnContext func(ctx context.Context, c net.Conn) context.Context

	// OIDC returns the issuer in the roles file; nil if the file has none. A nil function: there is no issuer.
	OIDC func() OIDC

	Note     func(api.Event)      // gets an event for each change that a caller makes; nil: none
	Troubles func() []api.Trouble // returns further signs of problems for the status; nil: none

	Log *slog.Logger // nil: slog.Default()

	Endpoints *endpoints.Registry // nil: endpoints cannot be registered
	Revisions *Revisions          // nil: no revision store

	// Release takes resources of a type out of quarantine for a stream; "" means all names. It returns their
	// number. Nil: there is no quarantine.
	Release   func(st *server.Stream, t *xds.Type, name string) int
	GroupTime time.Duration // time over which a command for a group spreads its streams

	// TakenBack describes the rollout that took a frozen group back to its revision, with the next command. The
	// text is "" if no rollout did. Nil: there are no rollouts.
	TakenBack func(ctx context.Context, group string) (text, advice string)

	Replicas Replicas // the other servers of the store; nil: this server cannot ask others

	waiters, heavy, making, asking, checking, spreading, writing, signingIn doors   // prepared by Handler
	largeCommits, commits                                                   doors   // large commits that arrive, and all that are complete
	readers, streams, waiting, waitingSynced                                *places // of requests for events, endpoint streams, wait, and wait/synced
	bodies                                                                  *inbound.Budget
	unpacking                                                               chan struct{} // a place for each large input that is unpacked
	probes                                                                  *rate.Owners
	groupJobs                                                               chan groupJob // without a slot: RunGroupCommands takes one job at a time
	pacer                                                                   pacer
	once                                                                    sync.Once
	tries                                                                   tries
	sessions                                                                dedup.Counter // log lines about the begin and the end of sessions
	refusedRoles                                                            dedup.Counter // log lines about callers without a role

	mu   sync.Mutex     // never held during I/O
	held map[string]int // number of large answers in progress, by connection

	tokenError string // of the last read of the token; "": none

	stale sync.Map // of senders that cannot update their endpoints: an [api.Trouble] by *feed
}

// Timeouts.
const (
	readTime  = 10 * time.Second       // to send a request
	writeTime = 30 * time.Second       // to read an answer, or one event
	idleTime  = 2 * time.Minute        // between requests of a connection
	grace     = 500 * time.Millisecond // for requests in progress when the server ends
)

const (
	maxHeader = 16 << 10

	// maxStreams is the maximum number of requests in progress on one HTTP/2 connection, because the peer
	// may leave each answer unread.
	maxStreams = 16
)

// Serve answers requests on a listener until the context is done. Then it waits up to grace for requests
// in progress. Requests that wait for events end immediately. Serve closes the listener. The result is
// nil if the context has ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return s.serveWith(ctx, l, s.Handler(l.Addr()))
}

// ServeOwn is [Server.Serve] for a unix socket that only the user of the server can open. Its callers have all roles.
func (s *Server) ServeOwn(ctx context.Context, l net.Listener) error {
	return s.serveWith(ctx, l, s.handler(l.Addr(), true))
}

func (s *Server) serveWith(ctx context.Context, l net.Listener, handler http.Handler) error {
	h := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log().Handler(), slog.LevelDebug), // errors that peers cause
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       s.ConnContext,
		Protocols:         protocols(),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if h.Shutdown(last) != nil {
			_ = h.Close() // cut off the remaining requests
		}
	})
	err := s.serve(h, l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) serve(h *http.Server, l net.Listener) error {
	if _, unix := l.Addr().(*net.UnixAddr); s.TLS == nil || unix {
		return h.Serve(l)
	}
	h.TLSConfig = s.TLS
	return h.ServeTLS(l, "", "")
}

func (s *Server) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}
