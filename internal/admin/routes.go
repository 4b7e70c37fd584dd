package admin

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/limit/inbound"
	"github.com/chancery-xds/chancery/internal/limit/rate"
	"github.com/chancery-xds/chancery/internal/panics"
)

// A route is a method and a path of the admin API, with its handler and the role that it needs. If the role is not for
// all groups, the handler asks [Server.may] for the groups.
type route struct {
	method, path string
	needs        need
	about        string // one line for the list of routes and openapi.yaml
	out, in      any    // the answer and the request body: a value of package api, or a content type
	f            func(w http.ResponseWriter, r *http.Request) error
}

// routes returns all routes.
func (s *Server) routes() []route {
	all := []route{
		{"GET", "/api/v1/status", view, "the server, its configuration, its clients by state, and problems", api.Status{}, nil, s.paced(s.spread(s.brief(&s.making, s.status), s.statusOfAll))},
		{"GET", "/api/v1/clients", view, "clients, worst first; healthy ones only with ?all=1", api.ClientList{}, nil, s.paced(s.spread(s.big(s.clients), s.clientsOfAll))},
		{"GET", "/api/v1/clients/{node}", view, "the clients with one node ID", api.ClientList{}, nil, s.spread(s.big(s.client), s.clientOfAll)},
		{"GET", "/api/v1/clients/{node}/node", view, "the node as the client describes it, and the groups it gets", api.NodeInfo{}, nil, s.big(s.node)},
		{"GET", "/api/v1/clients/{node}/resources", view, "the resources that a client has, by name", api.ClientResources{}, nil, s.big(s.clientResources)},
		{"GET", "/api/v1/clients/{node}/resources/{type}", view, "the same for one type", api.ClientResources{}, nil, s.big(s.clientResources)},
		{"GET", "/api/v1/clients/{node}/resources/{type}/{name...}", view, "the same for one resource", api.ClientResources{}, nil, s.brief(&s.asking, s.clientResources)},
		{"GET", "/api/v1/clients/{node}/explain", view, "why a client has or lacks a resource: ?type=&name=", api.Explanation{}, nil, s.spread(s.brief(&s.asking, s.explain), s.explainOfAll)},
		{"POST", "/api/v1/clients/{node}/resync", operate, "sends a client its resources again, also refused ones: all, of a type, or one", api.ClientCommand{}, api.ClientRequest{}, s.brief(&s.asking, s.commandClients("resync"))},
		{"POST", "/api/v1/clients/{node}/disconnect", operate, "ends the streams of a client, which reconnects", api.ClientCommand{}, api.ClientRequest{}, s.brief(&s.asking, s.commandClients("disconnect"))},
		{"GET", "/api/v1/resources", view, "the resources that are served", api.ResourceList{}, nil, s.big(s.resources)},
		{"GET", "/api/v1/resources/{type}", view, "the same for one type", api.ResourceList{}, nil, s.big(s.resources)},
		{"GET", "/api/v1/resources/{type}/{name...}", view, "the same for one resource, with its body", api.ResourceList{}, nil, s.big(s.resources)},
		{"GET", "/api/v1/propagation", view, "how fast the clients accepted the last commits, and which have not", api.Propagation{}, nil, s.brief(&s.making, s.propagation)},
		{"GET", "/api/v1/diff", view, "the differences between two revisions, clients, or the files and the served configuration: ?from=&to=", api.Diff{}, nil, s.big(s.diff)},
		{"GET", "/api/v1/references/{type}/{name...}", view, "the graph of references of a resource, in both directions", api.ReferenceGraph{}, nil, s.big(s.references)},
		{"GET", "/api/v1/refusals", view, "refusals (NACKs) of all clients, grouped by error", api.RefusalList{}, nil, s.brief(&s.making, s.refusals)},
		{"GET", "/api/v1/groups", view, "groups of resources, and the clients of each", api.GroupList{}, nil, s.brief(&s.making, s.groups)},
		{"POST", "/api/v1/groups/preview", view, "the groups and the resources that a node would get", api.Preview{}, api.PreviewRequest{}, s.brief(&s.making, s.preview)},
		{"POST", "/api/v1/check", view, "the findings about resources in a text, and the clients that they would reach", api.Check{}, api.CheckRequest{}, s.brief(&s.checking, s.check)},
		{"POST", "/api/v1/impact", view, "which clients planned changes would reach, and what would be pushed", api.Impact{}, api.ImpactRequest{}, s.brief(&s.making, s.impact)},
		{"GET", "/api/v1/fleet", view, "versions of the clients, the largest responses, and certificates that expire first", api.Fleet{}, nil, s.brief(&s.making, s.fleet)},
		{"GET", "/api/v1/events", view, "events as they happen (SSE)", api.Event{}, nil, s.events},
		{"GET", "/api/v1/wait", view, "waits until all clients have accepted the configuration: ?timeout=30s", api.WaitResult{}, nil, s.spread(s.wait, s.waitOfAll)},
		{"GET", "/api/v1/wait/synced", view, "the same with the progress and a verdict, as lines (NDJSON), of all servers of the store", api.WaitLine{}, nil, s.waitSynced},
		{"GET", "/api/v1/log", view, "the log level", api.LogLevel{}, nil, s.level},
		{"PUT", "/api/v1/log", operateAll, "sets the log level until the server ends", api.LogLevel{}, api.LogLevel{}, s.setLevel},
		{"POST", "/api/v1/reload", operateAll, "loads the files now", api.Reload{}, api.ReloadRequest{}, s.reload},
		{"GET", "/api/v1/endpoints", view, "clusters with registered endpoints", api.EndpointList{}, nil, s.big(s.listEndpoints)},
		{"POST", "/api/v1/endpoints", commit, "registers endpoints, one on each line, as a stream (NDJSON)", api.EndpointLines{}, api.EndpointLine{}, s.streamEndpoints},
		{"GET", "/api/v1/endpoints/{cluster}", view, "the registered endpoints of a cluster", api.EndpointList{}, nil, s.big(s.listEndpoints)},
		{"PUT", "/api/v1/endpoints/{cluster}", commit, "replaces all registered endpoints of a cluster", api.EndpointsResult{}, api.EndpointsRequest{}, s.brief(&s.writing, s.putEndpoints)},
		{"DELETE", "/api/v1/endpoints/{cluster}", commit, "removes all registered endpoints of a cluster", api.EndpointsResult{}, nil, s.brief(&s.writing, s.removeEndpoints)},
		{"GET", "/api/v1/endpoints/{cluster}/{id}", view, "one registered endpoint", api.EndpointList{}, nil, s.big(s.listEndpoints)},
		{"PUT", "/api/v1/endpoints/{cluster}/{id}", commit, "registers an endpoint, or renews its lease", api.EndpointsResult{}, api.Endpoint{}, s.brief(&s.writing, s.putEndpoint)},
		{"DELETE", "/api/v1/endpoints/{cluster}/{id}", commit, "removes a registered endpoint", api.EndpointsResult{}, nil, s.brief(&s.writing, s.removeEndpoints)},
		{"GET", "/api/v1/revisions", view, "revisions of the store, newest first; with ?type=&name= those that changed a resource", api.History{}, nil, s.big(s.history)},
		{"POST", "/api/v1/revisions", commit, "commits a configuration to the store, one item on each line (NDJSON)", api.Commit{}, api.RevisionLine{}, s.commit},
		{"GET", "/api/v1/revisions/{rev}", view, "one revision, such as r412 or head", api.History{}, nil, s.brief(&s.asking, s.revision)},
		{"GET", "/api/v1/revisions/{rev}/changes", view, "the changes of a revision, and the clients that they reach", api.RevisionChanges{}, nil, s.big(s.revisionChanges)},
		{"GET", "/api/v1/revisions/{rev}/items", view, "the items of a revision, one on each line (NDJSON)", api.RevisionLine{}, nil, s.big(s.revisionItems)},
		{"POST", "/api/v1/revisions/{rev}/restore", commit, "commits the content of a revision again", api.Commit{}, api.NoteRequest{}, s.brief(&s.writing, s.restore)},
		{"GET", "/api/v1/blame/{type}/{name...}", view, "which revision set a resource", api.Blame{}, nil, s.brief(&s.asking, s.blame)},
		{"POST", "/api/v1/groups/{group}/freeze", commit, "freezes a group of the store at a revision", api.Freeze{}, api.FreezeRequest{}, s.brief(&s.writing, s.freeze)},
		{"POST", "/api/v1/groups/{group}/unfreeze", commit, "serves the newest revision of a group again", api.Freeze{}, api.NoteRequest{}, s.brief(&s.writing, s.unfreeze)},
		{"POST", "/api/v1/groups/{group}/resync", operate, "sends all clients of a group their resources again, spread over time", api.ClientCommand{}, api.ClientRequest{}, s.brief(&s.asking, s.commandClients("resync"))},
		{"POST", "/api/v1/groups/{group}/disconnect", operate, "ends the streams of all clients of a group, spread over time", api.ClientCommand{}, api.ClientRequest{}, s.brief(&s.asking, s.commandClients("disconnect"))},
		{"GET", "/api/v1/rollouts", view, "rollouts, newest first, and their progress", api.RolloutList{}, nil, s.brief(&s.asking, s.rollouts)},
		{"POST", "/api/v1/rollouts", commit, "starts a rollout to a revision", api.RolloutList{}, api.RolloutRequest{}, s.brief(&s.writing, s.startRollout)},
		{"GET", "/api/v1/rollouts/{id}", view, "one rollout", api.RolloutList{}, nil, s.brief(&s.asking, s.rollouts)},
		{"POST", "/api/v1/rollouts/{id}/promote", commit, "moves a rollout to its next step", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("promote"))},
		{"POST", "/api/v1/rollouts/{id}/pause", operate, "keeps a rollout at its step", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("pause"))},
		{"POST", "/api/v1/rollouts/{id}/resume", commit, "continues a paused rollout", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("resume"))},
		{"POST", "/api/v1/rollouts/{id}/abort", commit, "ends a rollout: all nodes get what they had before", api.RolloutList{}, api.NoteRequest{}, s.brief(&s.writing, s.changeRollout("abort"))},
		{"GET", "/api/v1/bundle", view, "an archive with the state of this server, for a bug report (.tar.gz)", "application/gzip", nil, s.big(s.bundle)},
		{"GET", "/api/v1/session", open, "the name and the roles of the caller", api.Session{}, nil, s.session},
		{"POST", "/api/v1/session", open, "signs in with the bearer token of the request: the answer sets a cookie", api.Session{}, nil, s.signIn},
		{"DELETE", "/api/v1/session", open, "signs out", api.Session{}, nil, s.signOut},
		{"GET", oidcPath, open, "signs a browser in by the OIDC issuer: ?to=", "text/plain", nil, s.beginOIDC},
		{"GET", oidcBackPath, open, "the issuer's answer to such a sign-in", "text/plain", nil, s.finishOIDC},
		{"GET", "/api/v1/openapi.yaml", view, "the OpenAPI description of this API", "application/yaml", nil, openAPI},
		{"GET", "/ready", view, "200 once the client of a node has accepted a complete configuration, else 503: ?node=; with ?strict=1 everything", "text/plain", nil, s.ready},
		{"GET", "/version", view, "the version of the program", api.VersionInfo{}, nil, s.version},
	}
	if s.Dump != nil {
		all = append(all, route{"GET", "/config_dump", view, "the resources of a client in the format of Envoy's /config_dump: ?node=", "application/json", nil, s.big(s.dump)})
	}
	return all
}

