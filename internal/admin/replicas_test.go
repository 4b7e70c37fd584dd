package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// others are servers with given answers.
type others struct {
	t    *testing.T
	says map[string]string // by ID; "": does not answer; "404": not found
	path string
	size int64

	stated string // the caller that the request states
}

func (o *others) Ask(ctx context.Context, path string, query url.Values, size int64, read func(*api.Replica, []byte)) (all []api.Replica, unsure error) {
	o.stated = api.StatedCaller(ctx)
	o.path, o.size = path+"?"+query.Encode(), size
	if query.Has("replicas") {
		o.t.Error("another server gets ?replicas, so it would ask others")
	}
	for _, id := range []string{"a", "b"} {
		r := api.Replica{ID: id, Revision: "r9", StoreRevision: "r9"}
		switch body := o.says[id]; body {
		case "":
			r.Error = "no answer within 1s"
		case "403":
			r.Error, r.Forbidden = "the caller lacks a role", true
		case "404":
			read(&r, nil)
		default:
			read(&r, []byte(body))
		}
		all = append(all, r)
	}
	return all, nil
}

func (o *others) Order(ctx context.Context, path string, in []byte, size int64, read func(*api.Replica, []byte)) (all []api.Replica, unsure error) {
	all, unsure = o.Ask(ctx, path, nil, size, read)
	o.path = path + " " + string(in)
	return all, unsure
}

// asks sends a request to a server whose store has other servers.
func asks[T any](t *testing.T, o *others, path string) (answer T, code int) {
	t.Helper()
	s := newServer(newFleet())
	s.About.ID = "me"
	if o != nil {
		s.Replicas = o
	}
	return asksServer[T](t, s, path)
}

func asksServer[T any](t *testing.T, s *Server, path string) (answer T, code int) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Host = "localhost"
	s.Handler(loopback).ServeHTTP(w, r)
	if id := w.Header().Get(api.ReplicaHeader); id != "me" {
		t.Errorf("%s: the header names the server %q", path, id)
	}
	_ = json.Unmarshal(w.Body.Bytes(), &answer)
	return answer, w.Code
}

// An earlier version that clients run on is listed whichever server has the clients.
func TestStatusOfAllHasEarlierVersions(t *testing.T) {
	earlier := `{"type": "RDS", "name": "local", "refused": "v2", "served": "v1", "clients": `
	answer := func(n string) string {
		return `{"kind": "Status", "config": {"earlier": [` + earlier + n + `}]}}`
	}
	st, _ := asks[api.Status](t, &others{t: t, says: map[string]string{"a": answer("2"), "b": answer("3")}}, "/api/v1/status?replicas=1")
	if fmt.Sprint(st.Config.Earlier) != "[{RDS local v2 v1 5  }]" {
		t.Errorf("HEAL-3 %+v", st.Config.Earlier)
	}
	st, _ = asks[api.Status](t, &others{t: t, says: map[string]string{"a": answer("-2")}}, "/api/v1/status?replicas=1")
	if fmt.Sprint(st.Config.Earlier) != "[{RDS local v2 v1 0  }]" {
		t.Errorf("%+v", st.Config.Earlier)
	}
}

