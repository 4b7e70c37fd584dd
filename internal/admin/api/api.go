// Package api is the vocabulary of the admin API: what the daemon answers, and the client
// by which commands ask. Its JSON is documented in docs/admin-api.md and openapi.yaml.
package api

import (
	"encoding/json"
	"time"
)

// Version is that of the API: the first segment of its paths after /api/, and of each answer.
const Version = "v1"

// ReplicaHeader is the header of answers that says which of the servers of a store has made it: its [Server.ID].
const ReplicaHeader = "Chancery-Replica"

// A State says how a client stands with a type, or with one resource.
type State string

// States, the worst first: that of a client is the worst of its types.
const (
	Nacked  State = "NACKED"   // the client refused the newest response
	Stale   State = "STALE"    // it has not answered for 30 s or more
	Waiting State = "WAITING"  // what is to be sent waits for another type, or for content
	Sent    State = "SENT"     // sent, and not answered yet
	NotSent State = "NOT_SENT" // subscribed, and nothing was sent yet
	Absent  State = "ABSENT"   // one resource: it does not exist, and the client was told so
	Leaving State = "LEAVING"  // one resource: removed, and kept until nothing refers to it
	Synced  State = "SYNCED"   // the client has accepted what there is
	Idle    State = "IDLE"     // it subscribes to nothing
)

// Status is the answer of /api/v1/status.
type Status struct {
	APIVersion string    `json:"apiVersion"` // Version
	Kind       string    `json:"kind"`       // "Status"
	Server     Server    `json:"server"`
	Config     Config    `json:"config"`
	Clients    Counts    `json:"clients"`
	Refusals   []Refusal `json:"refusals"` // grouped, the most clients first; at most 100
	Troubles   []Trouble `json:"troubles"` // at most 100

	RejectedGroups []Rejected   `json:"rejected_groups,omitempty"` // loads of groups that are alone with their errors; at most 100
	TurnedAway     []TurnedAway `json:"turned_away"`               // within the last ten minutes, the last first; at most 100

	Replicas []Replica `json:"replicas,omitempty"` // asked for with ?replicas=1: all servers of the store, whose clients and refusals are those above; none: there is no store
	Unsure   string    `json:"unsure,omitempty"`   // why there may be others; "": there are none
}

// A Replica is one of the servers of a store, as the one that is asked finds it.
type Replica struct {
	ID            string     `json:"id"`                // of the process
	Address       string     `json:"address,omitempty"` // of its admin API, as it has announced it
	Host          string     `json:"host,omitempty"`
	Version       string     `json:"version,omitempty"`
	Since         time.Time  `json:"since"`                    // when it started
	Asked         bool       `json:"asked,omitempty"`          // it is the one that is asked
	Revision      string     `json:"revision,omitempty"`       // that it serves; of one that does not answer: that it served lately
	StoreRevision string     `json:"store_revision,omitempty"` // the same as revision, by the name that a WaitResult has for it
	Served        bool       `json:"served,omitempty"`         // of /api/v1/wait: it serves what is waited for
	Clients       *Counts    `json:"clients,omitempty"`        // of its own; nil: it does not answer
	Rejected      *Rejected  `json:"rejected,omitempty"`       // the newest revision, if it is not served there
	Trouble       string     `json:"trouble,omitempty"`        // why it does not know the newest revision, or does not serve it
	Unwritten     string     `json:"unwritten,omitempty"`      // why it does not commit what its directory says
	Error         string     `json:"error,omitempty"`          // why it does not answer; "": it does
	Seen          *time.Time `json:"seen,omitempty"`           // when one that does not answer did so last; nil: never to the one that is asked
}

// A Server is the process.
type Server struct {
	Version string    `json:"version"`
	Replica string    `json:"replica"` // the identifier in responses
	Since   time.Time `json:"since"`
	XDS     string    `json:"xds"`            // addresses
	Dir     string    `json:"dir"`            // as it was given
	Path    string    `json:"path,omitempty"` // of the directory that is served, or written to the store, absolute; "": not known
	Host    string    `json:"host,omitempty"` // name of the machine
	PID     int       `json:"pid,omitempty"`
	ID      string    `json:"id,omitempty"` // of this process, among the servers of its store
}

