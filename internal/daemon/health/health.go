// Package health serves metrics, health checks and profiles of the daemon over HTTP. Its clients are
// Prometheus, the probes of Kubernetes and of load balancers, and developers. It shows no
// configuration, changes nothing, and needs no authentication.
//
//	/metrics          for Prometheus
//	/healthz          200 while the process answers
//	/readyz           200 if all checks pass, 503 if not; ?verbose lists the checks
//	/ready?node=ID    200 if the client has accepted a complete configuration, 503 if not
//	/debug/pprof/     to this machine only, see [Server.Handler]
//
// No other path exists, not even below /healthz and /readyz.
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

	"github.com/chancery-xds/chancery/internal/limit/rate"
	"github.com/chancery-xds/chancery/internal/listen"
)

// A Server answers HTTP requests for metrics, health and profiles. The zero value reports that it is
// alive and, without checks, ready.
type Server struct {
	Metrics http.Handler // serves /metrics; nil: not found
	// Ready reports whether the clients with a node ID have accepted a complete configuration; with strict,
	// everything. Of several clients with the ID, those at the address from of the caller may count alone.
	// Nil: /ready is not found.
	Ready func(node, from string, strict bool) (ok bool, why string)
	Log   *slog.Logger // logs malformed requests; nil: slog.Default()

	checks []check
	notes  []note
}

// Timeouts of a connection.
const (
	readTime  = 10 * time.Second // to receive a request
	writeTime = 2 * time.Minute  // to answer it; a profile takes less time
	idleTime  = 2 * time.Minute  // between requests of a connection; scrapes come at least each minute
	grace     = 5 * time.Second  // for requests in flight at shutdown
)

// Serve answers requests on a listener until ctx is done. Then it waits for requests in flight, at most 5 s.
// It closes the listener, and returns nil if ctx ended it.
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
			_ = h.Close() // close the remaining connections
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

// Handler returns the handler for a listener with the address at. It refuses requests of web pages of other
// origins. On a loopback address, the host of a request must be the loopback. Otherwise a web page could
// reach the server by a name that resolves to this machine (DNS rebinding). Profiles exist only on a unix
// socket, and on a loopback address for peers on the loopback.
func (s *Server) Handler(at net.Addr) http.Handler {
	inner := s.paths(at)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if listen.CrossOrigin(r, "") {
			http.Error(w, "this server accepts no requests from web pages", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func (s *Server) paths(at net.Addr) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.Ready != nil {
		mux.Handle("GET /ready", &clientReady{s.Ready, rate.NewOwners(1000, probeRate)})
	}
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