// The status of all servers counts the clients of all servers, and lists the servers that did not answer.
func TestStatusOfAll(t *testing.T) {
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	o := &others{t: t, says: map[string]string{"a": `{"kind": "Status", "config": {"store": {"revision": "r8", "error": "away"}, "rejected": {"errors": ["e"]}},
		"clients": {"connected": 5, "by": {"SYNCED": 3, "NACKED": 2, "MADE_UP": 9, "SENT": -4}},
		"refusals": [{"type": "CDS", "error": "no", "clients": 2, "nodes": ["x"], "since": "` + at + `"}, {"type": "LDS", "error": "other", "clients": 7}],
		"troubles": [{"code": "flaps", "text": "t"}], "turned_away": [{"kind": "denied"}]}`}}
	st, code := asks[api.Status](t, o, "/api/v1/status?replicas=1&group=edge")
	if code != http.StatusOK || o.path != "/api/v1/status?group=edge" {
		t.Error(code, o.path)
	}
	if st.Clients.Connected != 7 || fmt.Sprint(st.Clients.By) != "map[NACKED:3 SYNCED:4]" {
		t.Error(st.Clients)
	}
	if len(st.Refusals) != 2 || st.Refusals[0].Error != "other" || st.Refusals[1].Clients != 3 || fmt.Sprint(st.Refusals[1].Nodes) != "[edge/1 x]" || len(st.Troubles) != 1 || len(st.TurnedAway) != 1 {
		t.Errorf("%+v", st)
	}
	r := st.Replicas
	if len(r) != 3 || !r[0].Asked || r[0].ID != "me" || r[0].Clients.Connected != 2 || r[1].Clients.Connected != 5 || r[1].Revision != "r8" || r[1].Trouble != "away" || r[1].Rejected == nil || r[2].Error == "" || r[2].Clients != nil || r[2].Revision != "r9" {
		t.Errorf("%+v", r)
	}
	// a server without the group has no clients in it; a server without a status is not a Chancery
	o.says["b"] = "404"
	for group, none := range map[string]bool{"": false, "&group=edge": true} {
		st, _ := asks[api.Status](t, o, "/api/v1/status?replicas=1"+group)
		if b := st.Replicas[2]; (b.Error == "") != none || (b.Clients != nil) != none {
			t.Errorf("%q: %+v", group, b)
		}
	}
	// without a store or without the parameter, no other server is asked
	if st, code := asks[api.Status](t, nil, "/api/v1/status?replicas=1"); code != http.StatusOK || st.Replicas != nil || st.Clients.Connected != 2 {
		t.Error(code, st)
	}
	o.path = ""
	if st, code := asks[api.Status](t, o, "/api/v1/status"); code != http.StatusOK || st.Replicas != nil || o.path != "" {
		t.Error(code, st, o.path)
	}
	if _, code := asks[api.Status](t, o, "/api/v1/status?replicas=1&group=none"); code != http.StatusNotFound || o.path != "" {
		t.Error(code, o.path)
	}
}

func TestClientsOfAll(t *testing.T) {
	o := &others{t: t, says: map[string]string{
		"a": `{"apiVersion": "v1", "total": 9, "hidden": 1, "items": [{"node": "a-1", "state": "SYNCED", "replica": "lies"}, {"node": "a-2", "state": "STALE"}], "later": {"x": [1]}}`,
		"b": "404",
	}}
	list, code := asks[api.ClientList](t, o, "/api/v1/clients?replicas=1&all=1&limit=3")
	var got []string
	for _, c := range list.Items {
		got = append(got, c.Node+"@"+c.Replica)
	}
	if code != http.StatusOK || list.Total != 11 || fmt.Sprint(got) != "[edge/1@me a-2@a a-1@a]" || len(list.Replicas) != 3 || o.path != "/api/v1/clients?all=1&limit=3" {
		t.Error(code, list.Total, got, o.path)
	}
	// all servers list the skipped clients, too
	list, code = asks[api.ClientList](t, o, "/api/v1/clients?replicas=1&all=1&limit=1&offset=1")
	if code != http.StatusOK || list.Total != 11 || len(list.Items) != 1 || list.Items[0].Node != "a-2" || o.path != "/api/v1/clients?all=1&limit=2" {
		t.Error(code, list, o.path)
	}
	if _, code := asks[api.ClientList](t, o, "/api/v1/clients?replicas=1&limit=1&offset=3000"); code != http.StatusBadRequest {
		t.Error(code)
	}
	if list, code := asks[api.ClientList](t, o, "/api/v1/clients/edge%2F1?replicas=1"); code != http.StatusOK || len(list.Items) != 3 || o.path != "/api/v1/clients/edge%2F1?" {
		t.Error(code, list, o.path)
	}
	o.says["a"] = "404"
	if _, code := asks[api.ClientList](t, o, "/api/v1/clients/none?replicas=1"); code != http.StatusNotFound {
		t.Error(code)
	}
	// the node may be connected to the server that did not answer
	delete(o.says, "b")
	if list, code := asks[api.ClientList](t, o, "/api/v1/clients/none?replicas=1"); code != http.StatusOK || list.Items == nil || len(list.Items) > 0 || list.Replicas[2].Error == "" {
		t.Error(code, list)
	}
}

