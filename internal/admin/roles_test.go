package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/auth/identity"
	"github.com/chancery-xds/chancery/xds"
)

// withRoles gives a server a roles file in which the token of each line has the role that the line names.
func withRoles(t *testing.T, s *Server, bindings ...string) {
	t.Helper()
	var tokens, all strings.Builder
	texts, servers := map[string]string{}, ""
	for _, line := range bindings {
		name, role, _ := strings.Cut(line, " ")
		role, groups, some := strings.Cut(role, " ")
		fmt.Fprintf(&tokens, "  %s: /x\n", name)
		texts[name] = "secret of " + name
		switch {
		case role == "server":
			servers = "servers: [{token: " + name + "}]\n"
		case some:
			fmt.Fprintf(&all, "- {role: %s, groups: [%s], subjects: [{token: %s}]}\n", role, groups, name)
		default:
			fmt.Fprintf(&all, "- {role: %s, subjects: [{token: %s}]}\n", role, name)
		}
	}
	p, problems := roles.Parse("roles.yaml", []byte(servers+"bindings:\n"+all.String()+"tokens:\n"+tokens.String()), nil)
	if p == nil {
		t.Fatal(problems)
	}
	p = p.WithTokens(texts)
	s.Roles = func() *roles.Policy { return p }
	s.Identity, s.ConnContext = new(identity.Finder).Find, identity.ConnContext
}

// as returns the headers of a caller with a named token.
func as(name string) []string { return []string{"Authorization", "Bearer secret of " + name} }

// Each route needs the role in the table of routes, and view, operate and commit include each other in this order.
func TestEachRouteNeedsItsRole(t *testing.T) {
	s := newServer(newFleet())
	s.Dump = http.NotFoundHandler()
	withRoles(t, s, "viewer view", "operator operate", "committer commit")
	h := s.Handler(public)
	ranks := []string{"", "viewer", "operator", "committer"}
	for _, rt := range s.routes() {
		if rt.needs == open {
			if !strings.HasPrefix(rt.path, "/api/v1/session") {
				t.Errorf("%s %s needs no role", rt.method, rt.path)
			}
			continue
		}
		path := strings.NewReplacer("{node}", "edge-1", "{type}", "cds", "{name...}", "x", "{group}", "edge", "{cluster}", "c", "{id}", "i", "{rev}", "r1").Replace(rt.path)
		t.Run("SAFE-19 "+rt.method+" "+rt.path, func(t *testing.T) {
			for rank, name := range ranks {
				if rank > 0 && rank >= int(rt.needs.role) { // the requests that pass are those of other tests
					continue
				}
				var headers []string
				want := 401
				if name != "" {
					headers, want = as(name), 403
				}
				w := ask(h, rt.method+" "+path, "{}", headers...)
				if w.Code != want || want == 403 && !strings.Contains(w.Body.String(), fmt.Sprintf("token %s lacks the role %s", name, rt.needs.role)) {
					t.Errorf("%q: %d %s", name, w.Code, w.Body)
				}
			}
		})
		calculates := slices.Contains([]string{"/api/v1/impact", "/api/v1/check", "/api/v1/groups/preview"}, rt.path)
		if changing := rt.method != http.MethodGet && !calculates; changing != (rt.needs.role > roles.View) {
			t.Errorf("%s %s needs %s", rt.method, rt.path, rt.needs.role)
		}
	}
	for what, code := range map[string]int{"GET /": 200, "GET /api/v1/status": 200, "GET /version": 200, "GET /nothing": 404, "PUT /version": 405} {
		if w := ask(h, what, "", as("viewer")...); w.Code != code {
			t.Errorf("%s: %d", what, w.Code)
		}
		if w := ask(h, what, ""); w.Code != 401 {
			t.Errorf("%s of nobody: %d", what, w.Code)
		}
	}
}

