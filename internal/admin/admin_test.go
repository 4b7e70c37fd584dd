package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 18001}
	public   = &net.TCPAddr{IP: net.IPv4zero, Port: 18001}
	socket   = &net.UnixAddr{Name: "x"}
)

// A fleet is a tracker with invented clients.
type fleet struct {
	mu      sync.Mutex
	all     []api.Client
	refused []api.Refusal
	streams []*server.Stream
	past    []api.Event
	changed chan struct{}
	asked   clients.Filter // the filter of the last call
}

func newFleet() *fleet {
	return &fleet{changed: make(chan struct{}), all: []api.Client{
		{Node: "edge/1", Groups: []string{"edge"}, State: api.Nacked, Types: []api.TypeStatus{{Type: "CDS", URL: xds.Cluster.URL, Stream: 1, State: api.Nacked, Nacked: &api.NackedStatus{Error: "no"}}}},
		{Node: "edge-2", Groups: []string{"edge", "default"}, State: api.Synced},
	}, refused: []api.Refusal{{Type: "CDS", Error: "no", Clients: 1, Nodes: []string{"edge/1"}}}}
}

func (f *fleet) SummaryOf(clients.Filter) (api.Counts, []api.Refusal, []api.Trouble) {
	return api.Counts{Connected: 2, By: map[api.State]int{api.Nacked: 1, api.Synced: 1}}, f.refused, nil
}

func (f *fleet) Clients(by clients.Filter) api.ClientList {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = by
	return api.ClientList{Total: len(f.all), Items: f.all}
}

func (f *fleet) TurnedAway(string) []api.TurnedAway { return nil }

func (f *fleet) GroupCounts() map[string]api.Counts {
	return map[string]api.Counts{"edge": {Connected: 2, By: map[api.State]int{api.Nacked: 1, api.Synced: 1}}, "default": {Connected: 1, By: map[api.State]int{api.Synced: 1}}}
}

func (f *fleet) Loops(clients.Filter) []clients.Loop { return nil }

func (f *fleet) Client(node string) (found []api.Client) {
	for _, c := range f.all {
		if c.Node == node {
			found = append(found, c)
		}
	}
	return found
}

func (f *fleet) Nodes(prefix string, most int) (found []string) {
	for _, c := range f.all {
		if strings.HasPrefix(c.Node, prefix) && len(found) < most {
			found = append(found, c.Node)
		}
	}
	return found
}

func (f *fleet) Ready(node, from string, strict bool) (bool, string) {
	return from == "10.0.0.7" || node == "edge-2" || node == "edge/1" && !strict, "CDS is NACKED"
}

func (f *fleet) Fleet(int) (agents []api.AgentCount, responses, names []api.TypeLoad) {
	return []api.AgentCount{{Agent: "envoy 1.40.0", Clients: api.Counts{Connected: 2, By: map[api.State]int{api.Synced: 2}}}}, []api.TypeLoad{{Node: "edge-2", Type: "CDS", Bytes: 7}}, nil
}

func (f *fleet) Streams(node string) []*server.Stream {
	if len(f.Client(node)) == 0 {
		return nil
	}
	return []*server.Stream{{}} // it has ended
}

func (f *fleet) Selected(clients.Filter) []*server.Stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams
}

// Newest returns the newest event of clients, and all others.
func (f *fleet) Newest(after uint64, most int, keep func(kind, node, typ string) bool) (events []api.Event, missed int, last uint64) {
	all := f.Events(after)
	for i := range slices.Backward(all) {
		e := all[i]
		if last == 0 {
			last = e.ID
		}
		if !keep(e.Kind, e.Node, e.Type) {
			continue
		}
		if e.Node != "" {
			most--
		}
		if most < 0 && e.Node != "" {
			missed++
			continue
		}
		events = slices.Insert(events, 0, e)
	}
	return events, missed, max(last, after)
}

func (f *fleet) Events(after uint64) (all []api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.past {
		if e.ID > after {
			all = append(all, e)
		}
	}
	return all
}

