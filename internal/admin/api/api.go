// Package api has the types of the admin API: the JSON of the server's answers and of the commands'
// requests. Package internal/admin/client is the client of the API. docs/admin-api.md and openapi.yaml
// describe the API.
package api

import (
	"encoding/json"
	"time"
)

// Version is the version of the API: the first segment of its paths after /api/, and a field of each
// answer.
const Version = "v1"

// ReplicaHeader is the response header with the [Server.ID] of the server that made the answer.
const ReplicaHeader = "Chancery-Replica"

// A State is the state of a type or of one resource on a client.
type State string

// The states, worst first. The state of a client is the worst state of its types.
const (
	Nacked  State = "NACKED"   // the client refused the newest response
	Stale   State = "STALE"    // the client has not answered a response for 30 s or more
	Waiting State = "WAITING"  // the next response waits for another type, or until the client's groups are loaded
	Sent    State = "SENT"     // the newest response has no ACK or NACK yet
	NotSent State = "NOT_SENT" // the client has subscribed, and the newest state is not sent yet
	Absent  State = "ABSENT"   // one resource: it does not exist, and the client knows that
	Leaving State = "LEAVING"  // one resource: removed, but kept until nothing refers to it
	Synced  State = "SYNCED"   // the client has accepted the newest state
	Idle    State = "IDLE"     // the client subscribes to nothing
)

// Status is the answer of /api/v1/status.
type Status struct {
	APIVersion string    `json:"apiVersion"` // "v1"
	Kind       string    `json:"kind"`       // "Status"
	Server     Server    `json:"server"`
	Config     Config    `json:"config"`
	Clients    Counts    `json:"clients"`
	Refusals   []Refusal `json:"refusals"` // grouped by error, most clients first; at most 100
	Troubles   []Trouble `json:"troubles"` // at most 100

	Emptied []EndpointsCluster `json:"emptied,omitempty"` // clusters whose registered endpoints are all removed or expired; at most 100

	// Healthy reports that nothing is wrong: no client refuses or is stale, the newest configuration is
	// served, it refers to no missing resource, and all servers of the store answer. Absent: the server has
	// an older version, which does not decide this.
	Healthy *bool `json:"healthy,omitempty"`

	RejectedGroups []Rejected   `json:"rejected_groups,omitempty"` // groups whose own files were rejected, while the other groups were loaded; at most 100
	TurnedAway     []TurnedAway `json:"turned_away"`               // in the last ten minutes, newest first; at most 100

	Replicas []Replica `json:"replicas,omitempty"` // with ?replicas=1: all servers of the store, and the other fields cover all their clients; absent without a store
	Unsure   string    `json:"unsure,omitempty"`   // why the list of servers may be incomplete; "": it is complete
}

// A Replica is one server of a store, as seen by the server that answers.
type Replica struct {
	ID            string     `json:"id"`                // ID of the process
	Address       string     `json:"address,omitempty"` // address of its admin API, as announced
	Host          string     `json:"host,omitempty"`
	Version       string     `json:"version,omitempty"`
	Since         time.Time  `json:"since"`                    // start of the process
	Asked         bool       `json:"asked,omitempty"`          // this server answers the request
	Revision      string     `json:"revision,omitempty"`       // the revision that it serves; if it does not answer: the last known one
	StoreRevision string     `json:"store_revision,omitempty"` // the same value as revision, with the field name of a WaitResult
	Served        bool       `json:"served,omitempty"`         // in /api/v1/wait: it serves the awaited revision
	Clients       *Counts    `json:"clients,omitempty"`        // its own clients; absent: it does not answer
	Rejected      *Rejected  `json:"rejected,omitempty"`       // the newest revision, if this server rejected it
	Trouble       string     `json:"trouble,omitempty"`        // why it cannot read or does not serve the newest revision
	Unwritten     string     `json:"unwritten,omitempty"`      // why it does not commit its directory to the store
	Error         string     `json:"error,omitempty"`          // why it does not answer; "": it answers
	Forbidden     bool       `json:"forbidden,omitempty"`      // error is that the caller lacks a role there
	Seen          *time.Time `json:"seen,omitempty"`           // for a server that does not answer: the time of its last answer to this server; absent: never
}

