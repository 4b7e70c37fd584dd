package admin

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/xds"
)

// committing returns a server of a store that accepts commits. The server hides secrets, and rejects a
// revision with the cluster "bad".
func committing(t *testing.T) *Server {
	t.Helper()
	e, err := file.Open(t.TempDir()+"/store", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(newFleet())
	s.Token = func() (string, error) { return "secret", nil }
	s.Revisions = &Revisions{
		Repo: revisions.Open(e, revisions.Options{}), Write: true,
		Show: func(url string, body []byte) ([]byte, bool) { return body, url != xds.Secret.URL },
		Review: func(next *revisions.Snapshot, _ bool) (wrong, doubts []string) {
			has := func(name string) bool {
				return next.Get(revisions.Key{Group: "default", Type: xds.Cluster.URL, Name: name}) != nil
			}
			if has("bad") {
				return []string{"a.yaml:7:1: it is bad"}, nil
			}
			if has("odd") {
				doubts = []string{"a.yaml:8:1: warning: it is odd"}
			}
			return nil, doubts
		},
	}
	return s
}

// commitOf returns a commit of clusters.
func commitOf(commit string, names ...string) string {
	b := `{"commit":{"message":"why","author":"ana"` + commit + "}}\n"
	for _, name := range names {
		b += `{"item":{"group":"default","type":"` + xds.Cluster.URL + `","name":"` + name + `","body":"` + base64.StdEncoding.EncodeToString(append([]byte{'\n', byte(len(name))}, name...)) + `","file":"a.yaml","line":3,"col":1}}` + "\n"
	}
	return b
}

// A configuration is committed line by line. With an error, nothing is committed, and the answer has the
// place of the error.
func TestCommit(t *testing.T) {
	s := committing(t)
	h := s.Handler(loopback)
	const twice = `a.yaml:3:1: CDS \"a\" in group \"default\": `
	for _, q := range []question{
		{"GET /api/v1/revisions", "", 200, `"kind":"History","items":[]`},
		{"GET /api/v1/revisions/head", "", 404, "chancery history"},
		{"GET /api/v1/revisions/head/items", "", 404, ""},
		{"POST /api/v1/revisions", commitOf(`,"dry_run":true`, "a"), 200, `"dry_run":true,"revision":"r0","base":"r0","set":1,"removed":0,"changes":[{"change":"added","group":"default","type":"` + xds.Cluster.URL + `","name":"a","place":"a.yaml:3:1"}]`},
		{"POST /api/v1/revisions", commitOf("", "a", "b"), 200, `"kind":"Commit","revision":"r1","base":"r0","set":2,"removed":0}`},
		{"POST /api/v1/revisions", commitOf("", "a", "b"), 200, `"revision":"r1","base":"r1","set":0,"removed":0}`},
		{"POST /api/v1/revisions", commitOf(`,"prune":true`, "a"), 200, `"revision":"r2","base":"r1","set":0,"removed":1}`},
		{"POST /api/v1/revisions", commitOf(`,"if_head":"r1"`, "c"), 409, "revision r1 is no longer the newest: r2 is"},
		{"POST /api/v1/revisions", commitOf("", "c", "bad"), 400, `"message":"this server would not serve that","errors":["a.yaml:7:1: it is bad"]`},
		{"POST /api/v1/revisions", strings.Replace(commitOf("", "c", "web"), `"web"`, `"x"`, 1), 400, `a.yaml:3:1: CDS \"x\" in group \"default\": CDS resource \"x\": the name in the message is \"web\"`},
		{"POST /api/v1/revisions", commitOf("", "a", "a"), 400, `"errors":["` + twice},
		{"POST /api/v1/revisions", commitOf(""), 400, `"field":"item","message":"the commit has no items`},
		{"POST /api/v1/revisions", commitOf(`,"source":"abc, files 0123456789abcdef"`, "c"), 400, `"field":"commit.source"`},
		{"POST /api/v1/revisions", `{"item":{}}`, 400, `"field":"commit"`},
		{"POST /api/v1/revisions", `{"commit":{}}`, 400, `"field":"message"`},
		{"POST /api/v1/revisions", commitOf("", "c") + `{"item":`, 400, `unexpected EOF`},
		{"POST /api/v1/revisions", commitOf("", "c") + `]`, 400, `invalid character`},
		{"POST /api/v1/revisions", commitOf("", "c") + `{"itme":{}}`, 400, `unknown field`},
		{"POST /api/v1/revisions", commitOf("", "c") + `{"item":{"group":"default","type":"x","name":"y"}}`, 400, `is not a type URL`},
		{"POST /api/v1/revisions", commitOf("", "c") + `{"item":{"group":"default","type":"` + xds.Cluster.URL + `","name":"y","redacted":true}}`, 400, `cannot be committed`},
		{"POST /api/v1/revisions/r1/restore", `{"message":"back"}`, 200, `"revision":"r3","base":"r2","set":1,"removed":0}`},
		{"POST /api/v1/revisions/r9/restore", `{"message":"back"}`, 404, `the newest is r3`},
		{"POST /api/v1/revisions/head/restore", `{"message":"back"}`, 400, `"field":"rev"`},
		{"POST /api/v1/revisions/r1/restore", `{}`, 400, `"field":"message"`},
		{"POST /api/v1/revisions", commitOf(`,"dry_run":true`, "odd"), 200, `"warnings":["a.yaml:8:1: warning: it is odd"]}`},
		{"GET /api/v1/revisions?limit=1", "", 200, `"revision":"r3"`},
		{"GET /api/v1/revisions?type=CDS&name=b", "", 200, `"items":[{"revision":"r3"`},
		{"GET /api/v1/revisions?type=CDS", "", 400, `"field":"name"`},
		{"GET /api/v1/revisions/2", "", 200, `"author":"token (says ana)","message":"why"`},
		{"GET /api/v1/revisions/x", "", 404, `is not a revision`},
		{"GET /api/v1/blame/cds/b", "", 200, `"items":[{"group":"default","revision":"r1"`},
		{"GET /api/v1/blame/x/b", "", 404, `unknown type`},
		{"GET /api/v1/revisions/r2/changes", "", 200, `"base":"r1","total":1,"items":[{"change":"removed","group":"default","type":"CDS","name":"b","bytes":0,"before":3}],"impact":{"apiVersion":"v1","kind":"Impact","connected":2,"clients":1,`},
		{"GET /api/v1/revisions/head/changes", "", 200, `"items":[{"change":"added","group":"default","type":"CDS","name":"b","place":"a.yaml:3:1","bytes":3,"before":0}]`},
		{"GET /api/v1/revisions/r9/changes", "", 404, "the newest is r3"},
		{"GET /api/v1/revisions/r2/changes?limit=1", "", 400, "unknown parameter"},
		{"GET /api/v1/revisions/r2/items", "", 200, `{"item":{"group":"default","type":"` + xds.Cluster.URL + `","name":"a"`},
	} {
		withToken(t, h, q)
	}
}

// A caller without permission is refused before the server reads the body. A server without a store does
// not have these paths.
func TestCommitNeedsProof(t *testing.T) {
	s := committing(t)
	s.Token = nil
	withToken(t, s.Handler(loopback), question{"POST /api/v1/revisions", commitOf("", "a"), 403, "needs a unix socket, a token or a client certificate"})
	withToken(t, s.Handler(loopback), question{"POST /api/v1/revisions/r1/restore", `{"message":"x"}`, 403, "needs a unix socket, a token or a client certificate"})
	s = committing(t)
	s.Revisions.Write = false
	withToken(t, s.Handler(loopback), question{"POST /api/v1/revisions", commitOf("", "a"), 403, "this server does not accept commits"})
	s.Revisions = nil
	for _, what := range []string{"GET /api/v1/revisions", "GET /api/v1/revisions/r1", "GET /api/v1/revisions/r1/items", "GET /api/v1/revisions/r1/changes", "GET /api/v1/blame/CDS/a", "POST /api/v1/revisions"} {
		withToken(t, s.Handler(loopback), question{what, "", 404, "this server has no store"})
	}
}

// A commit that is too large is refused.
func TestCommitTooLarge(t *testing.T) {
	text := commitOf("", "a", "b", "c")
	for most, want := range map[int]string{len(text): "", len(text) - 2: fmt.Sprintf("more than %d bytes", len(text)-2), 30: "more than 30 bytes"} {
		if _, items, err := readCommit(httptest.NewRecorder(), strings.NewReader(text), int64(most)); want == "" && (err != nil || len(items) != 3) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes of %d: %v", most, len(text), err)
		}
	}
}

// withToken checks the answer to a caller with the token.
func withToken(t *testing.T, h http.Handler, q question) {
	t.Helper()
	w := ask(h, q.what, q.body, "Authorization", "Bearer secret")
	if got := w.Body.String(); w.Code != q.code || !strings.Contains(got, q.answer) {
		t.Errorf("%s %s: %d, want %d, with %s in\n%s", q.what, q.body, w.Code, q.code, q.answer, got)
	}
}