// Invalid answers of another server do not affect the rest, and the size of the answer is limited.
func TestInvalidAnswersOfReplicas(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	many := func(item string) string { return "[" + strings.Repeat(item+",", 10_000) + item + "]" }
	for _, body := range []string{
		"{", "[]", "null", "1", `"x"`, long, "\x00", `{"kind": "Other"}`, `{"kind": 1}`,
		`{"kind": "Status", "refusals": ` + many("{}") + `}`,
		`{"kind": "Status", "troubles": ` + many(`{"text":"t"}`) + `}`,
		`{"kind": "Status", "clients": {"connected": 99999999999999, "by": {"SYNCED": 1e300}}}`,
		`{"kind": "Status", "clients": {"connected": 9223372036854775807, "by": {"SYNCED": 9223372036854775807}}, "refusals": [{"type": "CDS", "error": "` + long + `", "clients": 9223372036854775807, "nodes": ["` + long + `"], "resources": [{"name": "` + long + `"}]}]}`,
		`{"total": -1, "items": ` + many("{}") + `}`, `{"items": ` + many("[]") + `}`, `{"items": [{"node": "` + long + `"}]}`,
		`{"items": [{"types": ` + many("{}") + `}]}`, `{"items": {}}`, `{"items": [`, `{"items": null}`, `{"total": "x"}`, `{"items": [{"state": "MADE_UP"}]}`,
		strings.Repeat("[", 20_000), `{"x": ` + strings.Repeat(`{"x":`, 20_000),
	} {
		for _, path := range []string{"/api/v1/status", "/api/v1/clients", "/api/v1/clients/edge%2F1"} {
			o := &others{t: t, says: map[string]string{"a": body, "b": "404"}}
			answer, code := asks[json.RawMessage](t, o, path+"?replicas=1")
			if code != http.StatusOK || len(answer) > 1<<16 || !strings.Contains(string(answer), `"id":"b"`) {
				t.Errorf("%s of %.60s: %d, %d bytes", path, body, code, len(answer))
			}
			var of struct{ Clients api.Counts }
			if err := json.Unmarshal(answer, &of); err != nil || of.Clients.Connected < 0 || of.Clients.Connected > 2*maxCounted {
				t.Errorf("%s of %.60s: %v %+v", path, body, err, of)
			}
		}
	}
}

// The wait is done when each server serves the revision, and the clients of each server have accepted
// it. It is not done if a server does not answer.
func TestWaitOfAll(t *testing.T) {
	const there = `{"kind": "WaitResult", "done": true, "served": true, "clients": {"connected": 2, "by": {"SYNCED": 2}}}`
	for _, tt := range []struct {
		a, b string
		done bool
	}{
		{there, there, true},
		{there, `{"kind": "WaitResult", "served": true}`, true}, // none of its clients is selected
		{there, `{"kind": "WaitResult"}`, false},                // it does not serve the revision
		{there, "404", false},
		{there, "", false},
		{there, "{", false},
		{`{"kind": "WaitResult", "served": true, "clients": {"connected": 2}, "pending": ["x"]}`, there, false},
	} {
		o := &others{t: t, says: map[string]string{"a": tt.a, "b": tt.b}}
		r, code := asks[api.WaitResult](t, o, "/api/v1/wait?replicas=1&timeout=1m")
		if code != http.StatusOK || r.Done != tt.done || len(r.Replicas) != 3 || !r.Replicas[0].Served || o.path != "/api/v1/wait?timeout=600ms" {
			t.Errorf("%s and %s: %d %+v %s", tt.a, tt.b, code, r, o.path)
		}
	}
	o := &others{t: t, says: map[string]string{"a": there, "b": `{"kind": "WaitResult", "store_revision": "r10", "rejected": {"errors": ["e"]}, "refusals": [{"type": "CDS", "error": "no", "clients": 1}]}`}}
	if r, _ := asks[api.WaitResult](t, o, "/api/v1/wait?replicas=1"); r.Done || r.Rejected == nil || len(r.Refusals) != 1 || r.Replicas[1].StoreRevision != r.Replicas[1].Revision || r.Replicas[2].StoreRevision != "r10" || r.Replicas[2].Revision != "r10" {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"stored=x", "stored=r0", "revision=3", "timeout=x"} {
		if _, code := asks[api.WaitResult](t, o, "/api/v1/wait?replicas=1&"+bad); code != http.StatusBadRequest {
			t.Error(bad, code)
		}
	}
}
