package admin

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/panics"
)

// A route is one thing that can be asked for.
type route struct {
	method, path string
	about        string // for who reads the list of routes
	out, in      any    // what is answered, and the body of the request: a value of adminapi, or a content type
	f            func(w http.ResponseWriter, r *http.Request) error
}

// routes are all there are.
func (s *Server) routes() []route {
	all := []route{
		{"GET", "/api/v1/status", "the server, what it serves, its clients by state, and what is wrong", api.Status{}, nil, s.spread(s.brief(&s.making, s.status), s.statusOfAll)},
		{"GET", "/api/v1/clients", "clients, the worst first; the healthy ones with ?all=1", api.ClientList{}, nil, s.spread(s.big(s.clients), s.clientsOfAll)},
		{"GET", "/api/v1/clients/{node}", "the clients of one node id", api.ClientList{}, nil, s.spread(s.big(s.client), s.clientOfAll)},
		{"GET", "/api/v1/clients/{node}/node", "what a client says of itself, and the groups that it gets for it", api.NodeInfo{}, nil, s.big(s.node)},
		{"GET", "/api/v1/clients/{node}/resources", "what a client has, by name", api.ClientResources{}, nil, s.big(s.clientResources)},
		{"GET", "/api/v1/clients/{node}/resources/{type}", "the same of one type", api.ClientResources{}, nil, s.big(s.clientResources)},
		{"GET", "/api/v1/clients/{node}/resources/{type}/{name...}", "the same of one resource", api.ClientResources{}, nil, s.brief(&s.asking, s.clientResources)},
		{"GET", "/api/v1/clients/{node}/explain", "why a client has a resource, or has it not: ?type=&name=", api.Explanation{}, nil, s.spread(s.brief(&s.asking, s.explain), s.explainOfAll)},
		{"GET", "/api/v1/resources", "what is served", api.ResourceList{}, nil, s.big(s.resources)},
		{"GET", "/api/v1/resources/{type}", "the same of one type", api.ResourceList{}, nil, s.big(s.resources)},
		{"GET", "/api/v1/resources/{type}/{name...}", "the same of one resource, with its body", api.ResourceList{}, nil, s.big(s.resources)},
		{"GET", "/api/v1/refusals", "what clients refuse, grouped by the reason", api.RefusalList{}, nil, s.brief(&s.making, s.refusals)},
		{"GET", "/api/v1/groups", "groups of resources, and the clients of each", api.GroupList{}, nil, s.brief(&s.making, s.groups)},
		{"POST", "/api/v1/impact", "which clients would see changes that are not made, and what would be pushed to them", api.Impact{}, api.ImpactRequest{}, s.brief(&s.making, s.impact)},
		{"GET", "/api/v1/events", "what happens, as it happens (SSE)", api.Event{}, nil, s.events},
		{"GET", "/api/v1/wait", "answers when all clients have accepted what is served: ?timeout=30s", api.WaitResult{}, nil, s.spread(s.wait, s.waitOfAll)},
		{"GET", "/api/v1/log", "the level of the log", api.LogLevel{}, nil, s.level},
		{"PUT", "/api/v1/log", "another level, until the server ends", api.LogLevel{}, api.LogLevel{}, s.setLevel},
		{"POST", "/api/v1/reload", "loads the files now", api.Reload{}, api.ReloadRequest{}, s.reload},
		{"GET", "/api/v1/endpoints", "clusters with registered endpoints", api.EndpointList{}, nil, s.big(s.listEndpoints)},
		{"POST", "/api/v1/endpoints", "registers endpoints, one a line, for as long as lines come (NDJSON)", api.EndpointLines{}, api.EndpointLine{}, s.streamEndpoints},
		{"GET", "/api/v1/endpoints/{cluster}", "the registered endpoints of a cluster", api.EndpointList{}, nil, s.big(s.listEndpoints)},
		{"PUT", "/api/v1/endpoints/{cluster}", "registers all endpoints of a cluster: others are removed", api.EndpointsResult{}, api.EndpointsRequest{}, s.brief(&s.writing, s.putEndpoints)},
		{"DELETE", "/api/v1/endpoints/{cluster}", "removes all endpoints of a cluster", api.EndpointsResult{}, nil, s.brief(&s.writing, s.removeEndpoints)},
		{"GET", "/api/v1/endpoints/{cluster}/{id}", "one registered endpoint", api.EndpointList{}, nil, s.big(s.listEndpoints)},
		{"PUT", "/api/v1/endpoints/{cluster}/{id}", "registers an endpoint, or renews its lease", api.EndpointsResult{}, api.Endpoint{}, s.brief(&s.writing, s.putEndpoint)},
		{"DELETE", "/api/v1/endpoints/{cluster}/{id}", "removes an endpoint", api.EndpointsResult{}, nil, s.brief(&s.writing, s.removeEndpoints)},
		{"GET", "/api/v1/revisions", "the revisions of the store, the newest first; those that changed a resource with ?type=&name=", api.History{}, nil, s.big(s.history)},
		{"POST", "/api/v1/revisions", "commits a configuration to the store, one item a line (NDJSON)", api.Commit{}, api.RevisionLine{}, s.commit},
		{"GET", "/api/v1/revisions/{rev}", "one of them, such as r412 or head", api.History{}, nil, s.brief(&s.asking, s.revision)},
		{"GET", "/api/v1/revisions/{rev}/items", "all that a revision has, one item a line (NDJSON)", api.RevisionLine{}, nil, s.big(s.revisionItems)},
		{"POST", "/api/v1/revisions/{rev}/restore", "commits the content of a revision again", api.Commit{}, api.NoteRequest{}, s.brief(&s.writing, s.restore)},
		{"GET", "/api/v1/blame/{type}/{name...}", "which revision set a resource", api.Blame{}, nil, s.brief(&s.asking, s.blame)},
		{"POST", "/api/v1/groups/{group}/freeze", "has a group of the store served as it is in a revision", api.Freeze{}, api.FreezeRequest{}, s.brief(&s.writing, s.freeze)},
		{"POST", "/api/v1/groups/{group}/unfreeze", "has the newest revision of a group served again", api.Freeze{}, api.NoteRequest{}, s.brief(&s.writing, s.unfreeze)},
		{"GET", "/api/v1/rollouts", "rollouts, the newest first, and how clients take them", api.RolloutList{}, nil, s.brief(&s.asking, s.rollouts)},
		{"POST", "/api/v1/rollouts", "begins a rollout to a revision", api.RolloutList{}, api.RolloutRequest{}, s.brief(&s.writing, s.startRollout)},
		{"GET", "/api/v1/rollouts/{id}", "one of them", api.RolloutList{}, nil, s.brief(&s.asking, s.rollouts)},
		{"POST", "/api/v1/rollouts/{id}/promote", "has it go to its next step", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("promote"))},
		{"POST", "/api/v1/rollouts/{id}/pause", "has it stay at its step", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("pause"))},
		{"POST", "/api/v1/rollouts/{id}/resume", "has it go on", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("resume"))},
		{"POST", "/api/v1/rollouts/{id}/abort", "has all served what they had before", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("abort"))},
		{"GET", "/api/v1/openapi.yaml", "this API, for programs", "application/yaml", nil, openAPI},
		{"GET", "/version", "the version of the program", api.VersionInfo{}, nil, s.version},
	}
	if s.Dump != nil {
		all = append(all, route{"GET", "/config_dump", "what a client has, in the shape of Envoy's admin interface: ?node=", "application/json", nil, s.big(s.dump)})
	}
	return all
}

