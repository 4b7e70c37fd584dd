package admin

import (
	"context"
	"crypto/subtle"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/admin/session"
	"github.com/chancery-xds/chancery/internal/auth/access"
)

// open is the need of the routes with which a caller signs in and out.
var open = need{}

// tokenCredential is the beginning of the name of a session's credential, before the name of the token.
const tokenCredential = "token "

// encrypted reports whether the browser sent a request over TLS, to this server or to its proxy.
func (s *Server) encrypted(r *http.Request) bool { return r.TLS != nil || s.isPublic(r) }

// cookieName returns the name of the session's cookie. Browsers accept a cookie with the prefix __Host- only over TLS,
// and only from the host itself.
func (s *Server) cookieName(r *http.Request) string {
	if s.encrypted(r) {
		return "__Host-chancery"
	}
	return "chancery"
}

// The suffixes of the names of cookies.
const (
	sessionCookie     = ""
	transactionCookie = "-oidc"   // of a sign-in by the issuer
	failureCookie     = "-failed" // why such a sign-in failed
)

// setCookie sets a cookie, or removes it if the value is "". That of a transaction is Lax: the issuer's page sends the
// browser back.
func (s *Server) setCookie(w http.ResponseWriter, r *http.Request, suffix, value string, age time.Duration) {
	c := &http.Cookie{Name: s.cookieName(r) + suffix, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.encrypted(r), MaxAge: -1} //nolint:gosec // without TLS only programs of this machine sign in
	if value != "" {
		c.MaxAge = int(age.Seconds())
	}
	if suffix == transactionCookie {
		c.SameSite = http.SameSiteLaxMode
	}
	http.SetCookie(w, c)
}

// A signedIn is the session of a request's cookie.
type signedIn struct {
	*session.Session
	key session.Key
}

// proof returns what the caller of a session has proved.
func (in *signedIn) proof() roles.Proof {
	if u := in.User; u != nil {
		return roles.Proof{Identity: access.Identity{Kind: access.JWT, Issuer: u.Issuer, Subject: u.Subject, Claims: u.Claims}, Label: u.Label}
	}
	return roles.Proof{Token: strings.TrimPrefix(in.Credential, tokenCredential)}
}

// signedIn returns the session of a request; nil if it has none. With idle, it may be idle: see [session.Open].
// Only the issuer's sessions have a user: the holder of a token knows the key of the token's sessions, and could seal
// any user.
func (s *Server) signedIn(r *http.Request, idle bool) *signedIn {
	for _, c := range r.CookiesNamed(s.cookieName(r)) {
		if is, key := session.Open(c.Value, s.sessionKey, time.Now(), idle); is != nil && (is.User != nil) == (is.Credential == oidcCredential) {
			return &signedIn{is, key}
		}
	}
	return nil
}

// sessionKey returns the key of the sessions of a credential; false if the credential is not valid.
func (s *Server) sessionKey(credential string) (session.Key, bool) {
	name, ok := strings.CutPrefix(credential, tokenCredential)
	switch issuer := s.issuer(); {
	case credential == oidcCredential && issuer != nil:
		return issuer.Key()
	case !ok:
		return session.Key{}, false
	case name == roles.AdminToken:
		text, err := s.token()
		return session.KeyOf(text), err == nil
	case s.Roles != nil:
		return s.Roles().SessionKey(name)
	}
	return session.Key{}, false
}

// csrfProblem returns an error if a request with a cookie changes something and lacks the token of the session. A web page
// of another origin cannot know the token.
func (c *caller) csrfProblem(r *http.Request) *problem {
	if c.session == nil || !changes(r) || subtle.ConstantTimeCompare([]byte(r.Header.Get(api.CSRFHeader)), []byte(c.session.Token(c.session.key))) == 1 {
		return nil
	}
	return &problem{http.StatusForbidden, api.CSRFHeader, "a request with a cookie needs the token of its session", "GET /api/v1/session has it in csrf"}
}

// session answers who the caller is. It also seals the session again, which is then valid for longer.
func (s *Server) session(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	s.answerSession(w, r, callerOf(r.Context()))
	return nil
}

func (s *Server) answerSession(w http.ResponseWriter, r *http.Request, c *caller) {
	out := api.Session{APIVersion: api.Version, Kind: api.KindSession, Name: c.name, Roles: c.rights.Grants(), SignIn: []string{}}
	if c.name != "" && !c.proven { // a page without a proof of its user only shows
		out.Roles = []api.Grant{{Role: roles.View.String()}}
	}
	if !c.exposed && (s.Roles != nil || s.Token != nil) {
		out.SignIn = append(out.SignIn, "token")
	}
	if issuer := s.issuer(); !c.exposed && issuer != nil {
		if _, ok := issuer.Key(); ok {
			out.SignIn = append(out.SignIn, "oidc")
		}
	}
	if why := s.failureOf(w, r); c.session == nil {
		out.Failed = why
	}
	if in := c.session; in != nil {
		now := time.Now()
		left := in.Left(now)
		s.setCookie(w, r, sessionCookie, in.Seal(in.key, now), left)
		out.SignedIn, out.CSRF, out.Expires = true, in.Token(in.key), new(now.Add(left).UTC())
	}
	answer(w, http.StatusOK, out)
}