// A role for some groups does not reach others.
func TestRolesOfGroups(t *testing.T) {
	s := committing(t)
	s.Tracker.(*fleet).all = append(s.Tracker.(*fleet).all, api.Client{Node: "lone"}, api.Client{Node: "gone", Groups: []string{"pay"}, Left: &api.Left{}})
	withRoles(t, s, "edge commit edge-*", "all commit", "default commit default", "ops operate edge", "none operate none")
	s.Reload = func(context.Context, bool) api.Reload { return api.Reload{} }
	h := s.Handler(public)
	item := func(group, name string) string {
		return `{"item":{"group":"` + group + `","type":"` + xds.Cluster.URL + `","name":"` + name + `","body":"` + base64.StdEncoding.EncodeToString(append([]byte{'\n', byte(len(name))}, name...)) + `"}}` + "\n"
	}
	definition := func(group string) string {
		return `{"item":{"group":"` + group + `","definition":"` + base64.StdEncoding.EncodeToString([]byte("match: {id: x}\n")) + `"}}` + "\n"
	}
	begin := func(more string) string { return `{"commit":{"message":"why"` + more + "}}\n" }
	for _, q := range []struct {
		as string
		question
	}{
		{"all", question{"POST /api/v1/revisions", begin("") + item("default", "a") + item("edge-1", "a") + item("pay", "a"), 200, `"revision":"r1"`}},
		{"edge", question{"POST /api/v1/revisions", begin("") + item("edge-1", "a") + item("edge-1", "b"), 200, `"revision":"r2"`}},
		{"edge", question{"POST /api/v1/revisions", begin("") + item("edge-1", "c") + item("default", "c") + item("pay", "c"), 403, `token edge lacks the role commit for groups \"default\", \"pay\"`}},
		{"edge", question{"POST /api/v1/revisions", begin(`,"dry_run":true`) + item("pay", "c"), 403, `for group \"pay\"`}},
		{"edge", question{"POST /api/v1/revisions", begin("") + item("edge-1", "c") + item("pay", "a"), 200, `"set":1`}}, // the resource of the other group is unchanged
		{"edge", question{"POST /api/v1/revisions", begin(`,"prune":true`) + item("edge-1", "c"), 403, `for groups \"default\", \"pay\"`}},
		{"edge", question{"POST /api/v1/revisions", begin("") + definition("edge-1"), 403, `for all groups: the commit changes the definition of group \"edge-1\"`}},
		{"all", question{"POST /api/v1/revisions", begin("") + item("pay", "d"), 200, `"revision":"r4"`}},
		{"edge", question{"POST /api/v1/revisions/r2/restore", `{"message":"back"}`, 403, `for group \"pay\"`}},
		{"edge", question{"POST /api/v1/revisions/r3/restore", `{"message":"back"}`, 403, `for group \"pay\"`}},
		{"all", question{"POST /api/v1/revisions/r3/restore", `{"message":"back"}`, 200, `"revision":"r5"`}},
		{"all", question{"POST /api/v1/revisions", begin("") + item("edge-2", "d"), 200, `"revision":"r6"`}},
		{"edge", question{"POST /api/v1/revisions/r5/restore", `{"message":"back"}`, 200, `"revision":"r7"`}},
		{"ops", question{"POST /api/v1/revisions", begin("") + item("edge", "c"), 403, "token ops lacks the role commit"}},
		{"edge", question{"POST /api/v1/groups/pay/freeze", `{"message":"x"}`, 403, `for group \"pay\"`}},
		{"edge", question{"POST /api/v1/groups/pay/unfreeze", `{}`, 403, `for group \"pay\"`}},
		{"edge", question{"POST /api/v1/rollouts", `{"message":"x","revision":"r1"}`, 403, "for all groups: the request names no groups"}},
		{"edge", question{"POST /api/v1/rollouts", `{"message":"x","revision":"r1","of":["edge-1","pay"]}`, 403, `for group \"pay\"`}},
		{"edge", question{"PUT /api/v1/log", `{"level":"info"}`, 403, "token edge lacks the role operate for all groups"}},
		{"edge", question{"POST /api/v1/reload", `{}`, 403, "for all groups"}},
		{"all", question{"POST /api/v1/reload", `{}`, 200, ""}},
		{"ops", question{"POST /api/v1/groups/edge/disconnect", `{}`, 200, `"streams":0`}},
		{"none", question{"POST /api/v1/groups/edge/disconnect", `{}`, 403, `token none lacks the role operate for group \"edge\"`}},
		{"none", question{"POST /api/v1/groups/edge/resync", `{}`, 403, `for group \"edge\"`}},
		{"none", question{"POST /api/v1/clients/edge-2/resync", `{}`, 403, `token none lacks the role operate for each group of the client: \"edge\", \"default\"`}},
		{"none", question{"POST /api/v1/clients/edge-2/disconnect", `{}`, 403, `for each group of the client`}},
		{"ops", question{"POST /api/v1/clients/edge-2/disconnect", `{}`, 404, "have ended"}},
		{"ops", question{"POST /api/v1/clients/lone/disconnect", `{}`, 403, "for all groups: the client has no group"}},
		{"all", question{"POST /api/v1/clients/lone/disconnect", `{}`, 404, "have ended"}},
		{"ops", question{"POST /api/v1/clients/gone/disconnect", `{}`, 404, "have ended"}},
	} {
		if w := ask(h, q.what, q.body, as(q.as)...); w.Code != q.code || !strings.Contains(w.Body.String(), q.answer) {
			t.Errorf("SAFE-19 %s of %s: %d %s, want %d %s", q.what, q.as, w.Code, w.Body, q.code, q.answer)
		}
	}
}