func (f *fleet) Await(ctx context.Context, after uint64) ([]api.Event, error) {
	for {
		c := f.Changed()
		if all := f.Events(after); len(all) > 0 {
			return all, nil
		}
		select {
		case <-c:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *fleet) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fleet) Propagation() []api.Spread {
	return []api.Spread{{Revision: 7, Clients: 1, P50: 3, Curve: []api.SpreadPoint{{After: 3, Clients: 1}}}}
}

// happens adds an event.
func (f *fleet) happens(e api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.ID = uint64(len(f.past)) + 1
	f.past = append(f.past, e)
	close(f.changed)
	f.changed = make(chan struct{})
}

// An oracle explains one client and one resource.
type oracle struct{}

func (oracle) Explain(_ context.Context, node, typ, name string) (api.Explanation, error) {
	if typ == "panic" {
		panic("of an explainer")
	}
	return api.Explanation{Node: node, Type: typ, Name: name}, nil
}

func (oracle) ClientResources(_ context.Context, node, typ, name string, _ int) (api.ClientResources, error) {
	if node != "edge/1" {
		return api.ClientResources{}, &NotFound{"node", "no client has the node id " + node, "did you mean edge/1?"}
	}
	r := api.ClientResources{Node: node}
	r.Items = []api.ClientResource{{Resource: api.Resource{Type: typ, Name: name}}}
	return r, nil
}

func (oracle) Served(_ context.Context, q ResourceQuery) (api.ResourceList, error) {
	if q.Type != "" && typeOf(q.Type) == nil {
		return api.ResourceList{}, &NotFound{"type", "there is no type", ""}
	}
	return api.ResourceList{Items: []api.ServedResource{{Resource: api.Resource{Type: q.Type, Name: q.Name}}}}, nil
}

func (oracle) References(_ context.Context, q ReferenceQuery) (api.ReferenceGraph, error) {
	if q.Name == "none" {
		return api.ReferenceGraph{}, &NotFound{"name", "no group has it", ""}
	}
	return api.ReferenceGraph{Nodes: []api.ReferenceNode{{Resource: api.Resource{Type: q.Type, Name: q.Name, Reason: fmt.Sprint(q.Limit, q.Depth, q.Subscribers)}}}}, nil
}

func (oracle) Diff(_ context.Context, q DiffQuery) (api.Diff, error) {
	if q.To == "files" {
		return api.Diff{}, dir.Errors{{File: "a.yaml", Pos: findings.Pos{Line: 3, Column: 1}, Message: "no"}}
	}
	return api.Diff{From: api.DiffSide{Of: q.From}, To: api.DiffSide{Of: q.To, Note: fmt.Sprint(q.Type, q.Name, q.Group, q.Limit)}}, nil
}

func (oracle) Node(node string) (api.NodeInfo, error) {
	if node != "edge/1" {
		return api.NodeInfo{}, &NotFound{"node", "no client has the node id " + node, ""}
	}
	return api.NodeInfo{Node: api.Node{ID: node, Metadata: json.RawMessage(`{"rack": "7"}`)}}, nil
}

func (oracle) Preview(node []byte) (api.Preview, error) {
	if string(node) == "id: [" {
		return api.Preview{}, errors.New("node:1:5: error XDS0101: it has no end")
	}
	return api.Preview{Groups: []api.PreviewGroup{{Name: "edge", Why: `id is "` + string(node) + `"`}}, Resources: []api.PreviewResource{}}, nil
}

func (oracle) Check(group string, text []byte) (api.Check, []api.ImpactChange) {
	out := api.Check{Findings: []api.Finding{}, Changes: []api.ChangedItem{}}
	if string(text) == "wrong" {
		out.Errors = 1
	}
	return out, []api.ImpactChange{{Type: "CDS", Name: string(text), Group: group, Bytes: 1}}
}

func (oracle) Certificates(int) []api.Certificate {
	return []api.Certificate{{Resource: api.Resource{Type: "SDS", Name: "web"}, Group: "edge", Ends: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}}
}

func (oracle) Impact(_ context.Context, q api.ImpactRequest) (api.Impact, error) {
	return api.Impact{Connected: 2, Clients: len(q.Changes)}, nil
}

func (oracle) Unused(name string) string {
	if name == "backend" {
		return ""
	}
	return "no cluster uses " + name
}

func (oracle) Wait(context.Context, []api.Client) {}

func (oracle) Blame(_ context.Context, all []api.Refusal) []api.Refusal { return all }

func newServer(f *fleet) *Server {
	return &Server{
		About: api.Server{Version: "v1"}, Version: api.VersionInfo{Version: "v1"},
		Config:  func() api.Config { return api.Config{Revision: 7} },
		Groups:  func() []api.Group { return []api.Group{{Name: "default"}, {Name: "edge"}} },
		Tracker: f, Explainer: oracle{}, Level: new(slog.LevelVar),
		Reload: func(_ context.Context, approve bool) api.Reload {
			r := api.Reload{Files: 3}
			if approve {
				r.Removed = 5
			}
			return r
		},
		Log: slog.New(slog.DiscardHandler),
	}
}

// A question is a request with its expected answer.
type question struct {
	what   string // method and target
	body   string
	code   int
	answer string // a part of the answer
}

// ask returns the answer to a local JSON request.
func ask(h http.Handler, what, body string, more ...string) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(what, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "localhost:18001"
	if method != http.MethodGet && method != http.MethodHead {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(more); i += 2 {
		if more[i] == "Host" {
			r.Host = more[i+1]
			continue
		}
		r.Header.Set(more[i], more[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestRoutes sends valid and invalid requests to every path.
func TestRoutes(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, q := range []question{
		{"GET /", "", 200, "GET   /api/v1/status "},
		{"GET /nothing", "", 404, `"path not found"`},
		{"GET /api/v2/status", "", 404, `"kind":"Error"`},

		{"GET /api/v1/status", "", 200, `"kind":"Status"`},
		{"HEAD /api/v1/status", "", 200, ""},
		{"GET /api/v1/status?x=1", "", 400, `"field":"x","message":"unknown parameter"`},
		{"GET /api/v1/status?%zz", "", 400, "malformed"},
		{"GET /api/v1/status?a;b", "", 400, "malformed"},
		{"POST /api/v1/status", "{}", 405, "use GET"},
		{"GET /api/v1/status/", "", 404, "path not found"},

		{"GET /api/v1/clients", "", 200, `"kind":"ClientList","total":2`},
		{"GET /api/v1/clients?node=e**&group=edge&type=cds&state=nacked&state=STALE&all&left=0&limit=5", "", 200, `"edge/1"`},
		{"GET /api/v1/clients?type=type.googleapis.com/acme.Thing", "", 200, `"edge/1"`},
		{"GET /api/v1/clients?state=ill", "", 400, "states are NACKED, STALE,"},
		{"GET /api/v1/clients?state=ABSENT", "", 400, `"field":"state"`}, // a state of resources only
		{"GET /api/v1/clients?type=xds", "", 400, "types are CDS, EDS, "},
		{"GET /api/v1/clients?type=a/b.c", "", 400, `"field":"type"`},
		{"GET /api/v1/clients?limit=-1", "", 400, `"field":"limit","message":"must be a number between 0 and 100000"`},
		{"GET /api/v1/clients?limit=100001", "", 400, `"field":"limit"`},
		{"GET /api/v1/clients?limit=1e3", "", 400, `"field":"limit"`},
		{"GET /api/v1/clients?offset=-1", "", 400, `"field":"offset"`},
		{"GET /api/v1/clients?all=yes", "", 400, `"field":"all"`},
		{"GET /api/v1/clients?all=1&all=1", "", 400, "given more than once"},
		{"GET /api/v1/clients?nodes=x", "", 400, "this path takes node, group,"},
		{"GET /api/v1/clients?node=" + long, "", 400, "more than 4096 bytes"},
		{"GET /api/v1/clients?" + long + "=1", "", 400, "…"},

		{"GET /api/v1/clients/edge%2F1", "", 200, `"node":"edge/1"`},
		{"GET /api/v1/clients/edge-1", "", 404, `did you mean edge/1 or edge-2?`},
		{"GET /api/v1/clients/%00%1b", "", 404, `\\x00\\x1b`},
		{"GET /api/v1/clients/%2E%2E", "", 404, `\"..\"`},
		{"GET /api/v1/clients/" + long, "", 404, "…"},
		{"GET /api/v1/clients/edge%2F1?all=1", "", 400, "this path takes replicas"},
		{"GET /api/v1/clients/edge%2F1/node?all=1", "", 400, "takes no parameters"},

		{"GET /api/v1/clients/edge%2F1/resources", "", 200, `"kind":"ClientResourceList"`},
		{"GET /api/v1/clients/edge%2F1/resources?limit=x", "", 400, `"field":"limit"`},
		{"GET /api/v1/clients/edge%2F1/resources/CDS", "", 200, `"type":"CDS"`},
		{"GET /api/v1/clients/edge%2F1/resources/CDS/a%2F%2Fb", "", 200, `"name":"a//b"`},
		{"GET /api/v1/clients/edge%2F1/resources/CDS/a/b", "", 200, `"name":"a/b"`},
		{"GET /api/v1/clients/edge%2F1/resources/EDS/xdstp:%2F%2Fx%2Fa%3Fb=c", "", 200, `"name":"xdstp://x/a?b=c"`},
		{"GET /api/v1/clients/nobody/resources", "", 404, `"hint":"did you mean edge/1?"`},
		{"GET /api/v1/clients/edge%2F1/explain", "", 200, `"kind":"Explanation"`},
		{"GET /api/v1/clients/edge%2F1/explain?type=CDS&name=a", "", 200, `"name":"a"`},
		{"GET /api/v1/clients/edge%2F1/explain?name=a", "", 400, `"field":"type","message":"is needed with a name"`},

		{"GET /api/v1/resources", "", 200, `"kind":"ResourceList"`},
		{"GET /api/v1/resources?group=edge&subscribers=1&limit=1", "", 200, `"items":[{`},
		{"GET /api/v1/resources?subscribers=2", "", 400, `"field":"subscribers"`},
		{"GET /api/v1/resources/CDS/a%2Fb", "", 200, `"name":"a/b"`},
		{"GET /api/v1/resources/xds", "", 404, `"field":"type"`},
		{"GET /api/v1/references/CDS/a%2F%2Fb", "", 200, `"kind":"ReferenceGraph","group":"","groups":[],"nodes":[{"type":"CDS","name":"a//b","reason":"200 10 false"}],"edges":[],"cut":false`},
		{"GET /api/v1/references/CDS/a?limit=7&depth=2&subscribers", "", 200, `"reason":"7 2 true"`},
		{"GET /api/v1/references/CDS/a?limit=1001", "", 400, `"field":"limit"`},
		{"GET /api/v1/references/CDS/a?depth=21", "", 400, `"field":"depth"`},
		{"GET /api/v1/references/CDS/none", "", 404, `"field":"name"`},
		{"GET /api/v1/diff?to=rev:r1", "", 200, `"kind":"Diff","from":{"of":"served","resources":0},"to":{"of":"rev:r1","resources":0,"note":"200"},"added":0,"removed":0,"changed":0,"total":0,"items":[]`},
		{"GET /api/v1/diff?from=client:a&to=client:b&type=cds&name=x&group=edge&limit=3", "", 200, `"note":"type.googleapis.com/envoy.config.cluster.v3.Clusterxedge3"`},
		{"GET /api/v1/propagation", "", 200, `"curve":[{"ms":3,"clients":1}]}],"clients":{"connected":2,"by":{"NACKED":1,"SYNCED":1}},"missing":[{"node":"edge/1","state":"NACKED","type":"CDS","why":"no"}`},
		{"GET /api/v1/propagation?x", "", 400, `takes no parameters`},
		{"GET /api/v1/diff", "", 400, `"field":"to"`},
		{"GET /api/v1/diff?to=served&name=x", "", 400, `"field":"type"`},
		{"GET /api/v1/diff?to=files", "", 422, `"errors":["a.yaml:3:`},
		{"GET /api/v1/refusals", "", 200, `"kind":"RefusalList","items":[{"type":"CDS"`},
		{"GET /api/v1/groups", "", 200, `{"name":"edge","resources":0,"clients":{"connected":2,"by":{"NACKED":1,"SYNCED":1}}}`},

		{"GET /api/v1/events?stop", "", 200, "event: commit\ndata: {\"id\":1,"},
		{"GET /api/v1/events?stop&kind=ack", "", 200, ": events of Chancery\n\n"},
		{"GET /api/v1/events?kind=birth", "", 400, "kinds are connect,"},
		{"GET /api/v1/events?after=x", "", 400, `"field":"after"`},
		{"GET /api/v1/events?stop&after=18446744073709551616", "", 400, `"field":"after"`},

		{"GET /api/v1/wait?for=synced&timeout=1ms", "", 200, `"kind":"WaitResult","done":true`}, // no stream is open
		{"GET /api/v1/wait?timeout=1ms&node=x", "", 200, `"done":false`},                        // the client may still connect
		{"GET /api/v1/wait?timeout=1ms&revision=8", "", 200, `"done":false`},
		{"GET /api/v1/wait?for=ready", "", 400, `"field":"for"`},
		{"GET /api/v1/wait?timeout=-1s", "", 400, `"field":"timeout"`},
		{"GET /api/v1/wait?timeout=2h", "", 400, "between 0s and 1h0m0s"},
		{"GET /api/v1/wait?timeout=30", "", 400, "such as 30s"},
		{"GET /api/v1/wait?stored=r1", "", 404, "this server has no store, so it cannot serve r1"},
		{"GET /api/v1/wait/synced?stored=r1", "", 404, `"field":"stored"`},
		{"GET /api/v1/wait/synced?group=zz", "", 404, `"field":"group"`},
		{"GET /api/v1/wait?refused=no", "", 400, `"field":"refused"`},
		{"GET /api/v1/wait?revision=-1", "", 400, `"field":"revision"`},

		{"GET /api/v1/log", "", 200, `"kind":"LogLevel","level":"info"`},
		{"PUT /api/v1/log", `{"level":"debug"}`, 200, `"level":"debug"`},
		{"PUT /api/v1/log", `{"apiVersion":"v1","kind":"LogLevel","level":"error"}`, 200, `"level":"error"`},
		{"PUT /api/v1/log", `{"level":"loud"}`, 400, `"field":"level"`},
		{"PUT /api/v1/log", `{"level":1}`, 400, `"field":"level","message":"must be text, not a JSON number"`},
		{"PUT /api/v1/log", `{"lvl":"info"}`, 400, `unknown field`},
		{"PUT /api/v1/log", `{"level":"info"} x`, 400, `more data after`},
		{"PUT /api/v1/log", `[`, 400, `"field":"body"`},
		{"PUT /api/v1/log", ``, 400, `"field":"level"`},
		{"PUT /api/v1/log", `{"level":"` + strings.Repeat("x", maxBody), 400, "more than 65536 bytes"},
		{"PUT /api/v1/log", `{"level":"info"}` + strings.Repeat(" ", maxBody), 400, "more than 65536 bytes"},
		{"POST /api/v1/log", `{}`, 405, "use GET or PUT"},

		{"POST /api/v1/reload", ``, 200, `"kind":"Reload","files":3`},
		{"POST /api/v1/reload", `{}`, 200, `"files":3`},
		{"POST /api/v1/reload", `{"allow_mass_delete":"yes"}`, 400, `"field":"allow_mass_delete"`},
		{"POST /api/v1/reload", `{"allow_mass_delete":true}`, 403, `"field":"allow_mass_delete"`}, // a local port is not enough
		{"POST /api/v1/reload?x", `{}`, 400, `"field":"x"`},
		{"GET /api/v1/reload", ``, 405, "use POST"},

		{"POST /api/v1/impact", `{"changes":[{"type":"CDS","name":"a","bytes":2147483647,"group":"edge"}]}`, 200, `"kind":"Impact","connected":2,"clients":1`},
		{"POST /api/v1/impact", `{"changes":[{"type":"cds","name":"a"},{"type":"CDS","name":"a","group":"egde"}]}`, 404, `"field":"changes[1].group","message":"no group has the name \"egde\"","hint":"the groups are default, edge"`},
		{"POST /api/v1/impact", `{"changes":[{}` + strings.Repeat(",{}", maxPlanned/2) + `]}`, 400, `"field":"body","message":"has more than 100000 values"`}, // SAFE-14
		{"GET /api/v1/fleet", "", 200, `"kind":"Fleet","connected":2,"agents":[{"agent":"envoy 1.40.0","clients":{"connected":2,"by":{"SYNCED":2}}}],"responses":[{"node":"edge-2","type":"CDS","bytes":7,"resources":0,"names":0}],"names":[],"certificates":[{"type":"SDS","name":"web","group":"edge","ends":"2030-01-02T00:00:00Z"}]}`},
		{"GET /api/v1/fleet?x=1", "", 400, "unknown parameter"},
		{"POST /api/v1/groups/preview", `{"node":"e1"}`, 200, `"kind":"Preview","groups":[{"name":"edge","why":"id is \"e1\""}],"total":0,"resources":[]`},
		{"POST /api/v1/groups/preview", `{"node":"id: ["}`, 400, `"field":"node","message":"node:1:5: error XDS0101: it has no end"`},
		{"POST /api/v1/groups/preview", `{}`, 400, `"field":"node","message":"is missing`},
		{"POST /api/v1/groups/preview", `{"node":"` + strings.Repeat("x", maxAsked) + `"}`, 400, `"field":"body","message":"more than 4194304 bytes"`},
		{"POST /api/v1/check", `{"text":"name: a"}`, 200, `"kind":"Check","errors":0,"warnings":0,"findings":[],"unchanged":0,"total":0,"changes":[],"impact":{"apiVersion":"v1","kind":"Impact","connected":2,"clients":1,`},
		{"POST /api/v1/check", `{"text":"wrong","group":"edge"}`, 200, `"errors":1,"warnings":0,"findings":[],"unchanged":0,"total":0,"changes":[]}`},
		{"POST /api/v1/check", `{"text":"a","group":"egde"}`, 404, `no group has the name \"egde\"`},
		{"POST /api/v1/check", `{}`, 400, `"field":"text","message":"is missing`},
		{"POST /api/v1/check", `{"text":"` + strings.Repeat("x", maxChecked+1) + `"}`, 400, `"field":"text","message":"more than 524288 bytes"`}, // SAFE-14
		{"POST /api/v1/impact", `{"changes":[{"name":"a"}]}`, 400, `"field":"changes[0].type","message":"a change needs its type"`},
		{"POST /api/v1/impact", `{"changes":[{"type":"xds","name":"a"}]}`, 404, `"field":"changes[0].type","message":"unknown type \"xds\"","hint":"types are CDS, `},
		{"POST /api/v1/impact", `{"changes":[{"type":"CDS","name":"a","bytes":-1}]}`, 400, `"field":"changes[0].bytes","message":"must be a number between 0 and 2147483647"`},
		{"POST /api/v1/impact", `{"changes":[{"type":"CDS","name":"a","bytes":2147483648}]}`, 400, `"field":"changes[0].bytes"`},
		{"POST /api/v1/impact", `{"changes":[{"type":"CDS","name":"a","bytes":9223372036854775808}]}`, 400, `"field":"changes.bytes"`},

		{"GET /api/v1/openapi.yaml", "", 200, "openapi: 3."},
		{"GET /version", "", 200, `"kind":"Version","version":"v1"`},
		{"GET /config_dump", "", 404, "path not found"},
	} {
		f := newFleet()
		f.happens(api.Event{Kind: "commit"})
		w := ask(newServer(f).Handler(loopback), q.what, q.body)
		if w.Code != q.code || !strings.Contains(w.Body.String(), q.answer) {
			t.Errorf("%.80s: %d %.300s; want %d, %s", q.what, w.Code, w.Body, q.code, q.answer)
		}
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%.80s: headers %v", q.what, w.Header())
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
			var v any
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil && !strings.HasPrefix(q.what, "HEAD") {
				t.Errorf("%.80s: %v", q.what, err)
			}
		}
	}
}

// The tracker gets the filter in the request.
func TestFilter(t *testing.T) {
	f := newFleet()
	ask(newServer(f).Handler(loopback), "GET /api/v1/clients?node=e**&group=edge&type=eds&state=stale&all=true&left&limit=5&offset=7", "")
	node, err := glob.Compile("e**")
	if err != nil {
		t.Fatal(err)
	}
	want := clients.Filter{Node: &node, Group: "edge", Type: xds.Endpoint, States: []api.State{api.Stale}, All: true, Left: true, Limit: 5, Offset: 7}
	if !reflect.DeepEqual(f.asked, want) {
		t.Errorf("%+v, want %+v", f.asked, want)
	}
}

// A misspelled group is an error, not a group without clients.
func TestUnknownGroup(t *testing.T) {
	h := newServer(&fleet{changed: make(chan struct{})}).Handler(loopback)
	if w := ask(h, "GET /api/v1/clients?group=edeg", ""); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "the groups are default, edge") {
		t.Error(w.Code, w.Body)
	}
	if w := ask(h, "GET /api/v1/clients?group=edge", ""); w.Code != http.StatusOK {
		t.Error(w.Code, w.Body)
	}
}

// Lists are never null, because many programs do not expect null.
func TestEmptyLists(t *testing.T) {
	s := newServer(&fleet{changed: make(chan struct{})})
	s.Groups = func() []api.Group { return nil }
	for _, path := range []string{"/api/v1/status", "/api/v1/clients", "/api/v1/refusals", "/api/v1/groups", "/api/v1/clients/x/explain", "/api/v1/resources"} {
		if w := ask(s.Handler(loopback), "GET "+path, ""); w.Code != 200 || strings.Contains(w.Body.String(), "null") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// A panic ends only the request in which it happens.
func TestPanic(t *testing.T) {
	srv := httptest.NewServer(newServer(newFleet()).Handler(loopback))
	defer srv.Close()
	defer srv.Client().CloseIdleConnections()
	if resp, err := srv.Client().Get(srv.URL + "/api/v1/clients/x/explain?type=panic"); err == nil {
		resp.Body.Close()
		t.Errorf("answered %s", resp.Status)
	}
	resp, err := srv.Client().Get(srv.URL + "/version")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// reads returns the events that a server has written to a reader so far.
func reads(t *testing.T, url string, more ...string) (next func() string, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	return func() string {
			var block strings.Builder
			for {
				line, err := lines.ReadString('\n')
				if line == "\n" || err != nil {
					return block.String()
				}
				block.WriteString(line)
			}
		}, func() {
			cancel()
			resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
		}
}

func TestEvents(t *testing.T) {
	f := newFleet()
	srv := httptest.NewServer(newServer(f).Handler(loopback))
	defer srv.Close()
	f.happens(api.Event{Kind: "connect", Node: "a"})
	f.happens(api.Event{Kind: "ack", Node: "edge-1", Type: "CDS", Text: "two\nlines"})
	next, end := reads(t, srv.URL+"/api/v1/events?node=edge-*")
	defer end()
	if got := next(); got != ": events of Chancery\n" {
		t.Errorf("%q", got)
	}
	if got := next(); !strings.HasPrefix(got, "id: 2\nevent: ack\ndata: {\"id\":2,") || !strings.Contains(got, `two\nlines`) {
		t.Errorf("%q", got)
	}
	f.happens(api.Event{Kind: "ack", Node: "b", Missed: 3}) // counts all lost events, even those that the filter excludes
	f.happens(api.Event{Kind: "nack", Node: "edge-9"})
	for got := next(); ; got = next() {
		if got == ":\n" {
			continue
		}
		if !strings.HasPrefix(got, "id: 4\n") || !strings.Contains(got, `"missed":3`) {
			t.Errorf("%q", got)
		}
		break
	}

	again, end := reads(t, srv.URL+"/api/v1/events?new", "Last-Event-ID", "3")
	defer end()
	again()
	if got := again(); !strings.HasPrefix(got, "id: 4\n") {
		t.Errorf("%q", got)
	}
	fresh, end := reads(t, srv.URL+"/api/v1/events?new&kind=commit&kind=reject")
	defer end()
	fresh()
	f.happens(api.Event{Kind: "commit"})
	if got := fresh(); !strings.HasPrefix(got, "id: 5\n") {
		t.Errorf("%q", got)
	}
	if w := ask(newServer(f).Handler(loopback), "GET /api/v1/events", "", "Last-Event-ID", "x"); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestEventReadersAreFew(t *testing.T) {
	srv := httptest.NewServer(newServer(newFleet()).Handler(loopback))
	defer srv.Close()
	var ends []func()
	for range maxReaders {
		next, end := reads(t, srv.URL+"/api/v1/events")
		next()
		ends = append(ends, end)
	}
	resp, err := http.Get(srv.URL + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(b), "32 at most") {
		t.Errorf("%s %s", resp.Status, b)
	}
	for _, end := range ends {
		end()
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the server frees the slots when it notices the disconnections
		resp, err := http.Get(srv.URL + "/api/v1/events?stop")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(until) {
			t.Fatal("disconnected readers still count")
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
