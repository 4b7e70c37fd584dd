package health

import (
	"net"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/limit/rate"
)

// probeRate is the number of requests to /ready that one address may send in a second, on average.
const probeRate = 20

// A clientReady answers the startup probes of clients. Its callers are not authenticated, so the answer has
// no reason.
type clientReady struct {
	ready  func(node, from string, strict bool) (ok bool, why string)
	probes *rate.Owners
}

// ServeHTTP implements [http.Handler].
func (c *clientReady) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if c.probes.Of(host, r.RemoteAddr).Take(time.Now(), 1) > 0 {
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, "too many requests from this address\n")
		return
	}
	node, strict, bad := api.ReadyQuery(r.URL.RawQuery)
	if bad != nil {
		answer(w, http.StatusBadRequest, "write /ready?node=ID or /ready?node=ID&strict=1, without other parameters\n")
	} else if ok, _ := c.ready(node, host, strict); !ok {
		answer(w, http.StatusServiceUnavailable, "not ready\n")
	} else {
		answer(w, http.StatusOK, "ok")
	}
}