// Endpoints are registered for the groups of the caller only, also in streams, which notice a lost role.
func TestRolesOfEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registering(t)
		withRoles(t, s, "default commit default", "pay commit pay")
		h := s.Handler(public)
		const e = `{"address":"10.0.0.1","port":80}`
		for _, q := range []struct {
			as string
			question
		}{
			{"pay", question{"PUT /api/v1/endpoints/c/a", e, 403, `token pay lacks the role commit for group \"default\"`}},
			{"pay", question{"PUT /api/v1/endpoints/c", `{"endpoints":[]}`, 403, `for group \"default\"`}},
			{"pay", question{"DELETE /api/v1/endpoints/c", "", 403, `for group \"default\"`}},
			{"default", question{"PUT /api/v1/endpoints/c/a?group=pay", e, 403, `for group \"pay\"`}},
			{"default", question{"PUT /api/v1/endpoints/c/a", e, 200, `"set":1`}},
		} {
			if w := ask(h, q.what, q.body, as(q.as)...); w.Code != q.code || !strings.Contains(w.Body.String(), q.answer) {
				t.Errorf("SAFE-19 %s of %s: %d %s, want %d %s", q.what, q.as, w.Code, w.Body, q.code, q.answer)
			}
		}
		line := `{"cluster":"c","group":"pay","put":{"id":"b","address":"10.0.0.2","port":80}}` + "\n" + `{"cluster":"c","put":{"id":"c","address":"10.0.0.3","port":80}}` + "\n"
		w := ask(h, "POST /api/v1/endpoints", line, append(as("default"), "Content-Type", linesOfJSON)...)
		if !strings.Contains(w.Body.String(), `"errors":[{"line":1,"field":"role","message":"token default lacks the role commit for group \"pay\""}]`) {
			t.Errorf("SAFE-19 a stream: %s", w.Body)
		}
		if all := registrations(s); all != "c a,c" {
			t.Error(all)
		}

		// The caller loses its role between two lines.
		in, out := io.Pipe()
		answered := make(chan string)
		go func() {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/endpoints", in)
			r.Header.Set("Authorization", as("default")[1])
			r.Header.Set("Content-Type", linesOfJSON)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			answered <- w.Body.String()
		}()
		_, _ = io.WriteString(out, `{"cluster":"c","put":{"id":"d","address":"10.0.0.4","port":80}}`+"\n")
		synctest.Wait()
		withRoles(t, s, "pay commit pay")
		_, _ = io.WriteString(out, `{"cluster":"c","remove":"d"}`+"\n")
		out.Close()
		if got := <-answered; !strings.Contains(got, `{"line":2,"field":"role","message":"token default lacks the role commit for group \"default\""}`) {
			t.Errorf("SAFE-19 without its role: %s", got)
		}
		if all := registrations(s); all != "c a,c,d" {
			t.Error(all)
		}
	})
}

// A stream of endpoints over gRPC needs the role commit.
func TestRoleOfEndpointsOverGRPC(t *testing.T) {
	s := registering(t)
	withRoles(t, s, "viewer view", "ops operate", "ci commit default")
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ProtoMajor = 2
		s.Handler(public).ServeHTTP(w, r)
	})
	for name, refused := range map[string]bool{"viewer": true, "ops": true, "ci": false} {
		w := ask(h, "POST "+registerMethod, "", append(as(name), "Content-Type", "application/grpc")...)
		if text := w.Result().Trailer.Get("Grpc-Message") + w.Header().Get("Grpc-Message"); strings.Contains(text, "lacks the role commit") != refused {
			t.Errorf("SAFE-19 %s: %v %v", name, w.Header(), text)
		}
	}
}

