package admin

import (
	"io"
	"net"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// probeRate is the number of requests for readiness that one address may send in a second, on average.
const probeRate = 20

// ready answers a probe: whether the clients with a node ID have accepted a complete configuration. Only an
// authenticated caller gets the reason.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	node, strict, bad := api.ReadyQuery(r.URL.RawQuery)
	if bad != nil {
		return wrong(bad.Param, bad.Message, bad.Hint)
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if s.probes.Of(host, r.RemoteAddr).Take(time.Now(), 1) > 0 {
		w.Header().Set("Retry-After", "1")
		return &problem{code: http.StatusTooManyRequests, message: "too many requests for readiness from this address"}
	}
	ok, why := s.Tracker.Ready(node, host, strict)
	switch {
	case ok:
		headers(w, "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok")
		return nil
	case s.proven(r):
		return &problem{code: http.StatusServiceUnavailable, message: "not ready: " + why}
	}
	return &problem{code: http.StatusServiceUnavailable, message: "not ready", hint: "chancery explain NODE shows why"}
}
