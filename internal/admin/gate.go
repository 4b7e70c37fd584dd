package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/chancery-xds/chancery/internal/listen"
)

// gate returns a handler that passes permitted requests to inner. The argument at is the address of
// the listener.
//
// A web page in a browser on this machine can reach the loopback address. The page cannot choose the
// Host header, unless it uses a DNS name of its own that resolves to this machine (DNS rebinding).
// The browser always sends the Origin header if the page may read the answer, or sends JSON. So on a
// loopback listener the Host must be a loopback address, and on all listeners the Origin, if present,
// must be the server itself.
//
// Requests that isPage accepts go to page, from any origin and without a token, because a link in another page may
// lead to a view, and the files have no data.
func (s *Server) gate(at net.Addr, inner, page http.Handler, isPage func(*http.Request) bool) http.Handler {
	_, unix := at.(*net.UnixAddr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !unix && listen.Loopback(at) && !listen.LocalHost(r.Host):
			deny(w, r, &problem{http.StatusForbidden, "Host", "this server accepts requests for localhost only, not for the host of this request", ""})
		case isPage(r):
			page.ServeHTTP(w, r)
		case listen.CrossOrigin(r, r.Host):
			deny(w, r, &problem{http.StatusForbidden, "Origin", "this server accepts no requests from web pages of other servers", ""})
		case !unix && !s.authorised(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="chancery"`)
			deny(w, r, &problem{http.StatusUnauthorized, "Authorization", "a valid bearer token is needed", "--admin-token-file names the file with the token"})
		case changes(r) && !sendsJSON(r) && !isGRPC(r):
			deny(w, r, &problem{http.StatusUnsupportedMediaType, "Content-Type", "must be application/json, or application/x-ndjson for lines of it", ""})
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

// authorised reports whether a request has the right token, or needs none.
func (s *Server) authorised(r *http.Request) bool {
	if s.Token == nil {
		return true
	}
	want, err := s.Token()
	if s.isNewTokenError(err) {
		s.log().Warn("cannot read the token of the admin API, refusing all requests", "error", err)
	}
	if err != nil {
		return false
	}
	all := r.Header.Values("Authorization")
	if len(all) != 1 || want == "" {
		return false
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	got, is := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(want))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], is[:]) == 1
}

// isNewTokenError reports whether a read of the token failed with another error than the read before.
func (s *Server) isNewTokenError(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.tokenError
	s.tokenError = text
	return text != "" && text != before
}

func changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

func sendsJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && (kind == "application/json" || kind == linesOfJSON)
}