// A Server describes the server process.
type Server struct {
	Version string    `json:"version"`
	Replica string    `json:"replica"` // the control plane identifier in xDS responses
	Since   time.Time `json:"since"`
	XDS     string    `json:"xds"`            // addresses for xDS
	Dir     string    `json:"dir"`            // the directory, as the user gave it
	Path    string    `json:"path,omitempty"` // absolute path of the directory that is served or written to the store; "": unknown
	Host    string    `json:"host,omitempty"` // name of the machine
	PID     int       `json:"pid,omitempty"`
	ID      string    `json:"id,omitempty"`      // ID of this process among the servers of its store
	Control string    `json:"control,omitempty"` // path of the socket for the user of the server, which serves this API, too; "": none

	Links []PageLink `json:"links,omitempty"` // of the page to other programs
}

// A PageLink is a link of the page to another program.
type PageLink struct {
	Name string `json:"name"`
	URL  string `json:"url"` // {node}, {group}, {type} and {name} stand for percent-encoded values
}

// A Config describes the served configuration, and the result of the last load.
type Config struct {
	Revision  uint64     `json:"revision"` // number of commits to the server's own store
	At        *time.Time `json:"at,omitempty"`
	Files     int        `json:"files"`
	Resources int        `json:"resources"`
	Groups    int        `json:"groups"`
	Rejected  *Rejected  `json:"rejected,omitempty"` // absent: the last load succeeded
	Dangling  int        `json:"dangling"`           // references to missing resources
	Doubts    int        `json:"doubts"`             // number of warnings, including dangling references
	Warnings  []Warning  `json:"warnings,omitempty"` // the first warnings
	Earlier   []Earlier  `json:"earlier,omitempty"`  // versions that clients get because other clients accepted them; at most 100
	Removals  *Removals  `json:"removals,omitempty"` // large removals that are delayed (--confirm-removals); absent: none
	Upstream  *Upstream  `json:"upstream,omitempty"` // only of a relay, which has no files
	Store     *Store     `json:"store,omitempty"`    // only of a server with a revision store
}

// Removals are resources that are missing from the files, and still served until their removal is confirmed.
type Removals struct {
	Resources int       `json:"resources"`
	Until     time.Time `json:"until"` // when the server removes them, if they are still missing
}

// A Store describes the revision store that a server reads.
type Store struct {
	URL      string     `json:"url"`
	Revision string     `json:"revision,omitempty"` // the served revision, such as r412; "": none, or a copy from disk without a revision
	Author   string     `json:"author,omitempty"`   // author of the served revision
	Message  string     `json:"message,omitempty"`
	At       *time.Time `json:"at,omitempty"`        // commit time, by the committer's clock; absent for a revision from disk
	LastGood *time.Time `json:"last_good,omitempty"` // time of the last good copy on disk, if the server serves that copy
	Error    string     `json:"error,omitempty"`     // why the newest revision cannot be read or is not served
	Since    *time.Time `json:"since,omitempty"`     // when the error began
	Holds    []Hold     `json:"holds,omitempty"`     // groups that are served from another revision

	RolledBack []RolledBack `json:"rolled_back,omitempty"` // rollouts that were rolled back; a commit to the group removes the entry

	WentBack *WentBack `json:"went_back,omitempty"` // the last time that the etcd went back, since the start of the server

	Writer *StoreWriter `json:"writer,omitempty"` // only of a server that may commit a directory to the store
}

// A WentBack describes that an etcd went back to an earlier revision, as a restored backup does. The server
// has read everything again.
type WentBack struct {
	At   time.Time `json:"at"`   // when the server noticed it
	From int       `json:"from"` // the revision of the etcd before
	To   int       `json:"to"`   // the first one after
}

// A RolledBack is a rollout that was rolled back, because a client refused its revision or a server could
// not serve the revision. All nodes get the resources that they had before the rollout.
type RolledBack struct {
	Rollout  string    `json:"rollout"` // ID of the rollout
	Groups   []string  `json:"groups"`
	Revision string    `json:"revision"` // the target revision, such as r412
	Why      string    `json:"why"`
	Since    time.Time `json:"since"` // by the clock of the server that rolled it back
}

// A StoreWriter describes a server that may commit a directory to the store. Only one server at a time
// commits.
type StoreWriter struct {
	Dir    string    `json:"dir"`
	Writes bool      `json:"writes"` // false: another server commits
	Since  time.Time `json:"since"`
	Server string    `json:"server,omitempty"` // the server that commits, if it is another server and its ID is known
	Error  string    `json:"error,omitempty"`  // why the directory is not committed

	Pending bool `json:"pending,omitempty"` // this server has loaded content that is not served yet, because its commit is not complete
}

