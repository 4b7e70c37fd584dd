package admin

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/chancery-xds/chancery/web"
)

func packed(text string) *fstest.MapFile {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return &fstest.MapFile{Data: b.Bytes()}
}

// A browser gets the page for each view, and all other callers get the API.
func TestPage(t *testing.T) {
	const html, list, document = "text/html,application/xhtml+xml,*/*;q=0.8", "The admin API of Chancery", "<title>Chancery"
	for _, c := range []struct {
		what    string
		headers []string
		code    int
		body    string // a part
	}{
		{"GET /", []string{"Accept", html}, 200, document},
		{"HEAD /", []string{"Accept", html}, 200, ""},
		{"GET /clients/edge%2F1?type=LDS", []string{"Accept", html}, 200, document},
		{"GET /clients", []string{"Accept", html, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200, document}, // a link in a chat
		{"GET /clients", []string{"Accept", html, "Host", "evil.example:18001"}, 403, "Host"},
		{"GET /assets/page-1.js", nil, 200, "start()"},
		{"GET /assets/../index.html", nil, 404, "path not found"},
		{"GET /assets/page-2.js", nil, 404, "path not found"},

		{"GET /", []string{"Accept", "*/*"}, 401, "token"},
		{"GET /", []string{"Accept", "*/*", "Authorization", "Bearer secret"}, 200, list},
		{"GET /clients", nil, 401, "token"},
		{"GET /api/v1/status", []string{"Accept", html}, 401, "token"},
		{"GET /api/v1/none", []string{"Accept", html, "Authorization", "Bearer secret"}, 404, "path not found"},
		{"GET /version", []string{"Accept", html}, 401, "token"},
		{"POST /", []string{"Accept", html, "Authorization", "Bearer secret"}, 404, "path not found"},
	} {
		t.Run(fmt.Sprintf("SAFE-16 %s %q", c.what, c.headers), func(t *testing.T) {
			s := newServer(newFleet())
			s.Token = func() (string, error) { return "secret", nil }
			s.Page = fstest.MapFS{"index.html.gz": packed("<title>Chancery</title>"), "assets/page-1.js.gz": packed("start()")}
			w := ask(s.Handler(loopback), c.what, "", c.headers...)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, c.code, c.body)
			}
		})
	}
}

// The browser runs scripts of the page only, and no other page may frame it.
func TestPageHeaders(t *testing.T) {
	s := newServer(newFleet())
	s.Page = web.Files()
	w := ask(s.Handler(loopback), "GET /clients", "", "Accept", "text/html", "Accept-Encoding", "gzip, br")
	for name, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Encoding":        "gzip",
		"Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
		"Cache-Control":           "no-store",
		"X-Content-Type-Options":  "nosniff",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("SAFE-16 %s: %q, want %q", name, got, want)
		}
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	document, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(document), `src="`)
	script, _, _ := strings.Cut(rest, `"`)
	w = ask(s.Handler(loopback), "GET "+script, "")
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/javascript") || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %d %v", script, w.Code, w.Header())
	}
}

// Without the page, a browser gets the list of paths.
func TestNoPage(t *testing.T) {
	w := ask(newServer(newFleet()).Handler(loopback), "GET /", "", "Accept", "text/html")
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