// A reader of events is disconnected when its caller may view no more.
func TestEventsEndWithTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		s, later := newServer(f), newServer(f)
		withRoles(t, s, "viewer view")
		withRoles(t, later, "other view")
		var now atomic.Pointer[roles.Policy]
		now.Store(s.Roles())
		s.Roles = now.Load
		h := s.Handler(public)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			ask(h, "GET /api/v1/events?new", "", as("viewer")...)
		}()
		time.Sleep(time.Minute)
		now.Store(later.Roles())
		began := time.Now()
		<-ended
		if took := time.Since(began); took > beat {
			t.Errorf("SAFE-19 disconnected after %v", took)
		}
	})
}

// A server of the store passes on who its caller is, and what the caller may do. No other caller may state another.
func TestCallersOfOtherServers(t *testing.T) {
	s := newServer(newFleet())
	withRoles(t, s, "peer server", "ops operate edge", "all commit")
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	var events []api.Event
	s.Note = func(e api.Event) { events = append(events, e) }
	h := s.Handler(public)
	stated := func(name string, may ...roles.Grant) []string {
		rights, _ := roles.Granted(may)
		return []string{api.CallerHeader, (&caller{name: name, rights: rights}).stated()}
	}
	edge, pay := roles.Grant{Role: "operate", Groups: []string{"edge"}}, roles.Grant{Role: "operate", Groups: []string{"pay"}}
	for _, c := range []struct {
		as     string
		stated []string
		what   string
		code   int
		answer string
	}{
		{"peer", nil, "GET /api/v1/status", 200, ""},
		{"peer", nil, "POST /api/v1/groups/edge/disconnect", 403, "token peer lacks the role operate"},
		{"peer", stated("ana", edge), "POST /api/v1/groups/edge/disconnect", 200, ""},
		{"peer", stated("bob", pay), "POST /api/v1/groups/edge/disconnect", 403, `bob (through token peer) lacks the role operate for group \"edge\"`},
		{"peer", stated("bob", pay), "POST /api/v1/clients/edge-2/disconnect", 403, `bob (through token peer) lacks the role operate for each group`},
		{"peer", stated("eve"), "GET /api/v1/status", 403, "eve (through token peer) lacks the role view"},
		{"peer", stated("", edge), "GET /api/v1/status", 403, "may not send requests for other callers"},
		{"peer", stated(strings.Repeat("x", maxStated), edge), "GET /api/v1/status", 403, "may not send requests for other callers"},
		{"peer", stated("eve\nby=root", pay), "POST /api/v1/groups/edge/disconnect", 403, `eve\\nby=root (through token peer) lacks`},
		{"peer", []string{api.CallerHeader, "?"}, "GET /api/v1/status", 403, "may not send requests for other callers"},
		{"ops", stated("root", roles.Grant{Role: "commit"}), "GET /api/v1/status", 403, "token ops may not send requests for other callers"},
		{"all", stated("root", roles.Grant{Role: "commit"}), "POST /api/v1/reload", 403, "may not send requests for other callers"},
	} {
		if w := ask(h, c.what, "{}", append(as(c.as), c.stated...)...); w.Code != c.code || !strings.Contains(w.Body.String(), c.answer) {
			t.Errorf("SAFE-19 %s of %s: %d %s, want %d %s", c.what, c.as, w.Code, w.Body, c.code, c.answer)
		}
	}
	if len(events) != 1 || events[0].By != "ana (through token peer)" || !strings.Contains(log.String(), `by="ana (through token peer)"`) {
		t.Errorf("%+v\n%s", events, &log)
	}
	// Without roles, a caller without credentials has no other name.
	is := newServer(newFleet()).identify(requestOf(stated("root", edge)...), loopback, false)
	if is.name != "loopback" || is.proven {
		t.Errorf("SAFE-19 %+v", is)
	}
	// The requests to the other servers carry the caller.
	o := &others{says: map[string]string{"b": "404"}}
	s.Replicas = o
	ask(h, "POST /api/v1/groups/edge/disconnect?replicas=1", "{}", as("ops")...)
	if want := stated("token ops", edge)[1]; o.stated != want {
		t.Errorf("SAFE-19 stated to the others: %q", o.stated)
	}
}

// The refusal of the server that has the client is the answer.
func TestRoleIsDecidedAtTheServerOfTheClient(t *testing.T) {
	s := newServer(newFleet())
	withRoles(t, s, "ops operate edge")
	s.Replicas = &others{says: map[string]string{"b": "403"}}
	w := ask(s.Handler(public), "POST /api/v1/clients/far-1/disconnect?replicas=1", "{}", as("ops")...)
	if w.Code != 403 || !strings.Contains(w.Body.String(), "server b: ") {
		t.Errorf("SAFE-19 %d %s", w.Code, w.Body)
	}
}

