package admin

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/admin/session"
	"github.com/chancery-xds/chancery/internal/auth/identity"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
)

// A browser keeps the cookie of a server and the token of its session.
type browser struct {
	t      *testing.T
	h      http.Handler
	tls    bool
	cookie *http.Cookie
	csrf   string
}

func (b *browser) send(what, body string, more ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if b.cookie != nil {
			r.AddCookie(b.cookie)
		}
		b.h.ServeHTTP(w, r)
	})
	w := ask(h, what, body, more...)
	for _, c := range w.Result().Cookies() {
		b.cookie = c
		if c.MaxAge < 0 {
			b.cookie = nil
		}
	}
	return w
}

func (b *browser) session(what string, more ...string) (is api.Session, code int) {
	b.t.Helper()
	w := b.send(what+" /api/v1/session", "{}", more...)
	if w.Code == 200 {
		if err := json.Unmarshal(w.Body.Bytes(), &is); err != nil {
			b.t.Fatal(err)
		}
		b.csrf = is.CSRF
	}
	return is, w.Code
}

// A caller signs in with a token, and then has its roles by a cookie that scripts of the page cannot read.
func TestSignIn(t *testing.T) {
	t.Run("SAFE-20 a session begins, slides and ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(newFleet())
			withRoles(t, s, "ops operate edge", "all commit")
			var events []string
			s.Note = func(e api.Event) { events = append(events, e.Text+" / "+e.By) }
			b := &browser{t: t, h: s.Handler(public), tls: true}
			if is, code := b.session("GET"); code != 200 || is.Name != "" || is.SignedIn || fmt.Sprint(is.SignIn) != "[token]" || b.cookie != nil {
				t.Errorf("before: %d %+v", code, is)
			}
			is, code := b.session("POST", as("ops")...)
			if want := "[{operate [edge]}]"; code != 200 || is.Name != "token ops" || fmt.Sprint(is.Roles) != want || !is.SignedIn || is.CSRF == "" || !is.Expires.Equal(time.Now().Add(session.Idle)) {
				t.Fatalf("%d %+v", code, is)
			}
			if c := b.cookie; c.Name != "__Host-chancery" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 900 || strings.Contains(c.Value, "secret") {
				t.Errorf("%+v", c)
			}
			for _, c := range []struct {
				what string
				csrf string
				code int
			}{
				{"GET /api/v1/status", "", 200},
				{"POST /api/v1/groups/edge/disconnect", "", 403},
				{"POST /api/v1/groups/edge/disconnect", "x", 403},
				{"POST /api/v1/groups/edge/disconnect", b.csrf, 200},
				{"POST /api/v1/groups/pay/disconnect", b.csrf, 403},
				{"POST /api/v1/reload", b.csrf, 403},
			} {
				if w := b.send(c.what, "{}", api.CSRFHeader, c.csrf); w.Code != c.code {
					t.Errorf("%s with %q: %d %s", c.what, c.csrf, w.Code, w.Body)
				}
			}
			// The session slides, but not for ever.
			for range 40 {
				time.Sleep(session.Idle - time.Second)
				if is, _ = b.session("GET"); !is.SignedIn {
					break
				}
			}
			if age := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); is.SignedIn || age < session.Most || age > session.Most+session.Idle {
				t.Errorf("the session ends after %v", age)
			}
			if w := b.send("GET /api/v1/status", ""); w.Code != 401 {
				t.Errorf("after the end: %d", w.Code)
			}
			// Signing out removes the cookie.
			b.session("POST", as("ops")...)
			if is, code := b.session("DELETE"); code != 403 || is.SignedIn {
				t.Errorf("sign-out without the token of the session: %d", code)
			}
			b.session("GET")
			if is, code := b.session("DELETE", api.CSRFHeader, b.csrf); code != 200 || is.Name != "" || is.SignedIn || b.cookie != nil {
				t.Errorf("sign-out: %d %+v", code, is)
			}
			if last := events[max(0, len(events)-2):]; fmt.Sprint(last) != "[sign-in by token ops / token ops sign-out by token ops / token ops]" {
				t.Errorf("the events: %q", events)
			}
			// An idle session ends.
			b.session("POST", as("ops")...)
			time.Sleep(session.Idle)
			if w := b.send("GET /api/v1/status", ""); w.Code != 401 {
				t.Errorf("idle: %d", w.Code)
			}
		})
	})
}

