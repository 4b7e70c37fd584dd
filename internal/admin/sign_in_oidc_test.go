package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/admin/session"
	"github.com/chancery-xds/chancery/internal/auth/access"
)

// A fakeIssuer is an issuer with one user. Each sign-in with the code "good" succeeds.
type fakeIssuer struct {
	claims   map[string]any
	keyless  bool   // browsers cannot sign in
	back, to string // of the last sign-in
}

func (i *fakeIssuer) proof() roles.Proof {
	return roles.Proof{Identity: access.Identity{Kind: access.JWT, Issuer: "i", Subject: "u1", Claims: i.claims, Expires: time.Now().Add(time.Hour)}, Label: "ana (u1)"}
}

func (i *fakeIssuer) Verify(context.Context, string) (roles.Proof, error) { return i.proof(), nil }

func (i *fakeIssuer) Begin(_ context.Context, back, to string) (at, cookie string, err error) {
	i.back, i.to = back, to
	return "https://issuer.example/auth", "transaction", nil
}

func (i *fakeIssuer) Finish(_ context.Context, _, cookie string, answered url.Values) (roles.Proof, string, error) {
	switch {
	case answered.Has("error"):
		return roles.Proof{}, i.to, fmt.Errorf("the issuer answers %q", answered.Get("error"))
	case cookie != "transaction" || answered.Get("code") != "good":
		return roles.Proof{}, "", errors.New("wrong code")
	}
	return i.proof(), i.to, nil
}

func (i *fakeIssuer) Key() (session.Key, bool) { return session.KeyOf("secret"), !i.keyless }

// withIssuer gives a server a roles file in which the users of an issuer with the claim groups "sre" may view.
func withIssuer(t *testing.T, s *Server, more ...string) *fakeIssuer {
	t.Helper()
	withRoles(t, s, "other view")
	p, problems := roles.Parse("roles.yaml", []byte("oidc: {issuer: 'https://issuer.example', client_id: c"+strings.Join(more, "")+"}\nbindings: [{role: view, subjects: [{claims: {groups: sre}}, {loopback: true}]}]"), nil)
	if p == nil {
		t.Fatal(problems)
	}
	i := &fakeIssuer{claims: map[string]any{"groups": "sre", "email": "ana@example.com"}}
	s.Roles, s.OIDC = func() *roles.Policy { return p }, func() OIDC { return i }
	return i
}

// oidc sends a request of a sign-in by an issuer.
func (b *browser) oidc(query string) (code int, location string, cookies []*http.Cookie) {
	b.t.Helper()
	w := b.send("GET "+oidcPath+query, "")
	return w.Code, w.Header().Get("Location"), w.Result().Cookies()
}

// Over TLS the cookies of a sign-in by an issuer are Secure, and the issuer sends the browser back to https.
func TestSignInByIssuerOverTLS(t *testing.T) {
	t.Run("SAFE-20 a sign-in by an issuer over TLS", func(t *testing.T) {
		s := newServer(newFleet())
		var events []string
		s.Note = func(e api.Event) { events = append(events, e.Kind+": "+e.Text+" / "+e.By) }
		i := withIssuer(t, s)
		b := &browser{t: t, h: s.Handler(public), tls: true}
		code, at, cookies := b.oidc("?to=/clients")
		if code != http.StatusFound || at != "https://issuer.example/auth" || len(cookies) != 1 || i.back != "https://localhost:18001"+oidcBackPath {
			t.Fatalf("%d %s %v, back to %s", code, at, cookies, i.back)
		}
		if c := cookies[0]; c.Name != "__Host-chancery-oidc" || !c.Secure || !c.HttpOnly || c.Path != "/" || c.SameSite != http.SameSiteLaxMode {
			t.Errorf("%+v", c)
		}
		code, at, cookies = b.oidc("/callback?state=s&code=good")
		if code != http.StatusSeeOther || at != "/clients" || len(cookies) != 2 {
			t.Fatalf("%d %s %v", code, at, cookies)
		}
		if c := cookies[0]; c.Name != "__Host-chancery-oidc" || c.MaxAge >= 0 {
			t.Errorf("the transaction stays: %+v", c)
		}
		if c := cookies[1]; c.Name != "__Host-chancery" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			t.Errorf("%+v", c)
		}
		in, _ := session.Open(cookies[1].Value, func(string) (session.Key, bool) { return i.Key() }, time.Now(), false)
		if in == nil || fmt.Sprint(in.User.Claims) != "map[groups:sre]" {
			t.Errorf("the cookie has more claims than the conditions: %+v", in)
		}
		if want := "[admin: sign-in by ana (u1) / ana (u1)]"; fmt.Sprint(events) != want {
			t.Errorf("%v, want %s", events, want)
		}
		if is, _ := b.session("GET"); is.Name != "ana (u1)" || !is.SignedIn {
			t.Errorf("%+v", is)
		}
	})
}