// A Config is what is served, and how the last load went.
type Config struct {
	Revision  uint64     `json:"revision"` // of the store: counts commits
	At        *time.Time `json:"at,omitempty"`
	Files     int        `json:"files"`
	Resources int        `json:"resources"`
	Groups    int        `json:"groups"`
	Rejected  *Rejected  `json:"rejected,omitempty"` // nil: the last load was taken
	Dangling  int        `json:"dangling"`           // references to what is not there
	Doubts    int        `json:"doubts"`             // warnings, those of such references included
	Warnings  []Warning  `json:"warnings,omitempty"` // the first of them
	Upstream  *Upstream  `json:"upstream,omitempty"` // of a relay, which has no files
	Store     *Store     `json:"store,omitempty"`    // of a server of a store, which has no files
}

// A Store is where a server has revisions from.
type Store struct {
	URL      string     `json:"url"`
	Revision string     `json:"revision,omitempty"` // that is served, such as r412; "": none, or one that is from disk, where nobody has noted which
	Author   string     `json:"author,omitempty"`   // of it
	Message  string     `json:"message,omitempty"`
	At       *time.Time `json:"at,omitempty"`        // when it was committed, by the clock of who did; not known of one from disk
	LastGood *time.Time `json:"last_good,omitempty"` // of when what is served is, if that is from disk
	Error    string     `json:"error,omitempty"`     // why the newest cannot be read, or is not served
	Since    *time.Time `json:"since,omitempty"`     // of the error
	Holds    []Hold     `json:"holds,omitempty"`     // groups that are served of another revision

	RolledBack []RolledBack `json:"rolled_back,omitempty"` // rollouts that servers have taken back, until something is committed to the group

	Writer *StoreWriter `json:"writer,omitempty"` // of a server with a directory for the store
}

// A RolledBack is a rollout that was taken back since a client refused it, or a server could not serve it: all nodes are served
// what they had before.
type RolledBack struct {
	Rollout  string    `json:"rollout"` // its ID
	Groups   []string  `json:"groups"`
	Revision string    `json:"revision"` // that it went to, such as r412
	Why      string    `json:"why"`
	Since    time.Time `json:"since"` // by the clock of who decided it
}

// A StoreWriter is a server that commits to its store what a directory says, while no other one does.
type StoreWriter struct {
	Dir    string    `json:"dir"`
	Writes bool      `json:"writes"` // false: another server does
	Since  time.Time `json:"since"`
	Server string    `json:"server,omitempty"` // that does, if it is another one and is known
	Error  string    `json:"error,omitempty"`  // why what the directory says is not committed
}

// A Hold says that a group is served as it is in another revision than the newest: it is frozen.
type Hold struct {
	Group    string    `json:"group"`
	Revision string    `json:"revision"`          // such as r411
	Author   string    `json:"author,omitempty"`  // who froze it
	Message  string    `json:"message,omitempty"` // why
	At       time.Time `json:"at"`                // when
	Next     string    `json:"next,omitempty"`    // the revision that a rollout goes to
	Rollout  string    `json:"rollout,omitempty"` // its ID
}

// An Upstream is the xDS server that a relay is a client of.
type Upstream struct {
	URL       string     `json:"url"`
	Connected bool       `json:"connected"`       // it has answered on a stream that is open
	Idle      bool       `json:"idle,omitempty"`  // there is no connection, for nobody asks for anything
	Since     *time.Time `json:"since,omitempty"` // of that stream, or when the last one ended
	Error     string     `json:"error,omitempty"` // how the last stream ended, or why there was none
	ErrorAt   *time.Time `json:"error_at,omitempty"`
	Refused   int        `json:"refused"` // resources that are refused: the last good is served, or with --pass-refusals what some clients take
}

// A Warning is what is doubtful in what is served.
type Warning struct {
	Code string `json:"code"` // chancery check --explain explains it
	Text string `json:"text"` // with its place
}

// Rejected is a load that was not taken.
type Rejected struct {
	Group  string    `json:"group,omitempty"` // that is alone with its errors; "": it is the whole load
	Since  time.Time `json:"since"`
	Errors []string  `json:"errors"`
}

// Counts of clients by their state.
type Counts struct {
	Connected int           `json:"connected"`
	By        map[State]int `json:"by"`
}

// A ClientList is the answer of /api/v1/clients, and of /api/v1/clients/{node}: there of all
// clients of that node id, those included that have left lately.
type ClientList struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // "ClientList"
	Total      int      `json:"total"`
	Hidden     int      `json:"hidden"` // healthy ones, left out unless asked for
	Items      []Client `json:"items"`

	Replicas []Replica `json:"replicas,omitempty"` // asked for with ?replicas=1: all servers of the store, whose clients these are
	Unsure   string    `json:"unsure,omitempty"`   // why there may be others; "": there are none
}

