package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/admin/session"
	"github.com/chancery-xds/chancery/internal/text"
)

// OIDC is an issuer of ID tokens (OpenID Connect).
type OIDC interface {
	// Verify returns what a bearer ID token proves.
	Verify(ctx context.Context, token string) (roles.Proof, error)

	// Begin returns the URL of the issuer for a sign-in, and the value of the transaction's cookie. The issuer returns
	// the browser to the URL back, and then the browser shows the path to.
	Begin(ctx context.Context, back, to string) (at, cookie string, err error)

	// Finish returns what a sign-in has proved, and the path to show. The path is "" if the issuer's answer is not of
	// the sign-in that this browser has begun: each page can send a browser to the URL back.
	Finish(ctx context.Context, back, cookie string, answered url.Values) (proof roles.Proof, to string, err error)

	// Key returns the key of sessions; false if browsers cannot sign in.
	Key() (session.Key, bool)
}

const (
	oidcCredential = "oidc" // of sessions
	oidcPath       = "/api/v1/session/oidc"
	oidcBackPath   = oidcPath + "/callback"
	oidcTime       = 5 * time.Minute
	maxSignIns     = 8    // maximum number of concurrent requests to the issuer for the tokens of browsers
	maxCookie      = 3800 // bytes; browsers keep 4096 with the name and the attributes
)

// issuer returns the issuer in the roles file; nil if there is none.
func (s *Server) issuer() OIDC {
	if s.Roles == nil || s.OIDC == nil {
		return nil
	}
	return s.OIDC()
}

// idToken returns the credential of a bearer ID token; nil if it is not valid.
func (s *Server) idToken(ctx context.Context, given string) *credential {
	issuer := s.issuer()
	if issuer == nil || strings.Count(given, ".") != 2 {
		return nil
	}
	proof, err := issuer.Verify(ctx, given)
	if err != nil {
		s.log().Debug("admin API: ID token refused", "error", err)
		return nil
	}
	return &credential{proof, func() bool { return unexpired(&proof.Identity) }, nil}
}

// oidcBack returns the URL of this server to which the issuer returns a browser.
func (s *Server) oidcBack(r *http.Request) string {
	if host := s.publicHost(); host != "" {
		return "https://" + host + oidcBackPath
	}
	u := url.URL{Scheme: "http", Host: r.Host, Path: oidcBackPath}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	return u.String()
}

// oidcSignIn returns the issuer if browsers may sign in by it.
func (s *Server) oidcSignIn(r *http.Request) (OIDC, error) {
	issuer := s.issuer()
	switch {
	case callerOf(r.Context()).exposed:
		return nil, &problem{http.StatusForbidden, "", "no sign-in over plain text: the network could read the session", "--admin-tls-cert, --admin-tls-key"}
	case issuer == nil:
		return nil, missing("", "this server has no OIDC issuer", "oidc: in the roles file")
	}
	if _, ok := issuer.Key(); !ok {
		return nil, missing("", "browsers cannot sign in without the secret of the client", "client_secret_file: below oidc: in the roles file")
	}
	return issuer, nil
}

// beginOIDC sends a browser to the issuer.
func (s *Server) beginOIDC(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	to := q.text("to")
	if to == "" || to[0] != '/' || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		to = "/" // never another server
	}
	if q.err != nil {
		return q.err
	}
	issuer, err := s.oidcSignIn(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	at, cookie, err := issuer.Begin(ctx, s.oidcBack(r), text.Head(to, maxWords))
	if err != nil {
		return s.notSignedIn(w, r, issuer, to, &problem{http.StatusBadGateway, "", err.Error(), "sign in with a token"})
	}
	s.setCookie(w, r, transactionCookie, cookie, oidcTime)
	headers(w, "text/plain")
	http.Redirect(w, r, at, http.StatusFound)
	return nil
}

// finishOIDC begins the session of a browser that the issuer returns.
func (s *Server) finishOIDC(w http.ResponseWriter, r *http.Request) error {
	issuer, err := s.oidcSignIn(r)
	if err != nil {
		return err
	}
	now, cookie := time.Now(), ""
	if c, err := r.Cookie(s.cookieName(r) + transactionCookie); err == nil {
		cookie = c.Value
	}
	leave, err := s.signingIn.wait(r)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), 2*askTime)
	defer cancel()
	proof, to, err := issuer.Finish(ctx, s.oidcBack(r), cookie, r.URL.Query())
	refuse := func(why string) error {
		s.logFailedSignIn(r, why)
		return s.notSignedIn(w, r, issuer, to, &problem{http.StatusUnauthorized, "", "sign-in failed: " + why, "go back to the page, and try again"})
	}
	if to != "" {
		s.setCookie(w, r, transactionCookie, "", 0) // this sign-in is over
	}
	key, ok := issuer.Key()
	switch {
	case err != nil:
		return refuse(err.Error())
	case !ok:
		return s.unidentified()
	}
	id := &proof.Identity
	in := session.New(oidcCredential, now)
	in.User = &session.User{Issuer: id.Issuer, Subject: id.Subject, Label: proof.Name(), Claims: s.Roles().Relevant(id.Claims)}
	value := in.Seal(key, now)
	if len(value) > maxCookie {
		return refuse("the claims of the issuer's token do not fit into a cookie: let the issuer send fewer groups")
	}
	s.didSignIn(r, proof.Name())
	s.setCookie(w, r, sessionCookie, value, in.Left(now))
	headers(w, "text/plain")
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// purposeFailure is the purpose of the sealed reason of a failed sign-in.
const purposeFailure = "failed sign-in"

// notSignedIn answers a failed sign-in by the issuer. A browser gets the page, whose first answer about its session has
// the reason. The path is that of the page, or "".
func (s *Server) notSignedIn(w http.ResponseWriter, r *http.Request, issuer OIDC, to string, p *problem) error {
	key, ok := issuer.Key()
	if !ok || s.Page == nil || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return p
	}
	s.setCookie(w, r, failureCookie, session.Sealed(key, purposeFailure, []byte(p.message)), time.Minute)
	headers(w, "text/plain")
	http.Redirect(w, r, cmp.Or(to, "/"), http.StatusSeeOther) //nolint:gosec // beginOIDC accepts only paths of this server
	return nil
}

// failureOf returns the reason of the last sign-in by the issuer if it failed, and forgets it.
func (s *Server) failureOf(w http.ResponseWriter, r *http.Request) string {
	c, err := r.Cookie(s.cookieName(r) + failureCookie)
	issuer := s.issuer()
	if err != nil || issuer == nil {
		return ""
	}
	s.setCookie(w, r, failureCookie, "", 0)
	key, ok := issuer.Key()
	why, sealed := session.Opened(key, purposeFailure, c.Value)
	if !ok || !sealed {
		return ""
	}
	return string(why)
}
