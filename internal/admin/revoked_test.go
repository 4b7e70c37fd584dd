package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/admin/session"
	"github.com/chancery-xds/chancery/internal/auth/access"
)

// An open stream has the rights of its caller as long as the credential of the caller is valid.
func TestOpenStreamLosesRightsWithCredential(t *testing.T) {
	viewer := func(t *testing.T, s *Server) *http.Request {
		t.Helper()
		withRoles(t, s, "ops view")
		return requestOf(as("ops")...)
	}
	signedIn := func(t *testing.T, s *Server) *http.Request {
		t.Helper()
		b := &browser{t: t, h: s.Handler(loopback)}
		b.session("POST", "Authorization", "Bearer "+secret)
		r := requestOf()
		r.AddCookie(b.cookie)
		return r
	}
	newToken := func(s *Server) { s.Token = func() (string, error) { return secret + "2", nil } }
	for name, c := range map[string]struct {
		open func(t *testing.T, s *Server) *http.Request
		lose func(s *Server)
		kept bool
	}{
		"another token in a token file": {viewer, func(s *Server) {
			p := s.Roles().WithTokens(map[string]string{"ops": "another"})
			s.Roles = func() *roles.Policy { return p }
		}, false},
		"a role of another caller": {viewer, func(s *Server) { withRoles(t, s, "ops view", "other view") }, true},
		"another admin token": {func(*testing.T, *Server) *http.Request {
			return requestOf("Authorization", "Bearer "+secret)
		}, newToken, false},
		"another admin token than at the sign-in": {signedIn, newToken, false},
		"an idle session":                         {signedIn, func(*Server) { time.Sleep(session.Idle) }, true},
		"a session that is too old":               {signedIn, func(*Server) { time.Sleep(session.Most) }, false},
		"a session of a token of the roles file, with another token": {func(t *testing.T, s *Server) *http.Request {
			t.Helper()
			withBindings(t, s, "{token: admin}")
			return signedIn(t, s)
		}, newToken, false},
		"an idle session of a token of the roles file": {func(t *testing.T, s *Server) *http.Request {
			t.Helper()
			withBindings(t, s, "{token: admin}")
			return signedIn(t, s)
		}, func(*Server) { time.Sleep(session.Idle) }, true},
		"an expired certificate": {func(t *testing.T, s *Server) *http.Request {
			t.Helper()
			withBindings(t, s, "{dns: ops}")
			until := time.Now().Add(time.Hour)
			s.Identity = func(context.Context) (access.Identity, error) {
				return access.Identity{Kind: access.MTLS, DNS: []string{"ops"}, Expires: until}, nil
			}
			return requestOf()
		}, func(*Server) { time.Sleep(time.Hour) }, false},
		"an expired ID token": {func(t *testing.T, s *Server) *http.Request {
			t.Helper()
			withIssuer(t, s).claims = map[string]any{"groups": "sre"}
			return requestOf("Authorization", "Bearer a.b.c")
		}, func(*Server) { time.Sleep(time.Hour) }, false},
		"a server of the store that is one no more": {func(t *testing.T, s *Server) *http.Request {
			t.Helper()
			withRoles(t, s, "peer server", "other view")
			return requestOf(append(as("peer"), api.CallerHeader, statedBy("ana", roles.Grant{Role: "view"}))...)
		}, func(s *Server) { withRoles(t, s, "peer view") }, false},
	} {
		t.Run("SAFE-19 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(newFleet())
				s.Token = func() (string, error) { return secret, nil }
				is := s.identify(c.open(t, s), loopback, false)
				if is == nil || !is.still().Has(roles.View) {
					t.Fatalf("%+v", is)
				}
				c.lose(s)
				if kept := is.still().Has(roles.View); kept != c.kept {
					t.Errorf("the stream keeps its rights: %t, want %t", kept, c.kept)
				}
			})
		})
	}
}

// withBindings gives a server a roles file in which a subject may view.
func withBindings(t *testing.T, s *Server, subject string) {
	t.Helper()
	withRoles(t, s, "other view")
	p, problems := roles.Parse("roles.yaml", []byte("bindings: [{role: view, subjects: ["+subject+"]}]"), nil)
	if p == nil {
		t.Fatal(problems)
	}
	s.Roles = func() *roles.Policy { return p }
}

// requestOf returns a request with headers.
func requestOf(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/events", http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// statedBy returns the header value with which a server states a caller.
func statedBy(name string, may ...roles.Grant) string {
	rights, _ := roles.Granted(may)
	return (&caller{name: name, rights: rights}).stated()
}

// Over plain text the network could read a token, except at a unix socket and at the loopback.
func TestExposedAddresses(t *testing.T) {
	for _, c := range []struct {
		at      net.Addr
		tls     bool
		exposed bool
	}{{public, false, true}, {public, true, false}, {loopback, false, false}, {socket, false, false}} {
		s := newServer(newFleet())
		r := requestOf()
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		var is *caller
		if s.identified(r, c.at, false, &is); is.exposed != c.exposed {
			t.Errorf("SAFE-20 %v, TLS %t: exposed %t", c.at, c.tls, is.exposed)
		}
	}
}