// A Client is a node at an address: all its streams.
type Client struct {
	Node     string       `json:"node"`
	Path     string       `json:"path,omitempty"` // of a client without a node id: what paths have in its place, such as "stream:41"
	Cluster  string       `json:"cluster,omitempty"`
	Agent    string       `json:"agent,omitempty"` // "envoy 1.40.0"
	Peer     string       `json:"peer,omitempty"`
	Identity string       `json:"identity,omitempty"` // that the connection proves; "": none
	Groups   []string     `json:"groups"`
	Since    time.Time    `json:"since"`
	Left     *Left        `json:"left,omitempty"` // nil: it is connected
	State    State        `json:"state"`
	Streams  []Stream     `json:"streams"`
	Types    []TypeStatus `json:"types"` // in push order
	Troubles []Trouble    `json:"troubles,omitempty"`
	Replica  string       `json:"replica,omitempty"` // the server that it is a client of; asked for with ?replicas=1
}

// Left says when and why a client went.
type Left struct {
	At   time.Time `json:"at"`
	Code string    `json:"code"`
	Why  string    `json:"why"`
}

// A Stream is one of a client's.
type Stream struct {
	ID      uint64    `json:"id"`
	API     string    `json:"api"` // "ADS", or the short name of the one type
	Variant string    `json:"variant"`
	Since   time.Time `json:"since"`
}

// A TypeStatus is how a client stands with one type.
type TypeStatus struct {
	Type     string        `json:"type"` // short name: "CDS"
	URL      string        `json:"url"`
	Stream   uint64        `json:"stream"`
	State    State         `json:"state"`
	Wildcard bool          `json:"wildcard"`
	Names    int           `json:"names"` // subscribed by name
	Sent     *Message      `json:"sent,omitempty"`
	Acked    *Message      `json:"acked,omitempty"`
	Nacked   *NackedStatus `json:"nacked,omitempty"`    // while it stands
	WaitsFor []Resource    `json:"waits_for,omitempty"` // WAITING: some of what the client has to accept first
}

// A Message is a response that was sent, or accepted, last.
type Message struct {
	At        time.Time `json:"at"`
	Version   string    `json:"version"`
	Nonce     string    `json:"nonce"`
	Resources int       `json:"resources"`
	Removed   int       `json:"removed"`
	Bytes     int       `json:"bytes,omitempty"`
}

// A NackedStatus is a refusal that stands.
type NackedStatus struct {
	Since     time.Time  `json:"since"`
	At        time.Time  `json:"at"` // of the last
	Nonce     string     `json:"nonce"`
	Version   string     `json:"version"`
	Error     string     `json:"error"` // without secrets
	Resources []Resource `json:"resources"`
	Kept      []Kept     `json:"kept,omitempty"` // in quarantine: the rest of the type goes on
}

// A Kept is a resource of which a client keeps what it had, since it has refused what there is.
type Kept struct {
	Name    string `json:"name"`
	Refused string `json:"refused"`        // the version
	Kept    string `json:"kept,omitempty"` // the version that it accepted last; "": it has none
	Why     string `json:"why"`            // how it was found out that it is at fault, or else why it is kept back
}

// A Resource names one, and where it stands.
type Resource struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Place  string `json:"place,omitempty"`  // "clusters.yaml:12:3"
	Reason string `json:"reason,omitempty"` // what is wrong with it, if that is known
}

// A Refusal is one reason for which clients refuse a type: of the whole fleet.
type Refusal struct {
	Type      string     `json:"type"`
	Error     string     `json:"error"`
	Clients   int        `json:"clients"`
	Nodes     []string   `json:"nodes"` // at most 10
	Since     time.Time  `json:"since"`
	Resources []Resource `json:"resources"`
	Partly    bool       `json:"partly"` // the response had other resources, which the client may have applied
}

// A RefusalList is the answer of /api/v1/refusals.
type RefusalList struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // "RefusalList"
	Items      []Refusal `json:"items"`
}

// A GroupList is the answer of /api/v1/groups.
type GroupList struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"` // "GroupList"
	Items      []Group `json:"items"`
}