// A Hold freezes a group: servers serve the group from this revision and not from the newest.
type Hold struct {
	Group    string    `json:"group"`
	Revision string    `json:"revision"`          // such as r411
	Author   string    `json:"author,omitempty"`  // author of the freeze
	Message  string    `json:"message,omitempty"` // why
	At       time.Time `json:"at"`                // when
	Next     string    `json:"next,omitempty"`    // target revision of a rollout
	Rollout  string    `json:"rollout,omitempty"` // ID of that rollout
	Step     int       `json:"step,omitempty"`    // the step of the rollout in force, from 1
}

// An Upstream is the xDS server from which a relay gets its resources.
type Upstream struct {
	URL       string     `json:"url"`
	Connected bool       `json:"connected"`       // the upstream has answered on the open stream
	Idle      bool       `json:"idle,omitempty"`  // not connected, because no client subscribes to anything
	Since     *time.Time `json:"since,omitempty"` // start of the open stream, or end of the last one
	Error     string     `json:"error,omitempty"` // why the last stream ended or could not start
	ErrorAt   *time.Time `json:"error_at,omitempty"`
	Exceeded  string     `json:"exceeded,omitempty"` // the limit that the newest response of some type exceeds; the relay serves the last good resources
	Refused   int        `json:"refused"`            // number of refused resources; the relay serves their last good versions, or with --pass-refusals the versions that some clients accept
}

// A Warning reports a likely mistake in the served configuration.
type Warning struct {
	Code string `json:"code"` // chancery check --explain CODE explains it
	Text string `json:"text"` // begins with the place in the files

	Type  string `json:"type,omitempty"`  // of the resource with the mistake, such as "RDS"; absent: not known
	Name  string `json:"name,omitempty"`  // of that resource
	Group string `json:"group,omitempty"` // of that resource; absent: there is only one group
}

// Rejected describes a load with errors. The server does not serve it.
type Rejected struct {
	Group  string    `json:"group,omitempty"` // the only group with errors; "": the whole load was rejected
	Since  time.Time `json:"since"`
	Errors []string  `json:"errors"`
}

// Counts has the number of clients in each state.
type Counts struct {
	Connected int           `json:"connected"`
	By        map[State]int `json:"by"`
}

// A ClientList is the answer of /api/v1/clients, and of /api/v1/clients/{node}. The latter lists all
// clients with that node ID, including clients that disconnected recently.
type ClientList struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // "ClientList"
	Total      int      `json:"total"`
	Hidden     int      `json:"hidden"` // number of healthy clients, which the list has only with ?all=1
	Items      []Client `json:"items"`

	Replicas []Replica `json:"replicas,omitempty"` // with ?replicas=1: all servers of the store, which have these clients
	Unsure   string    `json:"unsure,omitempty"`   // why the list of servers may be incomplete; "": it is complete
}

// A Client is a node at one address, with all its streams.
type Client struct {
	Node     string       `json:"node"`
	Path     string       `json:"path,omitempty"` // for a client without a node ID: the name to use in paths, such as "stream:41"
	Cluster  string       `json:"cluster,omitempty"`
	Agent    string       `json:"agent,omitempty"` // such as "envoy 1.40.0"
	Peer     string       `json:"peer,omitempty"`
	Identity string       `json:"identity,omitempty"` // identity that the connection proves; "": none
	Groups   []string     `json:"groups"`
	Since    time.Time    `json:"since"`
	Left     *Left        `json:"left,omitempty"` // absent: the client is connected
	State    State        `json:"state"`
	Streams  []Stream     `json:"streams"`
	Types    []TypeStatus `json:"types"` // in push order
	Troubles []Trouble    `json:"troubles,omitempty"`
	Replica  string       `json:"replica,omitempty"` // with ?replicas=1: ID of the server that the client is connected to
}

// Left is the time and the reason of a client's disconnection.
type Left struct {
	At   time.Time `json:"at"`
	Code string    `json:"code"`
	Why  string    `json:"why"`
}

// A Stream is an open stream of a client.
type Stream struct {
	ID      uint64    `json:"id"`
	API     string    `json:"api"` // "ADS", or the short name of the stream's only type
	Variant string    `json:"variant"`
	Since   time.Time `json:"since"`
}

// A TypeStatus is the state of one type on a client.
type TypeStatus struct {
	Type     string        `json:"type"` // short name, such as "CDS"
	URL      string        `json:"url"`
	Stream   uint64        `json:"stream"`
	State    State         `json:"state"`
	Wildcard bool          `json:"wildcard"`
	Names    int           `json:"names"` // number of names subscribed to
	Sent     *Message      `json:"sent,omitempty"`
	Acked    *Message      `json:"acked,omitempty"`
	Nacked   *NackedStatus `json:"nacked,omitempty"`    // absent: the newest response was not refused
	WaitsFor []Resource    `json:"waits_for,omitempty"` // WAITING: some of the resources that the client must accept first
}