// Handler returns the handler for a listener with the address at.
func (s *Server) Handler(at net.Addr) http.Handler { return s.handler(at, false) }

// handler returns the handler for a listener. The argument own is true for the socket of the server's own user.
func (s *Server) handler(at net.Addr, own bool) http.Handler {
	s.prepare()
	mux := http.NewServeMux()
	methods, opened := map[string][]string{}, map[string]bool{} // the allowed methods by path; the routes for everybody by pattern
	all := s.routes()
	for _, rt := range all {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.HandleFunc(rt.method+" "+rt.path, s.guarded(rt))
		opened[rt.method+" "+rt.path] = rt.needs == open
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			refuse(w, &problem{http.StatusMethodNotAllowed, "", fmt.Sprintf("method not allowed: use %s", strings.Join(allowed, " or ")), ""})
		})
	}
	mux.HandleFunc(listOfPaths, func(w http.ResponseWriter, r *http.Request) {
		if err := s.allowed(r.Context(), view); err != nil {
			refuse(w, err)
			return
		}
		headers(w, "text/plain; charset=utf-8")
		fmt.Fprintf(w, "The admin API of Chancery %s. Commands use it, such as chancery status.\n\n", s.About.Version)
		for _, rt := range all {
			fmt.Fprintf(w, "%-5s %-52s %s\n", rt.method, rt.path, rt.about)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, missing("", "path not found", "/ lists all paths"))
	})
	inner := s.either(mux)
	if s.About.ID != "" {
		inner = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(api.ReplicaHeader, s.About.ID)
			s.either(mux).ServeHTTP(w, r)
		})
	}
	view := page{s.Page}
	return s.gate(at, own, inner, view, func(r *http.Request) bool {
		_, pattern := mux.Handler(r)
		return (pattern == "/" || pattern == listOfPaths) && view.serves(r)
	}, func(r *http.Request) bool {
		_, pattern := mux.Handler(r)
		return opened[pattern]
	})
}

