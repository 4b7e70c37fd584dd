package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// A saying is an Explainer with one fixed explanation.
type saying struct {
	oracle
	answer api.Explanation
}

func (s saying) Explain(context.Context, string, string, string) (api.Explanation, error) {
	return s.answer, nil
}

// chainOf returns the explanation of a server, with or without a broken link. The client is connected if
// the explanation counts clients.
func chainOf(clients int, broken, text, last string) string {
	at := ""
	if last != "" {
		at = fmt.Sprintf(`, "last": %q`, last)
	}
	return fmt.Sprintf(`{"kind": "Explanation", "clients": %d, "broken": %q, "advice": "look", "links": [{"name": "loaded", "ok": true, "known": true, "text": "l"}, {"name": "connected", "ok": %t, "known": true, "text": %q}]%s}`, clients, broken, clients > 0, text, at)
}

func explains(t *testing.T, me string, o *others) (e api.Explanation, code int) {
	t.Helper()
	var answer api.Explanation
	if err := json.Unmarshal([]byte(me), &answer); err != nil {
		t.Fatal(err)
	}
	s := newServer(newFleet())
	s.About.ID, s.Replicas, s.Explainer = "me", o, saying{answer: answer}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/clients/edge%2F1/explain?replicas=1&type=CDS&name=a", http.NoBody)
	r.Host = "localhost"
	s.Handler(loopback).ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Errorf("%v in %s", err, w.Body)
	}
	return e, w.Code
}

// The explanation comes from the server to which the client is connected. If no server has the client, it
// comes from the last server that had it, and the text has the number of servers that answered.
func TestExplainOfAll(t *testing.T) {
	const gone = "connected"
	none := chainOf(0, gone, "nobody", "")
	for _, tt := range []struct {
		name, me, a, b string // "": does not answer
		replica, text  string
		clients        int
		advice         string
	}{
		{"here", chainOf(1, "", "here", ""), none, none, "me", "here", 1, "look"},
		{"elsewhere", none, none, chainOf(1, "sent", "there", ""), "b", "there", 1, "look"},
		{"elsewhere, and one is silent", none, chainOf(1, "sent", "there", ""), "", "a", "there", 1, "look"},
		{"of an older version", none, strings.Replace(chainOf(1, "", "there", ""), `"clients": 1,`, "", 1), none, "a", "there", 1, "look"},
		{"at two, of which one is worse off", chainOf(2, "", "here", ""), none, chainOf(1, "sent", "there", ""), "b", "there; 2 more of this node id at server me", 3, "look"},
		{"at none", none, none, none, "me", "nobody; it is at none of the 3 servers of the store", 0, "look"},
		{"left another one", chainOf(0, gone, "left", "2026-01-01T00:00:00Z"), none, chainOf(0, gone, "left later", "2026-01-01T00:00:01Z"), "b", "left later; it is at none of the 3 servers of the store", 0, "look"},
		{"at none that answered", none, none, "", "me", "nobody; it is at none of the 2 servers of the store that answered, and may be at one of the 1 that did not", 0, "see why a server does not answer: the client may be there. Else look"},
	} {
		o := &others{t: t, says: map[string]string{"a": tt.a, "b": tt.b}}
		e, code := explains(t, tt.me, o)
		if code != http.StatusOK || e.Replica != tt.replica || len(e.Links) != 2 || e.Links[1].Text != tt.text || e.Clients != tt.clients || e.Advice != tt.advice {
			t.Errorf("%s: %d %+v", tt.name, code, e)
		}
		if len(e.Replicas) != 3 || (e.Replicas[2].Error != "") != (tt.b == "") || o.path != "/api/v1/clients/edge%2F1/explain?name=a&type=CDS" {
			t.Errorf("%s: %+v %s", tt.name, e.Replicas, o.path)
		}
	}
}

// Long texts of another server are cut, and an invalid answer counts as no answer.
func TestInvalidExplanations(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, body := range []string{
		"404", "{", "null", `{"kind": "Status"}`, `{"kind": "Explanation", "links": [` + strings.Repeat("{},", 100) + `{}]}`,
		`{"kind": "Explanation", "clients": 99999999999, "broken": "` + long + `", "links": [{"name": "connected", "text": "` + long + `"}]}`,
	} {
		e, code := explains(t, chainOf(0, "connected", "nobody", ""), &others{t: t, says: map[string]string{"a": body, "b": "404"}})
		b, _ := json.Marshal(e)
		if code != http.StatusOK || len(b) > 64<<10 || e.Clients > 2*maxCounted {
			t.Errorf("%.60s: %d, %d bytes", body, code, len(b))
		}
		if understood := strings.Contains(body, "clients"); understood != (e.Replicas[1].Error == "") {
			t.Errorf("%.60s: %+v", body, e.Replicas[1])
		}
	}
}