// Each change names its caller in an event and in the log.
func TestChangesNameTheirCaller(t *testing.T) {
	s := registering(t)
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var events []string
	s.Note = func(e api.Event) { events = append(events, e.Kind+": "+e.Text+" / "+e.By) }
	withRoles(t, s, "ops operate", "ci commit")
	h := s.Handler(public)
	for _, c := range []struct{ as, what, body, event string }{
		{"ops", "PUT /api/v1/log", `{"level":"debug"}`, "log level debug"},
		{"ops", "POST /api/v1/reload", `{}`, "reload"},
		{"ops", "POST /api/v1/groups/edge/resync", `{}`, "resync of group edge"},
		{"ci", "PUT /api/v1/endpoints/c/a", `{"address":"10.0.0.1","port":80}`, "endpoints of cluster c"},
		{"ci", "DELETE /api/v1/endpoints/c/a", ``, "endpoints of cluster c"},
	} {
		events = nil
		log.Reset()
		w := ask(h, c.what, c.body, as(c.as)...)
		if want := fmt.Sprintf("[admin: %s by token %s / token %[2]s]", c.event, c.as); w.Code != 200 || fmt.Sprint(events) != want {
			t.Errorf("%s: %d %s: %v, want %s", c.what, w.Code, w.Body, events, want)
		}
		if !strings.Contains(log.String(), fmt.Sprintf("by=%q", "token "+c.as)) {
			t.Errorf("%s: the log is\n%s", c.what, &log)
		}
	}
	c := committing(t)
	withRoles(t, c, "ci commit")
	ask(c.Handler(public), "POST /api/v1/revisions", commitOf("", "a"), as("ci")...)
	if w := ask(c.Handler(public), "GET /api/v1/revisions", "", as("ci")...); !strings.Contains(w.Body.String(), `"author":"token ci (says ana)"`) {
		t.Errorf("%s", w.Body)
	}
}

// The process at the other end of a unix socket has its own roles. The socket of the server's user allows everything.
func TestRolesOfUnixUsers(t *testing.T) {
	for role, code := range map[string]string{"view": "403", "operate": "200"} {
		p, problems := roles.Parse("roles.yaml", fmt.Appendf(nil, "bindings: [{role: %s, subjects: [{uid: %d}]}]", role, os.Getuid()), nil)
		if p == nil {
			t.Fatal(problems)
		}
		s := newServer(newFleet())
		withRoles(t, s, "other view")
		s.Roles = func() *roles.Policy { return p }
		at := filepath.Join(t.TempDir(), "s")
		dial, end := serves(t, s, "unix:"+at, 16)
		const reload = "POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
		c := dial()
		if got := says(t, c, reload); !strings.HasPrefix(got, code) {
			t.Errorf("SAFE-19 a user with the role %s: %s", role, got)
		}
		c.Close()
		end()
	}
	s := newServer(newFleet())
	withRoles(t, s, "other view")
	if w := ask(s.handler(socket, true), "POST /api/v1/reload", "{}"); w.Code != 200 {
		t.Errorf("SAFE-19 the own socket: %d %s", w.Code, w.Body)
	}
}

// A program without credentials may only view, and only at the loopback.
func TestLoopbackMayOnlyView(t *testing.T) {
	s := newServer(newFleet())
	withRoles(t, s, "other view")
	p, _ := roles.Parse("roles.yaml", []byte("bindings: [{role: view, subjects: [{loopback: true}]}]"), nil)
	s.Roles = func() *roles.Policy { return p }
	for _, c := range []struct {
		at   net.Addr
		what string
		code int
	}{
		{loopback, "GET /api/v1/status", 200}, {loopback, "POST /api/v1/reload", 403}, {public, "GET /api/v1/status", 401}, {socket, "GET /api/v1/status", 401},
	} {
		if w := ask(s.Handler(c.at), c.what, "{}"); w.Code != c.code {
			t.Errorf("SAFE-19 %v %s: %d %s", c.at, c.what, w.Code, w.Body)
		}
	}
	if w := ask(s.Handler(loopback), "GET /api/v1/status", "", "Authorization", "Bearer wrong"); w.Code != 401 {
		t.Errorf("SAFE-19 a wrong token at the loopback: %d", w.Code)
	}
	withRoles(t, s, "other view")
	if w := ask(s.Handler(loopback), "GET /api/v1/status", ""); w.Code != 401 {
		t.Errorf("SAFE-19 the loopback without a binding: %d", w.Code)
	}
}
