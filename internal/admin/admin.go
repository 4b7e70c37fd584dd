// Package admin is the admin API of the daemon: it shows operators and their commands who is
// connected and what each client has, and does the few things they may ask for. It answers in
// JSON, whose types are those of package adminapi, and knows the daemon by small interfaces.
//
// It decides nothing about clients and keeps nothing: each answer is made of what the daemon
// knows at that moment. docs/admin-api.md describes it for those who ask.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/endpoints"
)

// A Server is what answers. All that has no comment of what nil means is needed. Its fields must
// not change once it serves.
type Server struct {
	About   api.Server      // what the process is; the same for each answer
	Version api.VersionInfo // the answer of /version

	Config func() api.Config  // what is served now
	Groups func() []api.Group // sorted by name, without Clients

	Tracker   Tracker
	Explainer Explainer
	Reload    Loads
	Level     *slog.LevelVar // of the log
	Settles   Settles        // nil: the stream is asked
	Holds     Holds          // nil: none does
	Dump      http.Handler   // /config_dump; nil: there is none
	GRPC      http.Handler   // requests of gRPC, at the same address; nil: there are none

	// Token returns the bearer token that requests must have, and an error while it cannot be
	// read: then nobody is let in. Nil: none is needed. On unix sockets none ever is.
	Token func() (string, error)
	TLS   *tls.Config // of listeners that are no unix sockets; nil: plain text

	Log *slog.Logger // nil: slog.Default()

	Endpoints *endpoints.Registry // nil: none can be registered
	Revisions *Revisions          // nil: there is no store

	Replicas Replicas // the other servers of the store; nil: there is none, or nobody can ask

	readers, waiters, heavy, making, asking, spreading, writing, streams, commits doors // made by Handler
	unpacking                                                                     door
	once                                                                          sync.Once

	mu   sync.Mutex     // held for memory only
	held map[string]int // large answers under way, by connection
}

// How long things may take.
const (
	readTime  = 10 * time.Second       // to send a request
	writeTime = 30 * time.Second       // to take an answer; each event has as long
	idleTime  = 2 * time.Minute        // between requests of a connection
	grace     = 500 * time.Millisecond // requests under way when the server ends
)

const (
	maxHeader = 16 << 10

	// maxStreams is how many requests one connection of HTTP/2 has under way: each may be an
	// answer that nobody reads.
	maxStreams = 16
)

// Serve answers on a listener until the context is done, and then until the requests under way
// are answered, half a second at most: those that wait for something end at once. It closes the listener,
// and returns nil if it ended because of the context.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           s.Handler(l.Addr()),
		ReadHeaderTimeout: readTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log().Handler(), slog.LevelDebug), // what those who ask do
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Protocols:         protocols(),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if h.Shutdown(last) != nil {
			_ = h.Close() // cuts off what is left
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