// A Message is the last response that was sent, or the last one that the client accepted.
type Message struct {
	At        time.Time `json:"at"`
	Version   string    `json:"version"`
	Nonce     string    `json:"nonce"`
	Resources int       `json:"resources"`
	Removed   int       `json:"removed"`
	Bytes     int       `json:"bytes,omitempty"`
}

// A NackedStatus is a refusal (NACK) that is still in force: the client has accepted no later response.
type NackedStatus struct {
	Since     time.Time  `json:"since"`
	At        time.Time  `json:"at"` // time of the last NACK
	Nonce     string     `json:"nonce"`
	Version   string     `json:"version"`
	Error     string     `json:"error"` // secrets are removed
	Resources []Resource `json:"resources"`
	Kept      []Kept     `json:"kept,omitempty"` // resources in quarantine: the rest of the type is still updated
}

// A Kept is a resource in quarantine: the client refused the new version, and the server serves the old
// version to this client.
type Kept struct {
	Name    string `json:"name"`
	Refused string `json:"refused"`          // version that the client refused
	Kept    string `json:"kept,omitempty"`   // served version, which the client accepted last; "": none
	Others  bool   `json:"others,omitempty"` // the client never had a version: other clients accepted the served one
	Why     string `json:"why"`              // how the server identified the resource as faulty, or another reason for the quarantine
}

// An Earlier is a version that clients get because other clients accepted it. They refuse the newest version,
// and had none before.
type Earlier struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Refused string `json:"refused"` // version that these clients refuse
	Served  string `json:"served"`
	Clients int    `json:"clients"`

	RefusedSince string `json:"refused_since,omitempty"` // revision of the store that set the version, such as r42
	ServedSince  string `json:"served_since,omitempty"`
}

// A Resource is the type and name of a resource, with its place in the files.
type Resource struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Place  string `json:"place,omitempty"`  // such as "clusters.yaml:12:3"
	Reason string `json:"reason,omitempty"` // why the resource is wrong, if known
}

// A Refusal is one type and error text with which clients refuse responses, summed over all clients.
type Refusal struct {
	Type      string     `json:"type"`
	Error     string     `json:"error"`
	Clients   int        `json:"clients"`
	Nodes     []string   `json:"nodes"` // at most 10
	Since     time.Time  `json:"since"`
	Resources []Resource `json:"resources"`
	Partly    bool       `json:"partly"` // the response had further resources, and the client may have applied them
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

// A Group is a group of resources, with the clients that get it.
type Group struct {
	Name      string `json:"name"`
	Resources int    `json:"resources"`
	Clients   Counts `json:"clients"`
	Rule      string `json:"rule,omitempty"`  // the rule that selects the nodes, such as `cluster is "edge"`; "": nodes get the group otherwise
	Place     string `json:"place,omitempty"` // place of the file group.yaml

	Rejected *Rejected `json:"rejected,omitempty"` // absent: the files of this group have no errors of their own
}

// A PreviewRequest is the body of POST /api/v1/groups/preview.
type PreviewRequest struct {
	Node string `json:"node"` // a node as JSON or YAML, in the form of an Envoy's bootstrap
}

// A Preview is the answer of POST /api/v1/groups/preview: the groups and the resources that a node would get.
type Preview struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`              // "Preview"
	Refused    bool              `json:"refused,omitempty"` // no group matches, so the node gets nothing
	Groups     []PreviewGroup    `json:"groups"`
	Otherwise  string            `json:"otherwise,omitempty"` // the rule for nodes that match no group
	Notes      []string          `json:"notes,omitempty"`     // conditions that could not be evaluated
	Total      int               `json:"total"`
	Resources  []PreviewResource `json:"resources"` // by type in push order and by name; at most 1000
}

// A PreviewGroup is a group of a node. If several groups have the same resource, the node gets that of the first
// group.
type PreviewGroup struct {
	Name  string `json:"name"`
	Why   string `json:"why"` // the part of the rule that holds
	Place string `json:"place,omitempty"`
}

// A PreviewResource is a resource that a node would get.
type PreviewResource struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Group   string   `json:"group"`
	Hides   []string `json:"hides,omitempty"` // groups with a resource of the same name, which the node does not get
	Version string   `json:"resource_version"`
	Bytes   int      `json:"bytes"`
	Place   string   `json:"place"`
}

// A CheckRequest is the body of POST /api/v1/check.
type CheckRequest struct {
	Text  string `json:"text"`            // resources as YAML or JSON
	Group string `json:"group,omitempty"` // the group that would get the resources; default if empty
}

// A Check is the answer of POST /api/v1/check: the findings about resources in a text, and the effect if a group
// had these resources. The server keeps nothing of the text.
type Check struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`   // "Check"
	Errors     int           `json:"errors"` // the server would not load the text with any
	Warnings   int           `json:"warnings"`
	Findings   []Finding     `json:"findings"`         // the first 100 errors and the first 100 warnings
	Unchanged  int           `json:"unchanged"`        // resources that are served already; a resource with secrets counts as changed
	Total      int           `json:"total"`            // changed resources
	Changes    []ChangedItem `json:"changes"`          // the first 1000; place is the line and the column in the text
	Impact     *Impact       `json:"impact,omitempty"` // the clients that would get the changes; absent: there are errors, or it is unknown
}

