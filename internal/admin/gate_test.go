package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/logtest"
)

// Web pages in a local browser can reach the loopback address.
func TestWebPages(t *testing.T) {
	for _, c := range []struct {
		at      net.Addr
		what    string
		headers []string
		code    int
	}{
		{loopback, "GET /api/v1/status", nil, 200},
		{loopback, "GET /api/v1/status", []string{"Host", "127.0.0.1:18001"}, 200},
		{loopback, "GET /api/v1/status", []string{"Host", "[::1]:18001"}, 200},
		{loopback, "GET /api/v1/status", []string{"Host", "evil.example:18001"}, 403}, // DNS rebinding
		{loopback, "GET /api/v1/status", []string{"Host", "127.0.0.1.evil.example"}, 403},
		{loopback, "GET /api/v1/status", []string{"Host", "0.0.0.0:18001"}, 403},
		{public, "GET /api/v1/status", []string{"Host", "chancery.example"}, 200},
		{socket, "GET /api/v1/status", []string{"Host", "anything"}, 200},

		{loopback, "GET /api/v1/status", []string{"Origin", "http://localhost:18001"}, 200},
		{loopback, "GET /api/v1/status", []string{"Origin", "http://localhost:3000"}, 403},
		{loopback, "GET /api/v1/status", []string{"Origin", "https://evil.example"}, 403},
		{loopback, "GET /api/v1/status", []string{"Origin", "null"}, 403},
		{loopback, "GET /api/v1/status", []string{"Host", "", "Origin", "null"}, 403}, // HTTP/1.0
		{public, "GET /api/v1/status", []string{"Origin", "https://evil.example"}, 403},
		{socket, "GET /api/v1/status", []string{"Origin", "https://evil.example"}, 403},
		{loopback, "GET /api/v1/status", []string{"Sec-Fetch-Site", "cross-site"}, 403}, // an image or a script
		{loopback, "GET /api/v1/status", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{loopback, "GET /api/v1/status", []string{"Sec-Fetch-Site", "none"}, 200}, // typed into the browser

		{loopback, "POST /api/v1/reload", []string{"Content-Type", ""}, 415},
		{loopback, "POST /api/v1/reload", []string{"Content-Type", "text/plain"}, 415}, // an HTML form
		{loopback, "POST /api/v1/reload", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{loopback, "POST /api/v1/reload", []string{"Content-Type", "text/plain; application/json"}, 415},
		{loopback, "POST /api/v1/reload", []string{"Content-Type", "application/json; charset=utf-8"}, 200},
		{loopback, "OPTIONS /api/v1/reload", nil, 405}, // a CORS preflight
	} {
		t.Run(fmt.Sprintf("SAFE-16 %v %s %q", c.at, c.what, c.headers), func(t *testing.T) {
			w := ask(newServer(newFleet()).Handler(c.at), c.what, "", c.headers...)
			if w.Code != c.code {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.code)
			}
			for name := range w.Header() {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Error(name)
				}
			}
		})
	}
}

const secret = "0123456789abcdef"

func TestToken(t *testing.T) {
	for _, c := range []struct {
		at            net.Addr
		authorization []string
		code          int
	}{
		{loopback, nil, 401},
		{public, nil, 401},
		{socket, nil, 200},
		{public, []string{"Bearer " + secret}, 200},
		{public, []string{"bearer  " + secret + " "}, 200},
		{loopback, []string{"Bearer " + secret}, 200},
		{public, []string{""}, 401},
		{public, []string{"Bearer"}, 401},
		{public, []string{"Bearer "}, 401},
		{public, []string{secret}, 401},
		{public, []string{"Basic " + secret}, 401},
		{public, []string{"Bearer " + secret[:15]}, 401},
		{public, []string{"Bearer " + secret + "x"}, 401},
		{public, []string{"Bearer " + strings.ToUpper(secret)}, 401},
		{public, []string{"Bearer " + secret, "Bearer " + secret}, 401},
		{public, []string{"Bearer \x00\xff"}, 401},
		{public, []string{"Bearer " + strings.Repeat("x", 1<<20)}, 401},
	} {
		s := newServer(newFleet())
		s.Token = func() (string, error) { return secret, nil }
		h := s.Handler(c.at)
		for _, path := range []string{"/", "/version", "/api/v1/status", "/nothing"} {
			w := ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header["Authorization"] = c.authorization
				h.ServeHTTP(w, r)
			}), "GET "+path, "")
			want := c.code
			if path == "/nothing" && want == 200 {
				want = 404
			}
			if w.Code != want {
				t.Errorf("%v %.40q %s: %d, want %d", c.at, c.authorization, path, w.Code, want)
			}
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("%.40q: the answer has the token", c.authorization)
			}
			if w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		}
	}
}

// If the token cannot be read, all requests are refused.
func TestUnreadableToken(t *testing.T) {
	for _, token := range []func() (string, error){
		func() (string, error) { return "", errors.New("no such file") },
		func() (string, error) { return "", nil },
	} {
		s := newServer(newFleet())
		s.Token = token
		var log logtest.Log
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		for _, given := range []string{"Bearer ", "Bearer x", ""} {
			if w := ask(s.Handler(public), "GET /version", "", "Authorization", given); w.Code != 401 {
				t.Errorf("%q: %d", given, w.Code)
			}
		}
		if _, err := token(); err != nil && strings.Count(log.String(), "cannot read the token") != 1 {
			t.Errorf("one line for the same error, but the log has\n%s", log.String())
		}
	}
}

// A proven caller may allow a mass delete.
func TestMassDelete(t *testing.T) {
	s := newServer(newFleet())
	s.Token = func() (string, error) { return secret, nil }
	w := ask(s.Handler(loopback), "POST /api/v1/reload", `{"allow_mass_delete":true}`, "Authorization", "Bearer "+secret)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"removed":5`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A refused request is answered immediately, even if its body continues, like the body of an endpoint
// stream.
func TestDeniedAtOnce(t *testing.T) {
	for want, headers := range map[string]string{
		"401": "Content-Type: application/x-ndjson\r\n", "403": "Origin: https://evil.example\r\n", "415": "Content-Type: text/plain\r\nAuthorization: Bearer " + secret + "\r\n",
	} {
		s := newServer(newFleet())
		s.Token = func() (string, error) { return secret, nil }
		dial, end := serves(t, s, "127.0.0.1:0", 16)
		c := dial()
		began := time.Now()
		got := says(t, c, "POST /api/v1/endpoints HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"+headers+"\r\n1\r\n\n\r\n")
		if took := time.Since(began); !strings.HasPrefix(got, want) || took > readTime/2 {
			t.Errorf("%s after %v, want %s", got, took, want)
		}
		c.Close()
		end()
	}
}