// A changed token, and a changed roles file, end the session at once. Other servers with the token know the session.
func TestSessionIsBoundToItsCredential(t *testing.T) {
	t.Run("SAFE-20 a session ends with its credential", func(t *testing.T) {
		one, two := newServer(newFleet()), newServer(newFleet())
		for _, s := range []*Server{one, two} {
			withRoles(t, s, "ops operate edge")
		}
		b := &browser{t: t, h: one.Handler(public), tls: true}
		b.session("POST", as("ops")...)
		b.h = two.Handler(public)
		if is, _ := b.session("GET"); is.Name != "token ops" || !is.SignedIn {
			t.Errorf("another server of the store: %+v", is)
		}
		withRoles(t, two, "ops commit")
		if is, _ := b.session("GET"); fmt.Sprint(is.Roles) != "[{commit []}]" {
			t.Errorf("another role: %+v", is)
		}
		p := one.Roles().WithTokens(map[string]string{"ops": "a new secret"})
		one.Roles = func() *roles.Policy { return p }
		withRoles(t, two, "other view")
		for _, s := range []*Server{one, two} {
			b.h = s.Handler(public)
			if w := b.send("GET /api/v1/status", ""); w.Code != 401 {
				t.Errorf("with another token, or without one: %d", w.Code)
			}
		}
		// The token of --admin-token-file, without roles.
		s, token := newServer(newFleet()), secret
		s.Token = func() (string, error) { return token, nil }
		b = &browser{t: t, h: s.Handler(loopback)}
		if is, code := b.session("POST", "Authorization", "Bearer "+secret); code != 200 || fmt.Sprint(is.Roles) != "[{commit []}]" || b.cookie.Secure || b.cookie.Name != "chancery" {
			t.Errorf("%d %+v %+v", code, is, b.cookie)
		}
		if w := b.send("POST /api/v1/reload", "{}", api.CSRFHeader, b.csrf); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := b.send("GET /api/v1/status", "", "Authorization", "Bearer wrong"); w.Code != 401 {
			t.Errorf("a wrong token with a session: %d", w.Code)
		}
		token = secret + "2"
		if w := b.send("GET /api/v1/status", ""); w.Code != 401 {
			t.Errorf("%d", w.Code)
		}
	})
}

// The holder of a token knows the key of the token's sessions. A session that the holder seals has no other rights.
func TestTokenHolderCannotSealUser(t *testing.T) {
	t.Run("SAFE-20 only the issuer's sessions have a user", func(t *testing.T) {
		s := newServer(newFleet())
		p, problems := roles.Parse("roles.yaml", []byte("tokens: {dash: /x}\noidc: {issuer: 'https://issuer.example', client_id: c}\nbindings:\n- {role: view, subjects: [{token: dash}]}\n- {role: commit, subjects: [{claims: {groups: sre}}]}\n"), nil)
		if p == nil {
			t.Fatal(problems)
		}
		p = p.WithTokens(map[string]string{"dash": secret})
		s.Roles, s.Identity = func() *roles.Policy { return p }, new(identity.Finder).Find
		sealed := session.New("token dash", time.Now())
		b := &browser{t: t, h: s.Handler(public), tls: true}
		for user, want := range map[*session.User]int{
			nil: 200,
			{Issuer: "https://issuer", Subject: "root", Claims: map[string]any{"groups": "sre"}}: 401,
		} {
			sealed.User = user
			b.cookie = &http.Cookie{Name: "__Host-chancery", Value: sealed.Seal(session.KeyOf(secret), time.Now())}
			if w := b.send("GET /api/v1/status", ""); w.Code != want {
				t.Errorf("user %v: %d %s", user, w.Code, w.Body)
			}
		}
	})
}

