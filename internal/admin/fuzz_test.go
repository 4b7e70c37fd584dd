package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// Every request gets an answer of the API, without a panic.
func FuzzRequest(f *testing.F) {
	for _, target := range []string{"clients?node=*&state=nacked&limit=3", "clients/a%2Fb/resources/CDS/x", "clients/a/explain?type=CDS&name=%00", "resources/EDS/a/b?subscribers",
		"events?stop&kind=ack&after=1", "wait?for=synced&timeout=0s&revision=9", "log", "reload", "openapi.yaml", "clients/..%2f", "status?a=%zz"} {
		f.Add(uint8(0), target, "", "")
		f.Add(uint8(1), target, `{"level":"debug"}`, "7")
		f.Add(uint8(2), target, `{"allow_mass_delete":true}`, "-1")
	}
	fl := newFleet()
	fl.happens(api.Event{Kind: "ack", Node: "\x00\u202e"})
	s := newServer(fl)
	h := s.Handler(loopback)
	f.Fuzz(func(t *testing.T, method uint8, target, body, last string) {
		path, query, _ := strings.Cut(target, "?")
		switch {
		case strings.HasPrefix(path, "wait"):
			query = "timeout=0s&" + strings.ReplaceAll(query, "timeout", "timeou") // no request waits
		case strings.HasPrefix(path, "events"):
			query = "stop&" + query
		case strings.Contains(query, "panic"):
			t.Skip("the fake explainer panics for this query")
		}
		escaped := "/api/v1/" + path
		u := &url.URL{Path: escaped, RawQuery: query}
		if plain, err := url.PathUnescape(escaped); err == nil {
			u.Path, u.RawPath = plain, escaped
		}
		r := &http.Request{Method: []string{"GET", "PUT", "POST", "DELETE"}[method%4], URL: u, Host: "localhost", Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
		r = r.WithContext(t.Context())
		r.Body = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)).Body
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Last-Event-ID", last)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch {
		case w.Code >= 300 && w.Code < 400: // the same path, spelled differently
		case w.Code != 200:
			var e api.Error
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Kind != "Error" || e.Message == "" || w.Code == 500 {
				t.Errorf("%d %q", w.Code, w.Body)
			}
		case strings.HasPrefix(w.Header().Get("Content-Type"), "application/json"):
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%q", w.Body)
			}
		}
	})
}