// listOfPaths is the pattern of the list of all paths. A browser gets the page there.
const listOfPaths = "GET /{$}"

// prepare creates the doors.
func (s *Server) prepare() {
	s.once.Do(func() {
		s.waiters.limit(maxReaders)
		s.heavy.limit(maxHeavy)
		s.making.limit(maxMade)
		s.asking.limit(maxMade)
		s.checking.limit(1)
		s.spreading.limit(maxSpread)
		s.writing.limit(maxWriters)
		s.signingIn.limit(maxSignIns)
		s.largeCommits.limit(maxCommits)
		s.commits.limit(maxCommits)
		s.readers, s.streams = newPlaces(maxReaders, "read events"), newPlaces(maxReaders, "register endpoints")
		s.waiting, s.waitingSynced = newPlaces(maxReaders, "wait"), newPlaces(maxReaders, "wait")
		s.waiting.restless, s.waitingSynced.restless = restless, restless
		s.unpacking = make(chan struct{}, maxUnpacked)
		s.bodies = inbound.NewBudget(inbound.Bounds{
			Bytes: maxUnfinished, Stall: readTime, Streams: -1,
			Refused: func(peer net.Addr, why inbound.Reason) {
				s.log().Debug("admin API: body refused", "peer", peer, "error", string(why))
			},
			Panicked: func(_ net.Addr, p *panics.Panic) { p.Log(s.log(), "admin API body") },
		})
		s.groupJobs, s.probes = make(chan groupJob), rate.NewOwners(1000, probeRate)
	})
}

// wildcard finds the names of the variable segments of a path.
var wildcard = regexp.MustCompile(`\{(\w+)(?:\.\.\.)?\}`)

// guarded returns the handler of a route. A panic ends only the request in which it happens.
func (s *Server) guarded(rt route) http.HandlerFunc {
	names := wildcard.FindAllStringSubmatch(rt.path, -1)
	return func(w http.ResponseWriter, r *http.Request) {
		for _, m := range names {
			r.SetPathValue(m[1], api.NameOf(r.PathValue(m[1])))
		}
		var err error
		if p := panics.Do(func() {
			err = s.allowed(r.Context(), rt.needs)
			if err == nil {
				err = rt.f(w, r)
			}
		}); p != nil {
			p.Log(s.log(), "admin API "+rt.path)
			panic(http.ErrAbortHandler) // a part of the answer may be written already
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