// A Group of resources, and the clients that get it.
type Group struct {
	Name      string `json:"name"`
	Resources int    `json:"resources"`
	Clients   Counts `json:"clients"`
	Place     string `json:"place,omitempty"` // of its group.yaml

	Rejected *Rejected `json:"rejected,omitempty"` // nil: it is not alone with errors: it was loaded with all others, or the whole load was rejected
}

// A Trouble is what looks wrong though no client says so.
type Trouble struct {
	Code  string    `json:"code"` // "no-eds", "unanswered", "same-node", "near-limit", "flaps"
	Node  string    `json:"node,omitempty"`
	Type  string    `json:"type,omitempty"`
	Since time.Time `json:"since"`
	Text  string    `json:"text"`
}

// TurnedAway is who was not let in: such a client never was one, and is in no list.
type TurnedAway struct {
	Kind  string    `json:"kind"` // "denied": it may not be the node that it says; "handshake": of TLS, which failed
	Node  string    `json:"node,omitempty"`
	From  string    `json:"from"` // its address, without a port
	Text  string    `json:"text"` // why
	Times int       `json:"times"`
	Since time.Time `json:"since"`
	At    time.Time `json:"at"` // the last time
}

// A ClientResources is the answer of /api/v1/clients/{node}/resources: what a client has of
// each type, by name.
type ClientResources struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"` // "ClientResourceList"
	Node       string           `json:"node"`
	Total      int              `json:"total"`
	Items      []ClientResource `json:"items"` // at most the limit asked for
}

// A ClientResource is how a client stands with one resource.
type ClientResource struct {
	Resource
	State    State      `json:"state"`
	Why      string     `json:"why"` // "name", "wildcard", "alias", "collection", or "" if it is not subscribed
	Current  string     `json:"current,omitempty"`
	Sent     string     `json:"sent,omitempty"`  // version last sent
	Acked    string     `json:"acked,omitempty"` // version that it has for certain
	Nonce    string     `json:"nonce,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	WaitsFor []Resource `json:"waits_for,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// A ResourceList is the answer of /api/v1/resources: what is served.
type ResourceList struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"` // "ResourceList"
	Total      int              `json:"total"`
	Items      []ServedResource `json:"items"`
}

// A ServedResource is one that some node may get.
type ServedResource struct {
	Resource
	Group   string          `json:"group"`
	Version string          `json:"version"`
	Bytes   int             `json:"bytes"`
	TTL     string          `json:"ttl,omitempty"`
	Clients *Subscribers    `json:"clients,omitempty"` // asked for with ?subscribers=1
	Body    json.RawMessage `json:"body,omitempty"`    // of one; secrets are left out
	Refs    []Resource      `json:"refs,omitempty"`    // of one: what it refers to, whether or not that exists
}

// Subscribers counts the clients of a resource by how they stand with it.
type Subscribers struct {
	Total int           `json:"total"`
	By    map[State]int `json:"by"`
}

// An Explanation is the answer of /api/v1/clients/{node}/explain: the chain from the file to
// the client, up to the broken link.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Explanation"
	Node       string `json:"node"`
	Type       string `json:"type,omitempty"`
	Name       string `json:"name,omitempty"`
	Links      []Link `json:"links"`
	Broken     string `json:"broken,omitempty"` // the name of the broken link; "": none
	Advice     string `json:"advice,omitempty"`

	Clients int        `json:"clients"`        // that have the node id and are connected
	Last    *time.Time `json:"last,omitempty"` // if none is: when the last one left, or was refused; absent: none is remembered

	Replica  string    `json:"replica,omitempty"`  // asked for with ?replicas=1: the server of the store whose answer this is, at which the client is; Clients are of all
	Replicas []Replica `json:"replicas,omitempty"` // the servers of the store
	Unsure   string    `json:"unsure,omitempty"`   // why there may be others; "": there are none
}

// A Link is one step of the chain.
type Link struct {
	Name  string `json:"name"` // "loaded", "defined", "valid", "selected", "allowed", "connected", "subscribed", "referenced", "sent", "accepted"
	OK    bool   `json:"ok"`
	Known bool   `json:"known"` // false: a link before it is broken, so nobody can say
	Text  string `json:"text"`
	Place string `json:"place,omitempty"`
}