// A sign-in by an issuer has the rules of other sign-ins: no plain text, no other server afterwards.
func TestSignInByIssuerIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		plain bool
		set   func(*fakeIssuer)
		query string
		code  int
		says  string
	}{
		"over plain text":               {true, nil, "", 403, "no sign-in over plain text"},
		"the end of one in plain text":  {true, nil, "/callback?code=good", 403, "no sign-in over plain text"},
		"without a secret":              {false, func(i *fakeIssuer) { i.keyless = true }, "", 404, "client_secret_file"},
		"its end without a secret":      {false, func(i *fakeIssuer) { i.keyless = true }, "/callback?code=good", 404, "client_secret_file"},
		"an error of the issuer":        {false, nil, "/callback?error=no&code=good", 401, `the issuer answers \"no\"`},
		"claims that do not fit":        {false, func(i *fakeIssuer) { i.claims["groups"] = append(make([]string, 1000), "sre") }, "/callback?code=good", 401, "do not fit into a cookie"},
		"an answer without transaction": {false, nil, "/callback?code=bad", 401, "wrong code"},
	} {
		t.Run("SAFE-20 "+name, func(t *testing.T) {
			s := newServer(newFleet())
			i := withIssuer(t, s)
			if c.set != nil {
				c.set(i)
			}
			b := &browser{t: t, h: s.Handler(public), tls: !c.plain, cookie: &http.Cookie{Name: "__Host-chancery-oidc", Value: "transaction"}}
			w := b.send("GET "+oidcPath+c.query, "")
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || b.cookie != nil && b.cookie.Name == "__Host-chancery" {
				t.Errorf("%d %s, cookie %v", w.Code, w.Body, b.cookie)
			}
			offered := !c.plain && !i.keyless
			b.cookie = nil
			if is, _ := b.session("GET"); strings.Contains(fmt.Sprint(is.SignIn), "oidc") != offered {
				t.Errorf("offered: %v", is.SignIn)
			}
		})
	}
	t.Run("SAFE-20 refused answers lock out no address", func(t *testing.T) {
		s := newServer(newFleet())
		withIssuer(t, s)
		b := &browser{t: t, h: s.Handler(public), tls: true}
		for range 2 * maxTries { // any web page can send the browser of an operator there
			if code, _, _ := b.oidc("/callback?error=x"); code != 401 {
				t.Errorf("%d", code)
			}
		}
		if code, _, _ := b.oidc(""); code != http.StatusFound {
			t.Errorf("the issuer: %d", code)
		}
		if _, code := b.session("POST", as("other")...); code != http.StatusUnauthorized {
			t.Errorf("a token: %d", code)
		}
	})
	t.Run("SAFE-20 a path with a line break", func(t *testing.T) {
		s := newServer(newFleet())
		i := withIssuer(t, s)
		b := &browser{t: t, h: s.Handler(public), tls: true}
		for _, to := range []string{"/a%0d%0aSet-Cookie:x", "/%09/evil.example", "/a%0a"} {
			if b.oidc("?to=" + to); i.to != "/" {
				t.Errorf("%s leads to %q", to, i.to)
			}
		}
	})
}

// A server on the loopback behind a proxy with TLS has the host of the proxy for browsers.
func TestSignInBehindProxy(t *testing.T) {
	s := newServer(newFleet())
	i := withIssuer(t, s, ", public_url: 'https://Admin.example:443/'")
	h := s.Handler(loopback)
	browserOf := func(host, origin string) *browser {
		return &browser{t: t, h: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Host = host
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			h.ServeHTTP(w, r)
		})}
	}
	t.Run("SAFE-20 the cookies and the URL for the issuer are those of the proxy", func(t *testing.T) {
		b := browserOf("admin.example", "")
		_, _, cookies := b.oidc("")
		if c := cookies[0]; i.back != "https://admin.example"+oidcBackPath || c.Name != "__Host-chancery-oidc" || !c.Secure {
			t.Errorf("back to %s, %+v", i.back, c)
		}
		if code, _, _ := b.oidc("/callback?state=s&code=good"); code != http.StatusSeeOther || b.cookie.Name != "__Host-chancery" {
			t.Errorf("%d %+v", code, b.cookie)
		}
		if is, _ := b.session("GET"); is.Name != "ana (u1)" || !is.SignedIn {
			t.Errorf("%+v", is)
		}
		browserOf("localhost:18001", "").oidc("")
		if i.back != "https://admin.example"+oidcBackPath {
			t.Errorf("a proxy that replaces the header Host: back to %s", i.back)
		}
	})
	for name, c := range map[string]struct {
		host, origin string
		code         int
	}{
		"the loopback has no proxy":             {"localhost:18001", "", 200},
		"the proxy's callers have no loopback":  {"admin.example", "", 401},
		"a page of the proxy":                   {"localhost:18001", "https://admin.example", 200},
		"a page of another server":              {"localhost:18001", "https://evil.example", 403},
		"a page of another server at the proxy": {"admin.example", "https://evil.example", 403},
		"another host":                          {"evil.example", "", 403},
	} {
		t.Run("SAFE-16 "+name, func(t *testing.T) {
			if w := browserOf(c.host, c.origin).send("GET /api/v1/status", ""); w.Code != c.code {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}
