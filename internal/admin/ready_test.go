package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A probe gets 200 or 503. Only an authenticated caller gets the reason, and one address has a limit.
func TestReady(t *testing.T) {
	s := newServer(newFleet())
	h := s.Handler(loopback)
	for path, want := range map[string]int{"node=edge-2": 200, "node=edge%2F1": 200, "node=edge%2F1&strict=1": 503, "node=other": 503, "": 400, "node=": 400, "node=a&strict=2": 400, "nodes=a": 400,
		"node=edge-2&stict=1": 400, "node=edge-2&node=a": 400, "node=" + strings.Repeat("a", 5000): 400, "node=edge-2;strict=1": 400} {
		w := ask(h, "GET /ready?"+path, "")
		if w.Code != want || strings.Contains(w.Body.String(), "NACKED") || want == 200 && w.Body.String() != "ok" {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	refused := 0
	for range 300 {
		if ask(h, "GET /ready?node=edge-2", "").Code == 429 {
			refused++
		}
	}
	if refused < 50 || refused > 150 {
		t.Errorf("%d of 300 requests are refused", refused)
	}
	for _, of := range []struct{ node, from string }{{"edge-2", "127.0.0.9:1"}, {"other", "10.0.0.7:1"}} {
		other := httptest.NewRequest(http.MethodGet, "/ready?node="+of.node, nil)
		other.Host, other.RemoteAddr = "localhost:18001", of.from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, other)
		if w.Code != http.StatusOK {
			t.Errorf("%+v: %d %s", of, w.Code, w.Body)
		}
	}
	s = newServer(newFleet())
	s.Token = func() (string, error) { return "secret", nil }
	withToken(t, s.Handler(loopback), question{"GET /ready?node=other", "", 503, "not ready: CDS is NACKED"})
}