// signIn begins a session with the bearer token of the request.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	c := callerOf(r.Context())
	switch {
	case s.Roles == nil && s.Token == nil:
		return wrong("", "this server needs no sign-in", "")
	case c.exposed:
		return &problem{http.StatusForbidden, "", "no sign-in over plain text: the network could read the token", "--admin-tls-cert, --admin-tls-key"}
	}
	now, owner := time.Now(), ownerOf(r)
	if err := s.mayTry(w, owner, now); err != nil {
		return err
	}
	name := s.nameOfToken(bearer(r.Header.Values("Authorization")))
	if name == "" {
		s.tries.failed(owner, now)
		s.logFailedSignIn(r, "the token is wrong")
		return s.unidentified()
	}
	begun := session.New(tokenCredential+name, now)
	key, ok := s.sessionKey(begun.Credential)
	if !ok { // the token has changed meanwhile
		return s.unidentified()
	}
	in := *c
	in.session = &signedIn{begun, key}
	s.didSignIn(r, in.name)
	s.answerSession(w, r, &in)
	return nil
}

func (s *Server) didSignIn(r *http.Request, name string) {
	peer := sender(r)
	s.noteSession(r, name, "sign-in", func(repeated int, _ []string) {
		s.log().Info("operator signed in", "by", name, "peer", peer, "repeated", repeated)
	})
}

// noteSession logs the begin or the end of a session, with an event. A caller with the role view must not displace the
// events of others, so only the first ones in [dedup.Within] have an event.
func (s *Server) noteSession(r *http.Request, name, event string, log func(repeated int, _ []string)) {
	if s.sessions.Allow(name, event+" of "+name, maxNoted, log) {
		log(0, nil)
		s.did(r.WithContext(context.WithValue(r.Context(), callerKey{}, &caller{name: name})), event)
	}
}

// maxNoted is the maximum number of lines about the same change of sessions in [dedup.Within].
const maxNoted = 5

// mayTry returns an error if too many sign-ins of an address have failed.
func (s *Server) mayTry(w http.ResponseWriter, owner string, now time.Time) error {
	wait := s.tries.wait(owner, now)
	if wait <= 0 {
		return nil
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return &problem{http.StatusTooManyRequests, "", "too many failed sign-ins from this address", fmt.Sprintf("try again in %v", wait.Round(time.Second))}
}

// logFailedSignIn logs a failed sign-in.
func (s *Server) logFailedSignIn(r *http.Request, why string) {
	line := func(times int) {
		s.log().Warn("sign-in refused", "reason", why, "peer", sender(r), "repeated", times)
	}
	if s.refusedRoles.Allow(ownerOf(r), why, 1, func(n int, _ []string) { line(n) }) {
		line(0)
	}
}

// nameOfToken returns the name of a bearer token; "" if it is not valid.
func (s *Server) nameOfToken(given string) string {
	switch {
	case given == "":
		return ""
	case s.Roles != nil:
		return s.tokenName(given)
	}
	if want, err := s.token(); err != nil || !sameText(given, want) {
		return ""
	}
	return roles.AdminToken
}

// signOut removes the cookie. The server has no list of sessions: a copy of the cookie stays valid until it is idle.
func (s *Server) signOut(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	c := *callerOf(r.Context())
	s.setCookie(w, r, sessionCookie, "", 0)
	if c.session != nil {
		name, peer := c.name, sender(r)
		s.noteSession(r, name, "sign-out", func(repeated int, _ []string) {
			s.log().Info("operator signed out", "by", name, "peer", peer, "repeated", repeated)
		})
		c = caller{exposed: c.exposed}
	}
	s.answerSession(w, r, &c)
	return nil
}

// Limits of failed sign-ins of one address.
const (
	maxTries     = 10
	triesTime    = time.Minute // from the first failure
	maxAddresses = 10_000      // a further address evicts another, so that many addresses cannot lock out the rest
)

// tries counts failed sign-ins by address. The zero value is ready.
type tries struct {
	mu sync.Mutex // not held during I/O
	of map[string]*failures
}

type failures struct {
	n     int
	until time.Time
}

// wait returns how long an address must wait before its next sign-in.
func (t *tries) wait(owner string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of[owner]
	if f == nil || f.n < maxTries {
		return 0
	}
	return max(0, f.until.Sub(now))
}

func (t *tries) failed(owner string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*failures{}
	}
	if len(t.of) >= maxAddresses {
		maps.DeleteFunc(t.of, func(_ string, f *failures) bool { return !now.Before(f.until) })
	}
	f := t.of[owner]
	if f == nil || !now.Before(f.until) {
		for other := range t.of {
			if len(t.of) < maxAddresses {
				break
			}
			delete(t.of, other)
		}
		f = &failures{until: now.Add(triesTime)}
		t.of[owner] = f
	}
	f.n++
}