// A Finding is an error or a warning at a place of a text.
type Finding struct {
	Warning bool   `json:"warning,omitempty"`
	Code    string `json:"code"` // chancery check --explain CODE explains it
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"` // of the field
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// A Trouble is a likely problem that the server noticed and no client reported.
type Trouble struct {
	Code  string    `json:"code"` // "no-eds", "no-resources", "unanswered", "same-node", "near-limit", "flaps", "disconnect-loop", "stale-endpoints", "not-stored", "rejected-roles", "rejected-tls"
	Node  string    `json:"node,omitempty"`
	Type  string    `json:"type,omitempty"`
	Since time.Time `json:"since"`
	Text  string    `json:"text"`
}

// DisconnectLoop is the code of a [Trouble]: the clients of a node end their stream soon after a response,
// again and again, without an ACK or NACK of it.
const DisconnectLoop = "disconnect-loop"

// StaleEndpoints is the code of a [Trouble]: a program that registers endpoints cannot update them, or the server cannot
// store or read them.
const StaleEndpoints = "stale-endpoints"

// NotStored is the code of a [Trouble]: the server cannot write its state directory, such as on a full disk.
const NotStored = "not-stored"

// RejectedRoles is the code of the trouble of a server whose roles file is invalid since a change.
const RejectedRoles = "rejected-roles"

// RejectedTLS is the code of the trouble of a server whose TLS files are invalid since a change.
const RejectedTLS = "rejected-tls"

// TurnedAway is a peer that was not admitted. Lists of clients do not contain such peers.
type TurnedAway struct {
	Kind  string    `json:"kind"` // "denied": the peer may not use that node ID; "handshake": the TLS handshake failed
	Node  string    `json:"node,omitempty"`
	From  string    `json:"from"` // address of the peer, without a port
	Text  string    `json:"text"` // why it was turned away
	Times int       `json:"times"`
	Since time.Time `json:"since"`
	At    time.Time `json:"at"` // time of the last attempt
}

// A ClientResources is the answer of /api/v1/clients/{node}/resources: the resources that a client has, by
// type and name.
type ClientResources struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"` // "ClientResourceList"
	Node       string           `json:"node"`
	Total      int              `json:"total"`
	Items      []ClientResource `json:"items"` // at most ?limit= of them
}

// A ClientResource is the state of one resource on a client.
type ClientResource struct {
	Resource
	State    State      `json:"state"`
	Why      string     `json:"why"` // "name", "wildcard", "alias", "collection", or "" if not subscribed
	Current  string     `json:"current,omitempty"`
	Sent     string     `json:"sent,omitempty"`  // version sent last
	Acked    string     `json:"acked,omitempty"` // version that the client certainly has
	Nonce    string     `json:"nonce,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	WaitsFor []Resource `json:"waits_for,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// A ResourceList is the answer of /api/v1/resources: the served resources.
type ResourceList struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"` // "ResourceList"
	Total      int              `json:"total"`
	Items      []ServedResource `json:"items"`
}

// A ServedResource is a resource that is served to the nodes of a group.
type ServedResource struct {
	Resource
	Group   string          `json:"group"`
	Version string          `json:"version"`
	Bytes   int             `json:"bytes"`
	TTL     string          `json:"ttl,omitempty"`
	Clients *Subscribers    `json:"clients,omitempty"` // with ?subscribers=1
	Body    json.RawMessage `json:"body,omitempty"`    // only in an answer about one resource; secrets are removed
	Lines   map[string]int  `json:"lines,omitempty"`   // with ?places=1, in an answer about one resource: the lines of fields in its file, such as "virtual_hosts[0].name"
	Refs    []Resource      `json:"refs,omitempty"`    // only in an answer about one resource: the resources to which it refers, existing or not
}