// Handler returns what answers on a listener with the address.
func (s *Server) Handler(at net.Addr) http.Handler {
	s.once.Do(func() {
		s.readers, s.waiters, s.heavy = newDoors(maxReaders), newDoors(maxReaders), newDoors(maxHeavy)
		s.making, s.asking, s.spreading = newDoors(maxMade), newDoors(maxMade), newDoors(maxSpread)
		s.writing, s.streams = newDoors(maxWriters), newDoors(maxReaders)
		s.commits, s.unpacking = newDoors(maxCommits), make(door, maxUnpacked)
	})
	mux := http.NewServeMux()
	methods := map[string][]string{} // by path
	all := s.routes()
	for _, rt := range all {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.HandleFunc(rt.method+" "+rt.path, s.guarded(rt))
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			refuse(w, &problem{http.StatusMethodNotAllowed, "", fmt.Sprintf("this path takes %s", strings.Join(allowed, " and ")), ""})
		})
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		headers(w, "text/plain; charset=utf-8")
		fmt.Fprintf(w, "The admin API of Chancery %s. Commands use it, such as chancery status.\n\n", s.About.Version)
		for _, rt := range all {
			fmt.Fprintf(w, "%-5s %-52s %s\n", rt.method, rt.path, rt.about)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, missing("", "there is no such path", "/ lists the paths"))
	})
	if s.About.ID == "" {
		return s.gate(at, s.either(mux))
	}
	return s.gate(at, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.ReplicaHeader, s.About.ID)
		s.either(mux).ServeHTTP(w, r)
	}))
}

// guarded has a panic end one request only.
func (s *Server) guarded(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var err error
		if p := panics.Do(func() { err = rt.f(w, r) }); p != nil {
			p.Log(s.log(), "admin API "+rt.path)
			panic(http.ErrAbortHandler) // something may be written already
		}
		if err != nil {
			refuse(w, err)
		}
	}
}

func (s *Server) dump(w http.ResponseWriter, r *http.Request) error {
	s.Dump.ServeHTTP(w, r)
	return nil
}

func openAPI(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	headers(w, "application/yaml")
	_, _ = w.Write(api.OpenAPI)
	return nil
}