// An Event is one of /api/v1/events (SSE).
type Event struct {
	ID        uint64     `json:"id"`
	At        time.Time  `json:"at"`
	Kind      string     `json:"kind"` // "connect", "leave", "subscribe", "send", "ack", "nack", "wait", "deny", "commit", "reject", "quarantine", "store"
	Node      string     `json:"node,omitempty"`
	Peer      string     `json:"peer,omitempty"`
	Stream    uint64     `json:"stream,omitempty"`
	Type      string     `json:"type,omitempty"`
	Version   string     `json:"version,omitempty"`
	Nonce     string     `json:"nonce,omitempty"`
	Resources []Resource `json:"resources,omitempty"`
	Count     int        `json:"count,omitempty"`
	Removed   int        `json:"removed,omitempty"`
	Took      string     `json:"took,omitempty"`
	Text      string     `json:"text,omitempty"`
	Author    string     `json:"author,omitempty"`  // of a store: who did it
	Message   string     `json:"message,omitempty"` // of a store: why
	Missed    int        `json:"missed,omitempty"`  // events that were left out before this one, since the reader was slow
}

// An ImpactRequest is the body of POST /api/v1/impact: changes that are not made, and of which it
// is asked who would see them.
type ImpactRequest struct {
	Node    string         `json:"node,omitempty"` // only its clients; "": all
	Changes []ImpactChange `json:"changes"`        // at most 10000
}

// An ImpactChange is one of a resource.
type ImpactChange struct {
	Type  string `json:"type"` // a short name or a URL
	Name  string `json:"name"`
	Group string `json:"group,omitempty"` // that has it; "": whatever groups the client has
	Bytes int    `json:"bytes"`           // of the new one, encoded; 0: it is removed
}

// An Impact is the answer of /api/v1/impact.
type Impact struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`      // "Impact"
	Connected  int           `json:"connected"` // clients that may be concerned: all, or those of the node
	Clients    int           `json:"clients"`   // of these, who sees a change: by name or by wildcard
	Unknown    int           `json:"unknown"`   // of these, who did not answer, or has no group yet
	Groups     []GroupImpact `json:"groups"`    // of the changes, by name
	Types      []TypeImpact  `json:"types"`     // in push order
	Bytes      int           `json:"bytes"`     // of all pushes, about
}

// A GroupImpact is how many clients see the changes of a group.
type GroupImpact struct {
	Group   string `json:"group"`
	Clients int    `json:"clients"`
}

// A TypeImpact is what is pushed of a type.
type TypeImpact struct {
	Type   string `json:"type"`
	Pushes int    `json:"pushes"` // responses, of which a large one may be split
	Bytes  int    `json:"bytes"`  // about: in SotW a response has all listeners, or all clusters
}

// A NodeInfo is the answer of /api/v1/clients/{node}/node.
type NodeInfo struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // "NodeInfo"
	Node       Node     `json:"node"`
	Groups     []string `json:"groups"` // that it gets; of two with one resource the first counts
}

// A Node is what a client says of itself, with the names of Envoy's API.
type Node struct {
	ID               string          `json:"id"`
	Cluster          string          `json:"cluster,omitempty"`
	Locality         *Locality       `json:"locality,omitempty"`
	Metadata         json.RawMessage `json:"metadata,omitempty"` // an object
	UserAgentName    string          `json:"user_agent_name,omitempty"`
	UserAgentVersion string          `json:"user_agent_version,omitempty"`
	ClientFeatures   []string        `json:"client_features,omitempty"`
}

// A Locality is where a node or an endpoint is.
type Locality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// A WaitResult is the answer of /api/v1/wait.
type WaitResult struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`     // "WaitResult"
	Done       bool      `json:"done"`     // false: the time was over, a client refuses, or a load was rejected
	Revision   uint64    `json:"revision"` // that is served: a number of the server that is asked, as in config of its status
	Served     bool      `json:"served"`   // that is what is waited for, or came after it
	Clients    Counts    `json:"clients"`
	Rejected   *Rejected `json:"rejected,omitempty"` // the last load, if that ended it: what the files say is not served
	Refusals   []Refusal `json:"refusals,omitempty"`
	Pending    []string  `json:"pending,omitempty"` // nodes, at most 10

	StoreRevision string `json:"store_revision,omitempty"` // of the store that is served, such as r412; "": there is no store, or nothing of it

	Replicas []Replica `json:"replicas,omitempty"` // asked for with ?replicas=1: all servers of the store, whose clients these are
	Unsure   string    `json:"unsure,omitempty"`   // why there may be others; "": there are none
}

// A ReloadRequest is the body of POST /api/v1/reload; an empty body is the zero value.
type ReloadRequest struct {
	AllowMassDelete bool `json:"allow_mass_delete"` // this one load may remove whatever is missing from the files
}

