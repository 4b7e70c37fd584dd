package admin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/web"
)

const token = "0123456789abcdef"

// The handler itself decides who may ask, by the local address of the connection.
func TestHandlerDecidesWhoMayAsk(t *testing.T) {
	local, network, unix := net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 18001}), net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 18001}), net.Addr(&net.UnixAddr{Name: "s", Net: "unix"})
	withToken := Options{Token: func() (string, error) { return token, nil }}
	certificate := func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}, VerifiedChains: [][]*x509.Certificate{{{}}}}
	}
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	origin := func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }
	for _, tt := range []struct {
		name string
		o    Options
		at   net.Addr
		host string
		edit func(*http.Request)
		want int
	}{
		{"the loopback", Options{}, local, "localhost:18001", nil, 200},
		{"SAFE-16 another host at the loopback", Options{}, local, "evil.example", nil, 403},
		{"SAFE-16 a page of another site", Options{}, local, "localhost:18001", origin, 403},
		{"no token", withToken, local, "localhost:18001", nil, 401},
		{"a token", withToken, local, "localhost:18001", bearer, 200},
		{"a unix socket", withToken, unix, "localhost", nil, 200},
		{"the network", Options{}, network, "192.0.2.1:18001", nil, 403},
		{"an unknown address", Options{}, nil, "localhost", nil, 403},
		{"the network with a certificate", Options{}, network, "192.0.2.1:18001", certificate, 200},
		{"the network, authenticated by the program", Options{CallersAuthenticated: true}, network, "192.0.2.1:18001", nil, 200},
		{"the network without a token", withToken, network, "192.0.2.1:18001", nil, 401},
		{"the network with a token", withToken, network, "192.0.2.1:18001", bearer, 200},
		{"SAFE-16 the network with a token, for a page of another site", withToken, network, "192.0.2.1:18001", func(r *http.Request) { bearer(r); origin(r) }, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://"+tt.host+"/api/v1/status", nil)
			if tt.at != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.at))
			}
			if tt.edit != nil {
				tt.edit(r)
			}
			w := httptest.NewRecorder()
			New(store.New(), tt.o).Handler().ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("%d, want %d: %s", w.Code, tt.want, w.Body)
			}
		})
	}
}

// Serve refuses a listener that other machines reach without a credential.
func TestServeRefusesOpenListener(t *testing.T) {
	for _, o := range []Options{{}, {TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, {TLS: &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven}}} {
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := New(store.New(), o).Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), "set Options.Token or require client certificates") {
			t.Error(err)
		}
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			_ = c.Close()
			t.Error("the listener is open")
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, at := range [][2]string{{"unix", filepath.Join(t.TempDir(), "s")}, {"tcp", "127.0.0.1:0"}} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := New(store.New(), Options{}).Serve(ended, l); err != nil {
			t.Error(err)
		}
	}
}

// Browsers get the page at the root and at its views.
func TestPage(t *testing.T) {
	if web.Files() == nil {
		t.Skip("built with the tag nopage")
	}
	url := run(t, New(store.New(), Options{Token: func() (string, error) { return token, nil }}))
	for _, path := range []string{"/", "/clients"} {
		r, err := http.NewRequest(http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != http.StatusOK || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") || got.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %s %v", path, got.Status, got.Header)
		}
	}
}