// Subscribers counts the clients that subscribe to a resource, by state.
type Subscribers struct {
	Total int           `json:"total"`
	By    map[State]int `json:"by"`

	Nodes []SubscribedNode `json:"nodes,omitempty"` // the worst 20, if the answer has less than 20 resources
}

// A SubscribedNode is a client that subscribes to a resource.
type SubscribedNode struct {
	Node  string `json:"node"`
	State State  `json:"state"`
}

// An Explanation is the answer of /api/v1/clients/{node}/explain: the chain of links from the file to the
// client, with the broken link.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Explanation"
	Node       string `json:"node"`
	Type       string `json:"type,omitempty"`
	Name       string `json:"name,omitempty"`
	Links      []Link `json:"links"`
	Broken     string `json:"broken,omitempty"` // name of the broken link; "": none
	Advice     string `json:"advice,omitempty"`

	Clients int        `json:"clients"`        // number of connected clients with this node ID
	Last    *time.Time `json:"last,omitempty"` // if no client is connected: the time when the last client disconnected or was refused; absent: unknown

	Replica  string    `json:"replica,omitempty"`  // with ?replicas=1: ID of the client's server, which made this answer; the field clients then counts the clients of all servers
	Replicas []Replica `json:"replicas,omitempty"` // the servers of the store
	Unsure   string    `json:"unsure,omitempty"`   // why the list of servers may be incomplete; "": it is complete
}

// A Link is one step of the chain.
type Link struct {
	Name  string `json:"name"` // "loaded", "defined", "valid", "selected", "allowed", "connected", "subscribed", "referenced", "sent", "accepted"
	OK    bool   `json:"ok"`
	Known bool   `json:"known"` // false: the state of this link is unknown, mostly because an earlier link is broken
	Text  string `json:"text"`
	Place string `json:"place,omitempty"`
}

// An Event is an event of /api/v1/events (SSE).
type Event struct {
	ID        uint64     `json:"id"`
	At        time.Time  `json:"at"`
	Kind      string     `json:"kind"` // "connect", "leave", "subscribe", "send", "ack", "nack", "recover", "wait", "deny", "commit", "reject", "quarantine", "store", "admin"
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
	By        string     `json:"by,omitempty"`      // for admin events: the authenticated caller that made the change
	Author    string     `json:"author,omitempty"`  // for store events: the author of the change
	Message   string     `json:"message,omitempty"` // for store events: the reason of the change
	Missed    int        `json:"missed,omitempty"`  // events that were dropped before this one because the reader was slow
}

// An ImpactRequest is the body of POST /api/v1/impact: planned changes. The answer has the effect of
// these changes on clients.
type ImpactRequest struct {
	Node    string         `json:"node,omitempty"` // only clients with this node ID; "": all
	Changes []ImpactChange `json:"changes"`        // at most 10000
}

// An ImpactChange is a planned change of one resource.
type ImpactChange struct {
	Type  string `json:"type"` // a short name or a type URL
	Name  string `json:"name"`
	Group string `json:"group,omitempty"` // the group that has the resource; "": any group of the client
	Bytes int    `json:"bytes"`           // encoded size of the new version; 0: the change removes the resource
}