// A sign-in needs TLS or the loopback, and the right token in few tries.
func TestSignInIsRefused(t *testing.T) {
	t.Run("SAFE-20 a sign-in over plain text or without a token", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(newFleet())
			withRoles(t, s, "ops operate")
			var log bytes.Buffer
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			b := &browser{t: t, h: s.Handler(public)}
			if is, _ := b.session("GET"); len(is.SignIn) != 0 {
				t.Errorf("%+v", is)
			}
			if _, code := b.session("POST", as("ops")...); code != 403 || b.cookie != nil {
				t.Errorf("over plain text: %d", code)
			}
			b.tls = true
			for i := range maxTries {
				if _, code := b.session("POST", "Authorization", "Bearer guess"); code != 401 {
					t.Errorf("try %d: %d", i, code)
				}
			}
			if w := b.send("POST /api/v1/session", "{}", as("ops")...); w.Code != 429 || w.Header().Get("Retry-After") != "60" {
				t.Errorf("too many: %d %s", w.Code, w.Header().Get("Retry-After"))
			}
			if w := b.send("GET /api/v1/status", "", as("ops")...); w.Code != 200 {
				t.Errorf("a script at the same address: %d", w.Code)
			}
			other := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.RemoteAddr, r.TLS = "198.51.100.7:1", &tls.ConnectionState{}
				s.Handler(public).ServeHTTP(w, r)
			})
			if w := ask(other, "POST /api/v1/session", "{}", as("ops")...); w.Code != 200 {
				t.Errorf("another address: %d", w.Code)
			}
			time.Sleep(triesTime)
			if _, code := b.session("POST", as("ops")...); code != 200 {
				t.Errorf("later: %d", code)
			}
			if n := strings.Count(log.String(), "sign-in refused"); n != 2 || strings.Contains(log.String(), "guess") {
				t.Errorf("the log:\n%s", &log)
			}
		})
		b := &browser{t: t, h: newServer(newFleet()).Handler(loopback)}
		if is, code := b.session("GET"); code != 200 || is.Name != "loopback" || fmt.Sprint(is.Roles) != "[{view []}]" || len(is.SignIn) != 0 {
			t.Errorf("without credentials, the page is read-only: %d %+v", code, is)
		}
		if _, code := b.session("POST"); code != 400 {
			t.Errorf("%d", code)
		}
	})
}

// The time of failed sign-ins begins with the first of them.
func TestFailedSignInsAreForgotten(t *testing.T) {
	t.Run("SAFE-20 failed sign-ins of another minute", func(t *testing.T) {
		var all tries
		now := time.Now()
		all.failed("a", now)
		for range maxTries - 2 {
			all.failed("a", now.Add(50*time.Second))
		}
		if d := all.wait("a", now.Add(50*time.Second)); d != 0 {
			t.Errorf("one try is left, and the wait is %v", d)
		}
		all.failed("a", now.Add(50*time.Second))
		if d := all.wait("a", now.Add(50*time.Second)); d != 10*time.Second {
			t.Errorf("the wait is %v", d)
		}
	})
}

// A caller with the role view cannot displace the events of other callers.
func TestManySignInsHaveFewEvents(t *testing.T) {
	t.Run("SAFE-20 many sign-ins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(newFleet())
			withRoles(t, s, "ops view")
			var log bytes.Buffer
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			events := map[string]int{}
			s.Note = func(e api.Event) { events[e.Text]++ }
			b := &browser{t: t, h: s.Handler(public), tls: true}
			for range 100 {
				b.session("POST", as("ops")...)
				b.session("DELETE", api.CSRFHeader, b.csrf)
			}
			time.Sleep(dedup.Within)
			synctest.Wait()
			if fmt.Sprint(events) != "map[sign-in by token ops:5 sign-out by token ops:5]" {
				t.Errorf("%v", events)
			}
			for _, line := range []string{"operator signed in", "operator signed out"} {
				if strings.Count(log.String(), line) != 6 || !strings.Contains(log.String(), "repeated=95") {
					t.Errorf("the log:\n%s", &log)
				}
			}
			time.Sleep(2 * dedup.Within)
		})
	})
}

// The memory for failed sign-ins is bounded.
func TestFailedSignInsAreBounded(t *testing.T) {
	t.Run("SAFE-20 failed sign-ins are few", func(t *testing.T) {
		var all tries
		now := time.Now()
		for i := range 3 * maxAddresses {
			all.failed(fmt.Sprint(i), now)
		}
		if n := len(all.of); n > maxAddresses {
			t.Errorf("%d addresses", n)
		}
		if all.wait("another", now) != 0 {
			t.Error("many addresses lock out another one")
		}
		for range maxTries {
			all.failed("another", now)
		}
		if all.wait("another", now) == 0 {
			t.Error("further addresses are not limited")
		}
		all.failed("new", now.Add(triesTime))
		if n := len(all.of); n != 1 {
			t.Errorf("%d addresses later", n)
		}
	})
}
