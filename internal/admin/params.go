package admin

import "github.com/chancery-xds/chancery/internal/admin/api"

// A param is a query parameter.
type param struct {
	name, kind string // kind is the JSON type; a parameter of kind "array" may be repeated
	about      string
}

var (
	paramNode        = param{"node", "string", "a pattern of node IDs: * matches a word, ** any text"}
	paramGroup       = param{"group", "string", "a group of resources"}
	paramType        = param{"type", "string", "a type of resources: a short name such as CDS, or a type URL"}
	paramGroupOf     = param{"group", "string", "the group whose nodes get the endpoints; default if absent"}
	paramSubscribers = param{"subscribers", "boolean", "count the subscribers of each resource"}
	paramLimit       = param{"limit", "integer", "the largest number of items, up to 100000"}
	paramOffset      = param{"offset", "integer", "the number of items to skip, for the next part of a long list"}

	paramRevision = param{"revision", "integer", "the number of the configuration that must be served first"}
	paramStored   = param{"stored", "string", "the revision of the store, such as r412, that must be served first (or a later one)"}
	paramPace     = param{"pace", "string", "a duration such as 1s: the answer may come this much later, and all callers with the same question share it"}
	paramAll      = param{"replicas", "boolean", "ask all servers of the store, not only this one"}
)

// paramsOf has the parameters of each route. Any other parameter is an error: a misspelled filter
// would otherwise select everything.
var paramsOf = map[string][]param{
	"GET /api/v1/status": {paramGroup, paramAll, paramPace},
	"GET /api/v1/clients": {paramNode, paramGroup, paramType,
		{"agent", "string", "the program and version of the clients, such as envoy 1.40.0"},
		{"state", "array", "only clients in this state"},
		{"all", "boolean", "include healthy clients"},
		{"left", "boolean", "include clients that disconnected recently"},
		paramLimit, paramOffset, paramAll, paramPace},
	"GET /api/v1/clients/{node}":                  {paramAll},
	"GET /api/v1/clients/{node}/resources":        {paramLimit},
	"GET /api/v1/clients/{node}/resources/{type}": {paramLimit},
	"GET /api/v1/clients/{node}/explain": {paramType,
		{"name", "string", "a resource of the type"}, paramAll},
	"GET " + oidcPath:                        {{"to", "string", "the path of the page to show after the sign-in"}},
	"POST /api/v1/clients/{node}/resync":     {paramAll},
	"POST /api/v1/clients/{node}/disconnect": {paramAll},
	"POST /api/v1/groups/{group}/resync":     {paramAll},
	"POST /api/v1/groups/{group}/disconnect": {paramAll},
	"GET /api/v1/resources":                  listParams,
	"GET /api/v1/resources/{type}":           listParams,
	"GET /api/v1/resources/{type}/{name...}": append([]param{{"places", "boolean", "add the lines of the fields in the file"}}, listParams...),
	"GET /api/v1/diff": {
		{"from", "string", "a set of resources: served, files, rev:REVISION, client:NODE, or, with type and name, wanted:NODE, sent:NODE, accepted:NODE; served if absent"},
		{"to", "string", "the other set of resources"},
		paramType, {"name", "string", "a resource of the type"}, paramGroup, paramLimit},
	"GET /api/v1/references/{type}/{name...}": {paramGroup, paramSubscribers,
		{"limit", "integer", "the largest number of resources, up to 1000; 200 if absent"},
		{"depth", "integer", "the largest distance from the resource, up to 20; 10 if absent"}},
	"GET /api/v1/events": {paramNode, paramType,
		{"kind", "array", "only events of this kind"},
		{"after", "integer", "only events after the one with this ID, as far as the server remembers them; the header Last-Event-ID overrides it"},
		{"new", "boolean", "only future events"},
		{paramPace.name, paramPace.kind, "a duration such as 250ms: at most one write in this time, with the newest 25 events of clients; missed counts the others"},
		{"stop", "boolean", "only remembered events, then the end"}},
	"GET /api/v1/wait": {
		{"for", "string", "synced, the only condition"},
		paramNode, paramGroup, paramType,
		{"timeout", "string", "a duration such as 30s, up to 1h; 30s if absent"},
		paramRevision, paramStored,
		{"refused", "string", "fail: a client that refuses ends the wait (default); wait: it goes on"},
		paramAll},
	"GET /api/v1/wait/synced": {
		paramNode, paramGroup, paramType,
		{"timeout", "string", "a duration such as 30s, up to 24h; 30s if absent"},
		paramRevision, paramStored,
		{"min_clients", "integer", "the smallest number of connected clients; 0 if absent"},
		{"local", "boolean", "ask only this server, not the other servers of the store"}},
	"GET /api/v1/endpoints":                   {paramGroup},
	"POST /api/v1/endpoints":                  {{"ttl", "string", "duration of the lease of all endpoints of the stream, such as 30s; no lease if absent"}},
	"GET /api/v1/endpoints/{cluster}":         {paramGroup},
	"PUT /api/v1/endpoints/{cluster}":         {paramGroupOf},
	"DELETE /api/v1/endpoints/{cluster}":      {paramGroupOf, {"release", "boolean", "serve the cluster's endpoints from files or revisions again"}},
	"GET /api/v1/endpoints/{cluster}/{id}":    {paramGroupOf},
	"PUT /api/v1/endpoints/{cluster}/{id}":    {paramGroupOf},
	"DELETE /api/v1/endpoints/{cluster}/{id}": {paramGroupOf},
	"GET /api/v1/revisions":                   {paramType, {"name", "string", "a resource of the type: list only revisions that changed it"}, paramLimit},
	"GET /ready": {{"node", "string", "the node ID of a client"},
		{"strict", "boolean", "200 only while the client has accepted everything"}},
	"GET /config_dump": {{"node", "string", "the node ID of a client"}},
}

var listParams = []param{paramGroup, paramSubscribers,
	paramLimit, paramOffset}

// states has the states of clients.
var states = []api.State{api.Nacked, api.Stale, api.Waiting, api.Sent, api.NotSent, api.Synced, api.Idle}

// kinds has the kinds of events.
var kinds = []string{"connect", "leave", "subscribe", "send", "ack", "nack", "recover", "wait", "deny", "commit", "reject", "quarantine", "store", "admin"}