// An Impact is the answer of /api/v1/impact.
type Impact struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`      // "Impact"
	Connected  int           `json:"connected"` // clients that were checked: all, or those of the node
	Clients    int           `json:"clients"`   // clients that would see a change, subscribed by name or by wildcard
	Unknown    int           `json:"unknown"`   // clients whose streams did not answer in time, or that have no group yet
	Groups     []GroupImpact `json:"groups"`    // groups with changes, by name
	Types      []TypeImpact  `json:"types"`     // in push order
	Bytes      int           `json:"bytes"`     // approximate size of all pushes
}

// A GroupImpact counts the clients that would see the changes of a group.
type GroupImpact struct {
	Group   string `json:"group"`
	Clients int    `json:"clients"`
}

// A TypeImpact counts the responses of one type that would be pushed.
type TypeImpact struct {
	Type   string `json:"type"`
	Pushes int    `json:"pushes"` // number of responses; a response that must be split counts once
	Bytes  int    `json:"bytes"`  // approximate; in SotW, a response has all listeners or all clusters
}

// A NodeInfo is the answer of /api/v1/clients/{node}/node.
type NodeInfo struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // "NodeInfo"
	Node       Node     `json:"node"`
	Groups     []string `json:"groups"` // groups of the node; if several groups have the same resource, the node gets that of the first group
}

// A Node is the node message that the client sent, with the field names of Envoy's API.
type Node struct {
	ID               string          `json:"id"`
	Cluster          string          `json:"cluster,omitempty"`
	Locality         *Locality       `json:"locality,omitempty"`
	Metadata         json.RawMessage `json:"metadata,omitempty"` // a JSON object
	UserAgentName    string          `json:"user_agent_name,omitempty"`
	UserAgentVersion string          `json:"user_agent_version,omitempty"`
	ClientFeatures   []string        `json:"client_features,omitempty"`
}

// A Locality is the location of a node or an endpoint.
type Locality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// A WaitResult is the answer of /api/v1/wait.
type WaitResult struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`     // "WaitResult"
	Done       bool      `json:"done"`     // false: timeout, a client refused or leaves again and again, or a load was rejected
	Revision   uint64    `json:"revision"` // revision number that this server serves, as in the field config of its status
	Served     bool      `json:"served"`   // the served revision is the awaited one or a later one
	Clients    Counts    `json:"clients"`
	Rejected   *Rejected `json:"rejected,omitempty"` // the rejected load, if it ended the wait
	Refusals   []Refusal `json:"refusals,omitempty"`
	Loops      []Trouble `json:"loops,omitempty"`   // clients that leave again and again after a response of the served revision, which they do not answer; at most 100
	Pending    []string  `json:"pending,omitempty"` // node IDs, or names such as "stream:41", at most 10

	StoreRevision string `json:"store_revision,omitempty"` // served revision of the store, such as r412; "": no store, or no revision of it is served

	Removals *Removals `json:"removals,omitempty"` // delayed removals, which have not arrived anywhere; absent: none, or a revision was named

	Uncommitted bool `json:"uncommitted,omitempty"` // files are loaded, but not yet a served revision of the store; false if a revision was named

	Replicas []Replica `json:"replicas,omitempty"` // with ?replicas=1: all servers of the store, which have these clients
	Unsure   string    `json:"unsure,omitempty"`   // why the list of servers may be incomplete; "": it is complete

	Class string `json:"class,omitempty"` // of /api/v1/wait/synced: "ok", "failed", "not found" (the revision), "timeout"
	Why   string `json:"why,omitempty"`   // the reason for a class other than "ok"
	Hint  string `json:"hint,omitempty"`  // the next command
}

// The classes of a WaitResult.
const (
	WaitOK       = "ok"
	WaitFailed   = "failed"
	WaitNotFound = "not found"
	WaitTimeout  = "timeout"
)

// A WaitLine is a line of the answer of /api/v1/wait/synced. It has one field, or none to keep the
// connection open. The last line has the result.
type WaitLine struct {
	Note     string        `json:"note,omitempty"`     // the reason for a delay, such as a rollout that is under way
	Progress *WaitProgress `json:"progress,omitempty"` // only from a server of a store that asks all servers
	Result   *WaitResult   `json:"result,omitempty"`
}

// A WaitProgress counts the clients by their answers to the awaited revision.
type WaitProgress struct {
	Revision string `json:"revision"` // the awaited revision of the store, such as r412
	Acked    int    `json:"acked"`
	Refused  int    `json:"refused"`
	Waiting  int    `json:"waiting"`
	Serving  int    `json:"serving"` // servers that serve the revision
	Servers  int    `json:"servers"`
}

// A ReloadRequest is the body of POST /api/v1/reload. An empty body is the zero value.
type ReloadRequest struct {
	AllowMassDelete bool `json:"allow_mass_delete"` // allow this load to remove any number of resources
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

// A LogLevel is the answer of /api/v1/log, and the body of PUT.
type LogLevel struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`  // "LogLevel"
	Level      string `json:"level"` // "debug", "info", "warn", "error"
}

// An EndpointList is the answer of GET /api/v1/endpoints[/{cluster}].
type EndpointList struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"` // "EndpointList"
	Items      []RegisteredCluster `json:"items"`
}

// A RegisteredCluster is a cluster with registered endpoints. These replace the cluster's endpoints from
// files or revisions.
type RegisteredCluster struct {
	Cluster   string     `json:"cluster"`
	Group     string     `json:"group"`
	Total     int        `json:"total"`               // number of endpoints
	EndSoon   int        `json:"end_soon,omitempty"`  // number of endpoints with ends_soon
	Endpoints []Endpoint `json:"endpoints,omitempty"` // only in an answer about one cluster
}

