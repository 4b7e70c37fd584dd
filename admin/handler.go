package admin

import (
	"encoding/json"
	"net"
	"net/http"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/listen"
)

// Handler returns the admin API for an [http.Server] of the program, in place of [Server.Serve]. It must have the root
// of an address, because the page and the commands use fixed paths. gRPC (CSDS) needs HTTP/2: set
// [http.Server.Protocols], with UnencryptedHTTP2 if there is no TLS.
//
// The handler applies the same rules as Serve, by the local address of each connection: on the loopback the header Host
// must name the loopback, and on other addresses a caller needs a token or a verified client certificate. Set
// ReadHeaderTimeout and ReadTimeout of the http.Server, which the handler cannot set.
func (s *Server) Handler() http.Handler {
	unix, loopback := s.api.Handler(&net.UnixAddr{Net: "unix"}), s.api.Handler(&net.TCPAddr{IP: net.IPv6loopback})
	other := s.api.Handler(&net.TCPAddr{IP: net.IPv6unspecified})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		_, isUnix := at.(*net.UnixAddr)
		switch {
		case isUnix:
			unix.ServeHTTP(w, r)
		case at != nil && listen.Loopback(at):
			loopback.ServeHTTP(w, r)
		case s.o.Token == nil && !s.o.CallersAuthenticated && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0):
			refuse(w)
		default:
			other.ServeHTTP(w, r)
		}
	})
}

// refuse answers a request from another machine without a credential.
func refuse(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(api.Error{
		APIVersion: api.Version, Kind: api.KindError, Message: "this server answers requests from other machines only with a token or a client certificate",
		Hint: "the program sets admin.Options.Token, or verifies client certificates",
	})
}
