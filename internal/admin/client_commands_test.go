package admin

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/server"
)

// Commands for clients need an authenticated caller, and valid parameters.
func TestClientCommandsNeedAuthenticatedCaller(t *testing.T) {
	s := newServer(newFleet())
	h := s.Handler(loopback)
	for _, path := range []string{"clients/edge-2/resync", "clients/edge-2/disconnect", "groups/edge/resync", "groups/edge/disconnect"} {
		if w := ask(h, "POST /api/v1/"+path, ""); w.Code != 403 || !strings.Contains(w.Body.String(), "needs a unix socket, a token or a client certificate") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.Token = func() (string, error) { return "secret", nil }
	h = s.Handler(loopback)
	for _, q := range []question{
		{"POST /api/v1/clients/edge-2/resync", `{"author":"ana"}`, 404, `nothing to send: \"edge-2\" was not sent any resource`},
		{"POST /api/v1/clients/edge-2/resync", `{"type":"cds","name":"a"}`, 404, `was not sent CDS \"a\"`},
		{"POST /api/v1/clients/edge-2/resync", `{"name":"a"}`, 400, `"field":"type"`},
		{"POST /api/v1/clients/edge-2/resync", `{"type":"nothing"}`, 400, `unknown type`},
		{"POST /api/v1/clients/edge-2/resync", `{"author":"a\nb"}`, 400, `one line`},
		{"POST /api/v1/clients/edge-2/resync?all=1", ``, 400, `unknown parameter`},
		{"POST /api/v1/clients/edge-2/disconnect", `{"type":"cds"}`, 400, `takes neither type nor name`},
		{"POST /api/v1/clients/edge-2/disconnect", ``, 404, `have ended`},
		{"POST /api/v1/clients/edge-9/disconnect", ``, 404, `no client with the node id`},
		{"POST /api/v1/groups/none/disconnect", ``, 404, `none`},
		{"GET /api/v1/clients/edge-2/disconnect", ``, 405, `POST`},
	} {
		withToken(t, h, q)
	}
	if log.Len() > 0 {
		t.Errorf("a refused command is in the log as carried out: %s", &log)
	}
}

// A server passes a command on to the other servers of its store, and adds their answers.
func TestClientCommandsOfAllServers(t *testing.T) {
	for name, c := range map[string]struct {
		says map[string]string
		code int
		want []string
	}{
		"another server has the client": {map[string]string{"a": "404", "b": `{"kind":"ClientCommand","streams":2,"types":[{"type":"CDS","resources":-3},{"type":"LDS","resources":1,"released":1}]}`}, 200,
			[]string{`"streams":2`, `{"type":"CDS","resources":0},{"type":"LDS","resources":1,"released":1}`, `"id":"me"`, `"id":"b"`}},
		"no server has it":                           {map[string]string{"a": "404", "b": "404"}, 404, []string{"no client with the node id"}},
		"a server that does not answer may have it":  {map[string]string{"a": "404"}, 503, []string{"server b may have the client: no answer within 1s"}},
		"an answer that cannot be read is no answer": {map[string]string{"a": "404", "b": "{}"}, 503, []string{"server b may have the client: its answer cannot be read"}},
	} {
		o := &others{t: t, says: c.says}
		s := newServer(newFleet())
		s.About.ID, s.Replicas = "me", o
		s.Token = func() (string, error) { return "secret", nil }
		h := s.Handler(loopback)
		for _, part := range c.want {
			withToken(t, h, question{"POST /api/v1/clients/there/resync?replicas=1", `{"type":"cds","author":"ana"}`, c.code, part})
		}
		if want := `/api/v1/clients/there/resync {"type":"cds","author":"token (says ana)"}`; o.path != want {
			t.Errorf("%s: asked %s, want %s", name, o.path, want)
		}
		withToken(t, h, question{"POST /api/v1/clients/there/resync", ``, 404, "no client"})
	}
}

// A command for a group fails if a server of the store does not take it: that server may have clients of the group.
func TestGroupCommandOfAllServers(t *testing.T) {
	done := `{"kind":"ClientCommand","streams":2,"over":"30s"}`
	for name, c := range map[string]struct {
		group string
		says  map[string]string
		code  int
		want  []string
	}{
		"all servers take it":                  {"edge", map[string]string{"a": done, "b": done}, 200, []string{`"streams":4`, `"id":"b"`}},
		"a server does not have the group":     {"edge", map[string]string{"a": done, "b": "404"}, 200, []string{`"streams":2`}},
		"a server does not answer":             {"edge", map[string]string{"a": done}, 503, []string{"disconnect of group edge: clients not reached: server b: no answer within 1s; reached: 2 streams", "--local"}},
		"a server has another version":         {"edge", map[string]string{"a": "{}", "b": "404"}, 503, []string{"server a: its answer cannot be read"}},
		"no server answers":                    {"edge", nil, 503, []string{"server a: no answer within 1s; server b: no answer within 1s"}},
		"only another server knows the group":  {"there", map[string]string{"a": "404", "b": done}, 200, []string{`"streams":2`}},
		"a silent server may know the group":   {"there", map[string]string{"a": "404"}, 503, []string{"server b: no answer within 1s"}},
		"no server of the store has the group": {"there", map[string]string{"a": "404", "b": "404"}, 404, []string{"there"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(newFleet())
			s.About.ID, s.Replicas = "me", &others{t: t, says: c.says}
			s.Token = func() (string, error) { return "secret", nil }
			h := s.Handler(loopback)
			for _, part := range c.want {
				withToken(t, h, question{"POST /api/v1/groups/" + c.group + "/disconnect?replicas=1", "", c.code, part})
			}
		})
	}
}

// A command for a group reaches all its streams, spread over time. A second one does not start meanwhile.
func TestGroupCommandsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.streams = []*server.Stream{{}, {}}
		s := newServer(f)
		s.GroupTime = 10 * time.Second
		s.Token = func() (string, error) { return "secret", nil }
		h := s.Handler(loopback)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		defer func() { cancel(); <-ended }()
		go func() { defer close(ended); s.RunGroupCommands(ctx) }()
		synctest.Wait()
		withToken(t, h, question{"POST /api/v1/groups/edge/disconnect", "", 200, `"over":"10s"`})
		withToken(t, h, question{"POST /api/v1/groups/edge/resync", "", 429, "another command for a group is under way"})
		time.Sleep(11 * time.Second)
		withToken(t, h, question{"POST /api/v1/groups/edge/resync", `{"type":"cds"}`, 200, `"command":"resync","group":"edge"`})
	})
}