// An Endpoint is a registered endpoint.
type Endpoint struct {
	ID       string    `json:"id,omitempty"` // ADDRESS:PORT if empty; a PUT of one endpoint takes it from the path
	Address  string    `json:"address"`      // an IP address
	Port     int       `json:"port"`
	Hostname string    `json:"hostname,omitempty"`
	Locality *Locality `json:"locality,omitempty"`
	Weight   int       `json:"weight,omitempty"`   // load balancing weight within the cluster, 1 to 100000; 0 means 1
	Priority int       `json:"priority,omitempty"` // 0 (first choice) to 127; gaps are closed when served
	Health   string    `json:"health,omitempty"`   // HEALTHY, UNHEALTHY, DRAINING, TIMEOUT or DEGRADED; "": unknown

	Metadata map[string]map[string]json.RawMessage `json:"metadata,omitempty"` // by filter name, such as envoy.lb

	TTL string `json:"ttl,omitempty"` // duration of the endpoint's lease, such as 30s; "": no lease

	// Only in answers of a server whose endpoints are not in an etcd, because an etcd does not send when leases end.
	Expires  *time.Time `json:"expires,omitempty"`   // when the lease ends unless it is renewed
	EndsSoon bool       `json:"ends_soon,omitempty"` // less than a third of the lease is left: its owner has missed renewals
}

// An EndpointsRequest is the body of a PUT of all endpoints of a cluster.
type EndpointsRequest struct {
	TTL       string     `json:"ttl,omitempty"` // duration of one lease for all endpoints; "": no lease
	Endpoints []Endpoint `json:"endpoints"`     // the ttl of each endpoint must be empty
}

// An EndpointsResult is the answer to a change of endpoints.
type EndpointsResult struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "EndpointsResult"
	Set        int    `json:"set"`
	Unchanged  int    `json:"unchanged"` // unchanged endpoints; their lease is renewed
	Removed    int    `json:"removed"`

	Errors []EndpointError `json:"errors,omitempty"` // rejected endpoints of a PUT of all; the others are registered

	Warning string `json:"warning,omitempty"` // no served cluster uses the changed endpoints; "": one does, or too many clusters are served to tell
}

// An EndpointError is the reason why an endpoint of a list was rejected.
type EndpointError struct {
	Field   string `json:"field"` // its place, such as endpoints[3].port
	Message string `json:"message"`
}

// An EndpointsCluster names the registered endpoints of a cluster in a group.
type EndpointsCluster struct {
	Cluster string `json:"cluster"`
	Group   string `json:"group"`
}

// An EndpointLine is one line of the body of POST /api/v1/endpoints. It puts or removes one endpoint, or
// replaces or releases all endpoints of a cluster. Every line renews the lease, even an empty line.
type EndpointLine struct {
	Cluster string    `json:"cluster"`
	Group   string    `json:"group,omitempty"`
	Put     *Endpoint `json:"put,omitempty"`
	Remove  string    `json:"remove,omitempty"` // ID of the endpoint to remove

	Replace []Endpoint `json:"replace,omitzero"`  // all endpoints of the cluster; others are removed
	Release bool       `json:"release,omitempty"` // remove all registered endpoints; the server again serves the endpoints of files or revisions

	Fault *string `json:"fault,omitempty"` // why the sender cannot update its endpoints, until the stream ends; "": it can again. The other fields are empty
}

// An EndpointLines is one line of the answer of POST /api/v1/endpoints: all lines up to Line are processed.
type EndpointLines struct {
	Line   int         `json:"line"`             // counted from 1
	Lost   bool        `json:"lost,omitempty"`   // the lease had expired: all endpoints put before this answer are removed, and must be put again
	Errors []LineError `json:"errors,omitempty"` // lines, and endpoints of a replace, rejected since the last answer
}

// A LineError is the reason why a line was rejected, or one endpoint of its replace.
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
	Revision   string `json:"revision,omitempty"` // revision of the source code
	Go         string `json:"go"`
	Server     Server `json:"server"`
}

// An Error is the body of each answer whose status is not 2xx.
type Error struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`            // "Error"
	Field      string `json:"field,omitempty"` // the invalid parameter or field
	Message    string `json:"message"`
	Hint       string `json:"hint,omitempty"`

	Errors []string `json:"errors,omitempty"` // findings in the commit, each with its place; at most 1000
}
