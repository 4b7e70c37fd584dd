package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/listen"
)

// gate returns a handler that passes permitted requests to inner. The argument at is the address of
// the listener.
//
// A web page in a browser on this machine can reach the loopback address. The page cannot choose the
// Host header, unless it uses a DNS name of its own that resolves to this machine (DNS rebinding).
// The browser always sends the Origin header if the page may read the answer, or sends JSON. So on a
// loopback listener the Host must be a loopback address or the public host, and on all listeners the Origin, if
// present, must be the server itself.
//
// The argument own is true for the socket of the server's own user.
//
// Requests that isOpen accepts sign in, so they need no credential. Requests that isPage accepts go to page, from any
// origin and without a credential: a link in another page may lead to a view, and the files of the page have no data.
func (s *Server) gate(at net.Addr, own bool, inner, page http.Handler, isPage, isOpen func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c *caller
		switch {
		case isLoopback(at) && !listen.LocalHost(r.Host) && !s.isPublic(r):
			deny(w, r, &problem{http.StatusForbidden, "Host", "this server accepts requests for localhost only, not for the host of this request", ""})
		case isPage(r):
			page.ServeHTTP(w, r)
		case s.crossOrigin(r) && !isCallback(r):
			deny(w, r, &problem{http.StatusForbidden, "Origin", "this server accepts no requests from web pages of other servers", ""})
		case !s.identified(r, at, own, &c) && !isOpen(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="chancery"`)
			deny(w, r, s.unidentified())
		case changes(r) && !sendsJSON(r) && !isGRPC(r):
			deny(w, r, &problem{http.StatusUnsupportedMediaType, "Content-Type", "must be application/json, or application/x-ndjson for lines of it", ""})
		case c.csrfProblem(r) != nil:
			deny(w, r, c.csrfProblem(r))
		default:
			inner.ServeHTTP(w, r.WithContext(s.withCaller(r.Context(), c)))
		}
	})
}

// publicHost returns the host of the URL at which browsers reach this server through a proxy; "" if there is none.
func (s *Server) publicHost() string {
	if s.Roles == nil {
		return ""
	}
	c := s.Roles().Issuer()
	if c == nil {
		return ""
	}
	return strings.TrimPrefix(c.PublicURL, "https://")
}

// isPublic reports whether a request has the host of the public URL, so that a browser has sent it over TLS to a proxy.
func (s *Server) isPublic(r *http.Request) bool {
	host := s.publicHost()
	return host != "" && strings.EqualFold(r.Host, host)
}

// crossOrigin reports whether a web page of another server sent a request. A proxy may replace the header Host.
func (s *Server) crossOrigin(r *http.Request) bool {
	return listen.CrossOrigin(r, r.Host) && listen.CrossOrigin(r, s.publicHost())
}

// isCallback reports whether a request ends a sign-in at an OIDC issuer: the page of the issuer sends the browser back. The
// transaction's cookie proves that this browser has begun the sign-in here.
func isCallback(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == oidcBackPath
}

// identified sets the caller of a request. It reports whether the request has a valid credential, or needs none.
func (s *Server) identified(r *http.Request, at net.Addr, own bool, c **caller) bool {
	is := s.identify(r, at, own)
	*c = is
	if is == nil {
		*c = &caller{still: func() roles.Rights { return roles.Rights{} }}
	}
	_, unix := at.(*net.UnixAddr)
	(*c).exposed = r.TLS == nil && !unix && !isLoopback(at)
	return is != nil
}

// unidentified returns the error for a request without a valid credential.
func (s *Server) unidentified() *problem {
	if s.Roles != nil {
		return &problem{http.StatusUnauthorized, "Authorization", "a valid bearer token, a client certificate or a unix socket is needed", "the roles file names the callers (docs/roles.md)"}
	}
	return &problem{http.StatusUnauthorized, "Authorization", "a valid bearer token is needed", "--admin-token-file names the file with the token"}
}

// withCaller adds the caller to the context of a request, also for the other servers of the store that the request
// asks.
func (s *Server) withCaller(ctx context.Context, c *caller) context.Context {
	ctx = context.WithValue(ctx, callerKey{}, c)
	if s.Replicas != nil && c.proven {
		ctx = api.WithCaller(ctx, c.stated())
	}
	return ctx
}

// authorised reports whether a request has the right token, or needs none.
func (s *Server) authorised(r *http.Request) bool {
	if s.Token == nil {
		return true
	}
	want, err := s.token()
	return err == nil && sameText(bearer(r.Header.Values("Authorization")), want)
}

// bearer returns the token in the values of the header Authorization; "" if there is not exactly one.
func bearer(all []string) string {
	if len(all) != 1 {
		return ""
	}
	scheme, given, _ := strings.Cut(all[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(given)
}

// token returns the token of --admin-token-file. The error is not nil if there is none.
func (s *Server) token() (string, error) {
	if s.Token == nil {
		return "", errNoToken
	}
	want, err := s.Token()
	if s.isNewTokenError(err) {
		s.log().Warn("cannot read the token of the admin API, refusing all requests", "error", err)
	}
	if err == nil && want == "" {
		err = errNoToken
	}
	return want, err
}

var errNoToken = errors.New("there is no token")

// sameText compares secrets in constant time.
func sameText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
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
