package canned

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// ago returns a past time, with half a unit to spare for a slow machine.
func ago(d time.Duration) time.Time { return time.Now().Add(-d - 400*time.Millisecond) }

// hostile is a node id with control characters, which a client may send.
const hostile = "evil\x1b[2J\u202enode\nline"

// documentedNames replaces hostile texts by plain ones for the pages of the documentation.
var documentedNames = func() *strings.Replacer {
	encoded := func(s string) string { b, _ := json.Marshal(s); return strings.Trim(string(b), `"`) }
	return strings.NewReplacer(encoded(hostile), "edge-7d9f-k8", encoded(red), "", encoded("\x1b[1m"), "", encoded("no\"\x1b[2J"), "serch")
}()

// red is an error text with an escape sequence.
const red = "config/\x1b[31mx.yaml: 2"

// Server starts an admin API with fixed answers and returns its URL. With documented, hostile texts are
// replaced.
func Server(t testing.TB, documented bool) string {
	mux := http.NewServeMux()
	write := func(w io.Writer, body any) {
		b, err := json.Marshal(body)
		if err != nil {
			t.Error(err)
		}
		if documented {
			b = []byte(documentedNames.Replace(string(b)))
			b = bytes.Replace(b, []byte(`,"","3","4","5","6","7"]`), []byte(`]`), 1)
		}
		_, _ = w.Write(b)
	}
	respond := func(w http.ResponseWriter, code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		write(w, body)
	}
	respondError := func(w http.ResponseWriter, code int, message, hint string) {
		respond(w, code, api.Error{APIVersion: "v1", Kind: "Error", Message: message, Hint: hint})
	}
	answer := func(path string, body any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if made, ok := body.(func() any); ok { // computes times at each request
				respond(w, http.StatusOK, made())
				return
			}
			respond(w, http.StatusOK, body)
		})
	}
	list := func(items ...api.Client) api.ClientList {
		return api.ClientList{APIVersion: "v1", Kind: "ClientList", Total: len(items), Items: items}
	}
	answer("GET /api/v1/status", func() any { return Status() })
	mux.HandleFunc("GET /api/v1/clients", func(w http.ResponseWriter, r *http.Request) {
		all := Clients()
		l := list(all[:2]...)
		switch q := r.URL.Query(); {
		case q.Get("all") != "":
			l = list(all...)
		default:
			l.Hidden = 1201
		}
		if r.URL.Query().Get("group") == "none" {
			respondError(w, http.StatusNotFound, `no group has the name "none"`, "the groups are default, edge")
			return
		}
		respond(w, http.StatusOK, l)
	})
	mux.HandleFunc("GET /api/v1/clients/{node}", func(w http.ResponseWriter, r *http.Request) {
		var found []api.Client
		for _, c := range Clients() {
			if c.Node == r.PathValue("node") {
				found = append(found, c)
			}
		}
		if r.PathValue("node") == "elsewhere" { // may be connected to a server that does not answer
			l := list()
			l.Items, l.Replicas = []api.Client{}, []api.Replica{{ID: "cp-1", Asked: true}, {ID: "cp-2", Error: "no answer within 1s"}}
			respond(w, http.StatusOK, l)
			return
		}
		if found == nil {
			respondError(w, http.StatusNotFound, fmt.Sprintf("no client has the node id %q", r.PathValue("node")), `did you mean "edge-7d9f-x2"?`)
			return
		}
		respond(w, http.StatusOK, list(found...))
	})
	of := func(items ...api.ClientResource) any {
		return api.ClientResources{APIVersion: "v1", Kind: "ClientResourceList", Node: "edge-7d9f-x2", Total: len(items), Items: items}
	}
	cdsOf := func() []api.ClientResource {
		at := ago(6 * time.Minute)
		return []api.ClientResource{
			{Resource: api.Resource{Type: "CDS", Name: "pay", Place: "config/clusters.yaml:1:1"}, State: api.Synced, Why: "wildcard", Current: "9f3c1ab2d4e5f6a7", Sent: "9f3c1ab2d4e5f6a7", Acked: "9f3c1ab2d4e5f6a7", Nonce: "41", Since: &at},
			{Resource: api.Resource{Type: "CDS", Name: "legacy"}, State: api.Leaving, Why: "wildcard", Acked: "1122aabb44556677", WaitsFor: []api.Resource{{Type: "RDS", Name: "ingress"}}},
		}
	}
	ldsOf := api.ClientResource{Resource: api.Resource{Type: "LDS", Name: "ingress-443", Place: "config/edge/listeners.yaml:11:20"}, State: api.Nacked, Why: "wildcard", Current: "77b0e911aabbccdd", Sent: "77b0e911aabbccdd", Acked: "51aa0c3d90127fe4", Error: "StatPrefix: value length must be at least 1"}
	answer("GET /api/v1/clients/{node}/resources", func() any { return of(append(cdsOf(), ldsOf)...) })
	answer("GET /api/v1/clients/{node}/resources/CDS", func() any { return of(cdsOf()...) })
	mux.HandleFunc("GET /api/v1/clients/{node}/explain", func(w http.ResponseWriter, r *http.Request) {
		e := api.Explanation{APIVersion: "v1", Kind: "Explanation", Node: r.PathValue("node"), Type: r.URL.Query().Get("type"), Name: r.URL.Query().Get("name"), Links: []api.Link{
			{Name: "loaded", OK: true, Known: true, Text: `the files are loaded (revision 412)`},
			{Name: "defined", OK: true, Known: true, Text: `LDS "ingress-443" is of group "edge"`, Place: "config/edge/listeners.yaml:1:1"},
			{Name: "valid", Known: true, Text: `filter_chains[0].filters[0].typed_config.stat_prefix: must not be empty`, Place: "config/edge/listeners.yaml:11:20"},
			{Name: "selected", OK: true, Known: true, Text: `the node gets group edge: id is like "edge-*"`, Place: "config/edge/group.yaml:1:8"},
			{Name: "allowed", OK: true, Known: true, Text: `no access rule hides it from the client`},
			{Name: "connected", OK: true, Known: true, Text: `envoy 1.40.0, connected 6 m ago from 10.1.2.3:51234`},
			{Name: "subscribed", OK: true, Known: true, Text: `the client subscribes to all LDS`},
			{Name: "sent", OK: true, Known: true, Text: `version 77b0e911aabbccdd, nonce 41`},
			{Name: "accepted", Known: true, Text: `the client refused it 6 m ago: Error adding/updating listener(s) ingress-443: StatPrefix: value length must be at least 1 characters`, Place: "config/edge/listeners.yaml:11:20"},
			{Name: "never", Known: false},
		}, Broken: "valid", Advice: "correct config/edge/listeners.yaml:11:20"}
		switch {
		case e.Node == "pay-5c-01":
			e.Links, e.Broken, e.Advice = e.Links[:2], "", ""
		case e.Name == "none":
			respondError(w, http.StatusNotFound, `no file has RDS "none"`, `did you mean "one"?`)
			return
		}
		respond(w, http.StatusOK, e)
	})
	cds := []api.ServedResource{
		{Resource: api.Resource{Type: "CDS", Name: "pay", Place: "config/clusters.yaml:1:1"}, Group: "default", Version: "9f3c1ab2d4e5f6a7", Bytes: 1229, Clients: &api.Subscribers{Total: 1204, By: map[api.State]int{api.Synced: 1203}}},
		{Resource: api.Resource{Type: "CDS", Name: "search", Place: "config/clusters.yaml:9:1"}, Group: "edge", Version: "77b0e911aabbccdd", Bytes: 300},
	}
	served := func(items ...api.ServedResource) api.ResourceList {
		return api.ResourceList{APIVersion: "v1", Kind: "ResourceList", Total: len(items), Items: items}
	}
	more := served(cds...)
	more.Total = 1250
	answer("GET /api/v1/resources/CDS", more)
	answer("GET /api/v1/resources", served(cds...))
	answer("GET /api/v1/resources/RDS", served())
	for _, r := range [][]string{{"LDS/in", "RDS/r", "RDS/r2"}, {"RDS/r", "CDS/pay", "CDS/no\"\x1b[2J"}, {"RDS/r2", "CDS/pay"}, {"EDS/pay"}} {
		typ, name, _ := strings.Cut(r[0], "/")
		one := api.ServedResource{Resource: api.Resource{Type: typ, Name: name, Place: name + ".yaml:1:1"}, Group: "default"}
		for _, ref := range r[1:] {
			typ, name, _ := strings.Cut(ref, "/")
			one.Refs = append(one.Refs, api.Resource{Type: typ, Name: name})
		}
		answer("GET /api/v1/resources/"+r[0], served(one, one))
	}
	pay := cds[0]
	pay.Body = json.RawMessage(`{"name":"pay","connect_timeout":"1s","lb_policy":"ROUND_ROBIN","note":"yes"}`)
	pay.Refs = []api.Resource{{Type: "EDS", Name: "pay"}}
	answer("GET /api/v1/resources/CDS/pay", served(pay))
	mux.HandleFunc("GET /api/v1/resources/{type}/{name}", func(w http.ResponseWriter, r *http.Request) {
		respondError(w, http.StatusNotFound, fmt.Sprintf("no file has %s %q", r.PathValue("type"), r.PathValue("name")), `did you mean "pay"?`)
	})
	mux.HandleFunc("POST /api/v1/reload", func(w http.ResponseWriter, r *http.Request) {
		var asked api.ReloadRequest
		if json.NewDecoder(r.Body).Decode(&asked) != nil || r.Header.Get("Content-Type") != "application/json" {
			respondError(w, http.StatusBadRequest, "not a request", "")
			return
		}
		res := api.Reload{APIVersion: "v1", Kind: "Reload", Files: 23, Resources: 118, Set: 1, Removed: 2, Held: 3}
		if asked.AllowMassDelete {
			res = api.Reload{APIVersion: "v1", Kind: "Reload", Errors: []string{"config/a.yaml:1:1: wrong\x1b[2J"}}
		}
		respond(w, http.StatusOK, res)
	})
	mux.HandleFunc("POST /api/v1/clients/{node}/{command}", func(w http.ResponseWriter, r *http.Request) {
		var in api.ClientRequest
		switch {
		case json.NewDecoder(r.Body).Decode(&in) != nil || r.URL.RawQuery != "replicas=1" && r.URL.RawQuery != "":
			respondError(w, http.StatusBadRequest, "not a request", "")
			return
		case r.PathValue("node") == "denied":
			respondError(w, http.StatusForbidden, r.PathValue("command")+" needs a unix socket, a token or a client certificate", "")
			return
		case in.Name == "none":
			respondError(w, http.StatusNotFound, "nothing to send", "chancery explain NODE TYPE/NAME shows why")
			return
		}
		done := api.ClientCommand{APIVersion: "v1", Kind: "ClientCommand", Command: r.PathValue("command"), Node: r.PathValue("node"), Streams: 1}
		if done.Command == "resync" {
			done.Types = []api.SentType{{Type: "CDS", Resources: 31}, {Type: "LDS", Resources: 1, Released: 1}}
		}
		if in.Type != "" {
			done.Types = []api.SentType{{Type: in.Type + "\x1b[2J", Resources: 1}}
		}
		if r.URL.RawQuery != "" && done.Node == "edge-2" {
			done.Replicas = []api.Replica{{ID: "cp-1", Asked: true}, {ID: "cp-2", Error: "no answer within 1s"}}
		}
		respond(w, http.StatusOK, done)
	})
	mux.HandleFunc("POST /api/v1/groups/{group}/{command}", func(w http.ResponseWriter, r *http.Request) {
		done := api.ClientCommand{APIVersion: "v1", Kind: "ClientCommand", Command: r.PathValue("command"), Group: r.PathValue("group"), Streams: 173, Over: "30s"}
		if r.URL.RawQuery != "" && done.Group == "spread" {
			respondError(w, http.StatusServiceUnavailable, "resync of group spread: clients not reached: server cp-2: no answer within 1s; reached: 173 streams of the other servers", "run the command with --local, and with --admin for each of these servers")
			return
		}
		respond(w, http.StatusOK, done)
	})
	answer("GET /api/v1/refusals", func() any {
		return api.RefusalList{APIVersion: "v1", Kind: "RefusalList", Items: Status().Refusals}
	})
	answer("GET /api/v1/groups", func() any {
		return api.GroupList{APIVersion: "v1", Kind: "GroupList", Items: []api.Group{
			{Name: "default", Resources: 100, Clients: api.Counts{Connected: 1031, By: map[api.State]int{api.Synced: 1030, api.Stale: 1}}},
			{Name: "edge", Resources: 18, Clients: api.Counts{Connected: 173, By: map[api.State]int{api.Synced: 171, api.Nacked: 2}}, Place: "config/edge/group.yaml:1:8"},
			{Name: "pay", Rejected: &Status().RejectedGroups[0]},
		}}
	})
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": hello\n\n")
		for _, e := range Events() {
			b, _ := json.Marshal(e)
			if documented {
				b = []byte(documentedNames.Replace(string(b)))
			}
			fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Kind, b)
		}
	})
	answer("GET /version", api.VersionInfo{APIVersion: "v1", Kind: "Version", Version: "v0.0.1", Server: Status().Server})
	answer("POST /api/v1/impact", api.Impact{
		APIVersion: "v1", Kind: "Impact", Connected: 1204, Clients: 1204, Groups: []api.GroupImpact{{Group: "default", Clients: 1204}},
		Types: []api.TypeImpact{{Type: "CDS", Pushes: 1204, Bytes: 120_000}, {Type: "LDS", Pushes: 173, Bytes: 60_000}}, Bytes: 180_000,
	})
	mux.HandleFunc("GET /api/v1/wait/synced", func(w http.ResponseWriter, r *http.Request) {
		res := api.WaitResult{APIVersion: "v1", Kind: "WaitResult", Class: api.WaitFailed, Clients: api.Counts{Connected: 1204, By: map[api.State]int{api.Synced: 1204}}}
		switch r.URL.Query().Get("group") {
		case "edge":
			res.Refusals = Status().Refusals
			res.Clients = api.Counts{Connected: 173, By: map[api.State]int{api.Synced: 171, api.Nacked: 2}}
			res.Why, res.Hint = "not synced: "+res.Clients.Text(), "chancery explain NODE shows details"
		case "pay":
			res.Rejected, res.Why, res.Hint = &Status().RejectedGroups[0], "not synced: the load of group pay 6m ago was rejected: "+red, "chancery status shows details"
		case "store":
			write(w, api.WaitLine{Note: "rollout r2-1 of group store to r2 is under way " + hostile})
			write(w, api.WaitLine{Progress: &api.WaitProgress{Revision: "r2", Acked: 7, Waiting: 3, Serving: 1, Servers: 2}})
			fallthrough
		case "slow":
			res.Class, res.Pending = api.WaitTimeout, []string{"pay-5c-01", hostile}
			res.Clients = api.Counts{Connected: 10, By: map[api.State]int{api.Synced: 7, api.Sent: 3}}
			res.Why = "not synced after " + r.URL.Query().Get("timeout") + ": " + res.Clients.Text() + "; not yet: " + strings.Join(res.Pending, ", ") + ", 1 more"
		case "none":
			res.Class, res.Done, res.Clients, res.Hint = api.WaitOK, true, api.Counts{}, "no client was there"
		case "new":
			res.Class = "of the future"
		default:
			res.Class, res.Done = api.WaitOK, true
		}
		write(w, api.WaitLine{Result: &res})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// Status returns the status of the canned server.
func Status() api.Status {
	at := ago(6 * time.Minute)
	return api.Status{
		APIVersion: "v1", Kind: "Status", Healthy: new(false),
		Server: api.Server{Version: "v0.0.1", Replica: "cp-1 chancery/v0.0.1", Since: ago(74 * time.Hour), XDS: "127.0.0.1:18000", Dir: "config", Path: "/etc/chancery/config", Host: "cp-1", PID: 4711},
		Config: api.Config{Revision: 412, At: &at, Files: 23, Resources: 118, Groups: 3, Dangling: 1, Doubts: 2, Warnings: []api.Warning{
			{Code: "XDS0201", Text: `config/routes.yaml:9:1: RDS "ingress" refers to CDS "serch", which no file has (did you mean "search"?)`},
			{Code: "XDS0601", Text: `config/tls.yaml:1:1: SDS "web": the certificate in tls_certificate expires at 2026-12-01T00:00:00Z (clients refuse an expired certificate)`},
		}, Rejected: &api.Rejected{Since: ago(2 * time.Hour), Errors: []string{
			`config/clusters.yaml:3:1: unknown field "nam" in Cluster`, red, "3", "4", "5", "6", "7",
		}}},
		Clients: api.Counts{Connected: 1204, By: map[api.State]int{api.Synced: 1201, api.Nacked: 2, api.Stale: 1}},
		Refusals: []api.Refusal{
			{Type: "LDS", Error: "Error adding/updating listener(s) ingress-443: StatPrefix: value length must be at least 1", Clients: 2, Nodes: []string{"edge-7d9f-x2", hostile}, Since: at, Partly: true,
				Resources: []api.Resource{{Type: "LDS", Name: "ingress-443", Place: "config/edge/listeners.yaml:11:20", Reason: "stat_prefix: must be at least 1 character"}}},
			{Type: "CDS", Error: "Invalid duration: Expected positive duration", Clients: 1, Nodes: []string{"edge-7d9f-x2"}, Since: ago(49 * time.Hour)},
			{Type: "EDS", Error: "port 99999", Clients: 3, Since: at, Resources: []api.Resource{{Type: "EDS", Name: "a", Place: "e.yaml:1:1"}, {Type: "EDS", Name: "b", Place: "e.yaml:9:1"}}},
		},
		RejectedGroups: []api.Rejected{{Group: "pay", Since: at, Errors: []string{`config/pay/clusters.yaml:5:1: group pay: unknown field "nam" in Cluster`}}},
		Troubles:       []api.Trouble{{Code: "no-eds", Node: "pay-5c-01", Type: "EDS", Since: ago(4 * time.Minute), Text: "has clusters of EDS and asks for no endpoints"}},
		TurnedAway: []api.TurnedAway{
			{Kind: "denied", Node: "edge-9", From: "10.1.2.9", Text: `the identity mtls DNS "web-1" may not be node "edge-9": no rule matches it`, Times: 12, Since: at, At: ago(4 * time.Second)},
			{Kind: "handshake", From: "10.1.2.7", Text: "expired: tls: failed to verify certificate: x509: certificate has expired or is not yet valid", Times: 3, Since: at, At: ago(time.Minute)},
		},
	}
}

// Clients returns the clients of the canned server.
func Clients() []api.Client {
	typ := func(short, name string, s api.State) api.TypeStatus {
		m := &api.Message{At: ago(4 * time.Minute), Version: "9f3c1ab2d4e5f6a7", Nonce: "41", Resources: 12, Bytes: 3000}
		return api.TypeStatus{Type: short, URL: "type.googleapis.com/" + name, Stream: 41, State: s, Wildcard: true, Sent: m, Acked: m}
	}
	types := func(lds api.State) []api.TypeStatus {
		return []api.TypeStatus{
			typ("CDS", "envoy.config.cluster.v3.Cluster", api.Synced),
			typ("LDS", "envoy.config.listener.v3.Listener", lds),
		}
	}
	sick := api.Client{
		Node: "edge-7d9f-x2", Cluster: "edge", Agent: "envoy 1.40.0", Peer: "10.1.2.3:51234", Identity: "spiffe://x/edge", Groups: []string{"edge", "default"}, Since: ago(74 * time.Hour),
		State: api.Nacked, Streams: []api.Stream{{ID: 41, API: "ADS", Variant: "delta", Since: ago(74 * time.Hour)}}, Types: types(api.Nacked),
		Troubles: []api.Trouble{{Code: "flaps", Since: ago(time.Minute), Text: "connected 6 times in 60 s"}},
	}
	sick.Types[1].Nacked = &api.NackedStatus{Since: ago(6 * time.Minute), At: ago(time.Minute), Nonce: "41", Version: "77b0e911aabbccdd", Error: "Error adding/updating listener(s) ingress-443: \x1b[1mStatPrefix", Resources: Status().Refusals[0].Resources}
	odd := api.Client{Node: hostile, Groups: []string{"default"}, Since: ago(18 * time.Minute), State: api.Stale, Types: types(api.Stale)[1:]}
	eds := typ("EDS", "envoy.config.endpoint.v3.ClusterLoadAssignment", api.Waiting)
	eds.Wildcard, eds.Names, eds.Sent, eds.Acked = false, 3, nil, nil
	well := api.Client{Node: "pay-5c-01", Agent: "grpc-go 1.85.0", Groups: []string{"default"}, Since: ago(18 * time.Minute), State: api.Waiting, Types: append(types(api.Synced), eds)}
	gone := api.Client{Node: "gone-1", Groups: []string{"default"}, Since: ago(time.Hour), Left: &api.Left{At: ago(3 * time.Second), Code: "Canceled", Why: "the client closed the stream"}, State: api.Idle}
	return []api.Client{sick, odd, well, gone}
}

// Events returns the events of the canned server.
func Events() []api.Event {
	at := time.Date(2026, 11, 24, 12, 1, 7, 870_000_000, time.UTC)
	return []api.Event{
		{ID: 1, At: at, Kind: "connect", Node: "edge-7d9f-x2", Peer: "10.1.2.3:51234", Stream: 41, Text: "ADS delta envoy 1.40.0"},
		{ID: 2, At: at, Kind: "commit", Version: "413", Count: 1, Removed: 1},
		{ID: 3, At: at, Kind: "send", Node: "edge-7d9f-x2", Type: "RDS", Version: "77b0e911aabbccdd", Nonce: "42", Resources: []api.Resource{{Type: "RDS", Name: "ingress-v2"}}, Count: 1},
		{ID: 4, At: at, Kind: "nack", Node: "edge-7d9f-x2", Type: "RDS", Version: "77b0e911aabbccdd", Nonce: "42", Took: "7ms", Text: "Only a single wildcard domain is permitted\nin route ingress-v2", Resources: []api.Resource{{Type: "RDS", Name: "ingress-v2", Place: "config/routes.yaml:9:1"}}, Count: 1},
		{ID: 9, At: at, Kind: "ack", Node: hostile, Type: "EDS", Version: "1", Nonce: "7", Count: 1000, Removed: 2, Missed: 4},
	}
}

// Circle starts a server with two resources that refer to each other.
func Circle(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, other := "a", "b"
		if strings.HasSuffix(r.URL.Path, "/b") {
			name, other = other, name
		}
		_ = json.NewEncoder(w).Encode(api.ResourceList{Kind: "ResourceList", Items: []api.ServedResource{
			{Resource: api.Resource{Type: "RDS", Name: name}, Refs: []api.Resource{{Type: "RDS", Name: other}}},
		}})
	}))
	t.Cleanup(s.Close)
	return s.URL
}
