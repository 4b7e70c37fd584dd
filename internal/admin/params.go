package admin

import "github.com/chancery-xds/chancery/internal/admin/api"

// A param is a parameter of a query.
type param struct {
	name, kind string // kind: of JSON; "array" may be given several times
	about      string
}

var (
	paramNode    = param{"node", "string", "a glob of node ids: * is any text, ? any character"}
	paramGroup   = param{"group", "string", "a group of resources"}
	paramType    = param{"type", "string", "a type of resources: a short name such as CDS, or a type URL"}
	paramGroupOf = param{"group", "string", "the group of resources whose nodes get the endpoints; default if it is not given"}
	paramLimit   = param{"limit", "integer", "the most items, up to 100000"}
	paramAll     = param{"replicas", "boolean", "of all servers of the store, and not only of the one that is asked"}
)

// paramsOf are those that the routes take, by their patterns. All others are errors: a filter
// with a slip of the pen would select all.
var paramsOf = map[string][]param{
	"GET /api/v1/status": {paramGroup, paramAll},
	"GET /api/v1/clients": {paramNode, paramGroup, paramType,
		{"state", "array", "only clients in this state"},
		{"all", "boolean", "healthy clients, too"},
		{"left", "boolean", "clients, too, that have left lately"},
		paramLimit, paramAll},
	"GET /api/v1/clients/{node}":                  {paramAll},
	"GET /api/v1/clients/{node}/resources":        {paramLimit},
	"GET /api/v1/clients/{node}/resources/{type}": {paramLimit},
	"GET /api/v1/clients/{node}/explain": {paramType,
		{"name", "string", "a resource of the type"}, paramAll},
	"GET /api/v1/resources":                  listParams,
	"GET /api/v1/resources/{type}":           listParams,
	"GET /api/v1/resources/{type}/{name...}": listParams,
	"GET /api/v1/events": {paramNode, paramType,
		{"kind", "array", "only events of this kind"},
		{"after", "integer", "those after the event with this id, as far as they are remembered; the header Last-Event-ID says the same, and wins"},
		{"new", "boolean", "only those from now on"},
		{"stop", "boolean", "those that are remembered, and then the end"}},
	"GET /api/v1/wait": {
		{"for", "string", "synced, the only condition"},
		paramNode, paramGroup, paramType,
		{"timeout", "string", "a duration such as 30s, up to 1h; 30s if it is not given"},
		{"revision", "integer", "the number of a configuration that must be served before"},
		{"stored", "string", "the revision of the store that must be served before, or a later one, such as r412"},
		{"refused", "string", "fail: a client that refuses ends it (this is the default); wait: none does"},
		paramAll},
	"GET /api/v1/endpoints":                   {paramGroup},
	"POST /api/v1/endpoints":                  {{"ttl", "string", "of the lease of all that the stream puts, such as 30s; they have none if it is not given"}},
	"GET /api/v1/endpoints/{cluster}":         {paramGroup},
	"PUT /api/v1/endpoints/{cluster}":         {paramGroupOf},
	"DELETE /api/v1/endpoints/{cluster}":      {paramGroupOf, {"release", "boolean", "what is said elsewhere of the cluster's endpoints counts again"}},
	"GET /api/v1/endpoints/{cluster}/{id}":    {paramGroupOf},
	"PUT /api/v1/endpoints/{cluster}/{id}":    {paramGroupOf},
	"DELETE /api/v1/endpoints/{cluster}/{id}": {paramGroupOf},
	"GET /api/v1/revisions":                   {paramType, {"name", "string", "a resource of the type: only revisions that changed it"}, paramLimit},
	"GET /config_dump":                        {{"node", "string", "the node id of a client"}},
}

var listParams = []param{paramGroup,
	{"subscribers", "boolean", "count the clients of each"},
	paramLimit}

// states are those of clients.
var states = []api.State{api.Nacked, api.Stale, api.Waiting, api.Sent, api.NotSent, api.Synced, api.Idle}

// kinds are those of events.
var kinds = []string{"connect", "leave", "subscribe", "send", "ack", "nack", "wait", "deny", "commit", "reject", "quarantine", "store"}