// A Reload is the answer of POST /api/v1/reload.
type Reload struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // "Reload"
	Files      int      `json:"files"`
	Resources  int      `json:"resources"`
	Set        int      `json:"set"`
	Removed    int      `json:"removed"`
	Held       int      `json:"held"`
	Errors     []string `json:"errors,omitempty"` // why nothing was loaded
	Groups     int      `json:"groups,omitempty"`
	KeptGroups int      `json:"kept_groups,omitempty"`
	Kept       []string `json:"kept,omitempty"`
}

// A LogLevel is the answer of /api/v1/log, and the body of a PUT to it.
type LogLevel struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`  // "LogLevel"
	Level      string `json:"level"` // "debug", "info", "warn", "error"
}

// An EndpointList is the answer of GET /api/v1/endpoints, with or without a cluster.
type EndpointList struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"` // "EndpointList"
	Items      []RegisteredCluster `json:"items"`
}

// A RegisteredCluster is a cluster with registered endpoints: those are served, and what is said elsewhere of
// its endpoints is not.
type RegisteredCluster struct {
	Cluster   string     `json:"cluster"`
	Group     string     `json:"group"`
	Total     int        `json:"total"`               // endpoints
	Endpoints []Endpoint `json:"endpoints,omitempty"` // if one cluster was asked for
}

// An Endpoint is one that is registered.
type Endpoint struct {
	ID       string    `json:"id,omitempty"` // in a PUT of one it is that of the path; "": ADDRESS:PORT
	Address  string    `json:"address"`      // an IP address
	Port     int       `json:"port"`
	Hostname string    `json:"hostname,omitempty"`
	Locality *Locality `json:"locality,omitempty"`
	Weight   int       `json:"weight,omitempty"`   // 1 to 100000, among those of the cluster; 0: 1
	Priority int       `json:"priority,omitempty"` // 0 is the first choice, up to 127; gaps are closed when served
	Health   string    `json:"health,omitempty"`   // HEALTHY, UNHEALTHY, DRAINING, TIMEOUT or DEGRADED; "": not known

	Metadata map[string]map[string]json.RawMessage `json:"metadata,omitempty"` // by its name, such as envoy.lb

	TTL string `json:"ttl,omitempty"` // of its lease, such as 30s; "": it has none
}

// An EndpointsRequest is the body of a PUT of all endpoints of a cluster.
type EndpointsRequest struct {
	TTL       string     `json:"ttl,omitempty"` // of the lease of all; "": they have none
	Endpoints []Endpoint `json:"endpoints"`     // their own ttl must be empty
}

// An EndpointsResult is the answer to a change of endpoints.
type EndpointsResult struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "EndpointsResult"
	Set        int    `json:"set"`
	Unchanged  int    `json:"unchanged"` // their lease is renewed
	Removed    int    `json:"removed"`
}

// An EndpointLine is a line of the stream that POST /api/v1/endpoints reads: one endpoint is put, or removed; or those of the cluster as a whole.
// An empty line keeps the lease, as any other does.
type EndpointLine struct {
	Cluster string    `json:"cluster"`
	Group   string    `json:"group,omitempty"`
	Put     *Endpoint `json:"put,omitempty"`
	Remove  string    `json:"remove,omitempty"` // an id

	Replace []Endpoint `json:"replace,omitzero"`  // all endpoints of the cluster: others are removed
	Release bool       `json:"release,omitempty"` // removes all, and what files or revisions say counts again
}

// An EndpointLines is a line of its answer: all lines up to one are done.
type EndpointLines struct {
	Line   int         `json:"line"`             // counted from 1
	Lost   bool        `json:"lost,omitempty"`   // the lease had ended: what was put before this answer is gone, put it again
	Errors []LineError `json:"errors,omitempty"` // of lines since the last answer that were not taken
}

// A LineError says why a line was not taken.
type LineError struct {
	Line    int    `json:"line"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// A VersionInfo is the answer of /version.
type VersionInfo struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Version"
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"` // of the source code
	Go         string `json:"go"`
	Server     Server `json:"server"`
}

// An Error is the body of each answer that is not 2xx.
type Error struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`            // "Error"
	Field      string `json:"field,omitempty"` // the parameter that is wrong
	Message    string `json:"message"`
	Hint       string `json:"hint,omitempty"`

	Errors []string `json:"errors,omitempty"` // what is wrong with what was to be committed, each with its place; at most 1000
}
