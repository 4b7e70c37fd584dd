// Package health answers those who watch the daemon over HTTP: Prometheus, the
// probes of Kubernetes and load balancers, and a developer with a profiler. It
// shows no configuration, changes nothing, and asks nobody who they are.
//
//	/metrics          for Prometheus
//	/healthz          200 while the process answers
//	/readyz           200 if all checks pass, 503 if not; ?verbose tells each
//	/debug/pprof/     to this machine only, see [Server.Handler]
//
// All other paths do not exist, those below /healthz and /readyz included.
package health

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/chancery-xds/chancery/internal/listen"
)

// A Server is what answers. The zero value is alive and, without checks, ready.
type Server struct {
	Metrics http.Handler // serves /metrics; nil: there is none
	Log     *slog.Logger // of broken requests; nil: slog.Default()

	checks []check
	notes  []note
}

// How long things may take.
const (
	readTime  = 10 * time.Second // to send a request
	writeTime = 2 * time.Minute  // to be answered; a profile is taken over less than that
	idleTime  = 2 * time.Minute  // between requests of a connection: scrapes come each minute at the latest
	grace     = 5 * time.Second  // requests under way when the server ends
)

// Serve answers on a listener until the context is done, and then until the
// requests under way are answered, 5 s at most. It closes the listener, and
// returns nil if it ended because of the context.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	log := s.Log
	if log == nil {
		log = slog.Default()
	}
	h := &http.Server{
		Handler:           s.Handler(l.Addr()),
		ReadHeaderTimeout: readTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
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
	err := h.Serve(l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler returns what answers on a listener with the address. If it is one of
// the loopback, requests must name the loopback as their host, so that no web
// page can reach the server under a name that it points here (DNS rebinding).
// Only then, or on a unix socket, are there profiles, for peers on the loopback.
func (s *Server) Handler(at net.Addr) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.Metrics != nil {
		mux.Handle("GET /metrics", s.Metrics)
	}
	if !listen.Loopback(at) {
		return mux
	}
	profiles := http.NewServeMux()
	profiles.HandleFunc("/debug/pprof/", pprof.Index)
	profiles.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if _, ok := at.(*net.UnixAddr); ok {
		mux.Handle("/debug/pprof/", profiles)
		return mux
	}
	mux.HandleFunc("/debug/pprof/", func(w http.ResponseWriter, r *http.Request) {
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !peer.Addr().IsLoopback() {
			http.NotFound(w, r)
			return
		}
		profiles.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !listen.LocalHost(r.Host) {
			http.Error(w, "this server accepts requests for localhost only, not for the host of this request", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
