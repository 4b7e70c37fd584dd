package api

import "time"

// A NoteRequest says who asks for something, and why: the body of POSTs that say nothing else.
type NoteRequest struct {
	Message string `json:"message,omitempty"` // why; some need it
	Author  string `json:"author,omitempty"`  // who asks for it, as they say: it stands beside what the server knows of them
}

// A FreezeRequest is the body of POST /api/v1/groups/{group}/freeze.
type FreezeRequest struct {
	Revision string `json:"revision,omitempty"` // that the group is served of, such as r411, or head; "": the newest, of a group that is not frozen yet
	Message  string `json:"message"`            // why
	Author   string `json:"author,omitempty"`   // as in a commit
}

// A Freeze is the answer of POST /api/v1/groups/{group}/freeze, and of …/unfreeze.
type Freeze struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Freeze"
	Group      string `json:"group"`
	Revision   string `json:"revision"`         // that it is served of now
	Was        string `json:"was,omitempty"`    // that it was frozen at before; "": it was not
	Before     *Hold  `json:"before,omitempty"` // who had frozen it at that, when and why
}

// A RolloutList is the answer of GET /api/v1/rollouts, the newest first, and of all that answers one rollout.
type RolloutList struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // "RolloutList"
	Items      []Rollout `json:"items"`
}

// A Rollout takes frozen groups to a revision step by step.
type Rollout struct {
	ID       string            `json:"id"`
	Revision string            `json:"revision"`       // that it goes to, such as r412
	From     map[string]string `json:"from,omitempty"` // what its groups are frozen at, by name
	Steps    []RolloutStep     `json:"steps,omitempty"`
	Bake     string            `json:"bake"`      // how long a step is good before the next, in seconds, such as 300s
	MinAcked float64           `json:"min_acked"` // which share of those picked must have accepted what they were told, in %
	Author   string            `json:"author"`
	Message  string            `json:"message"`
	Began    time.Time         `json:"began"`
	Phase    string            `json:"phase"` // "running", "paused", "done", "rolled back", "aborted"
	Step     int               `json:"step"`  // that is in force; the first is 1
	Since    time.Time         `json:"since"` // of phase and step
	Why      string            `json:"why,omitempty"`
	Refusal  *RolloutRefusal   `json:"refusal,omitempty"` // that ended it
	Nodes    string            `json:"nodes"`             // who is picked, in words
	Clients  int               `json:"clients"`           // that are picked; it and the next three are 0 when it has ended
	Acked    int               `json:"acked"`             // of these: have accepted all that they were told
	Refused  int               `json:"refused"`
	Waiting  int               `json:"waiting"`
	WaitsFor string            `json:"waits_for,omitempty"` // what keeps it from its next step, but time; or that this alone decides, since nobody who is connected is picked
}

// A RolloutStep says which nodes are picked: those of which one of these holds. Each step has in it who was picked before.
type RolloutStep struct {
	Percent float64           `json:"percent,omitempty"` // this share of the nodes, by the hash of their id
	Labels  map[string]string `json:"labels,omitempty"`  // all of these are in the node's metadata
	Groups  []string          `json:"groups,omitempty"`  // the node gets one of these
}

// A RolloutRefusal is that of a client that had accepted what it was told before.
type RolloutRefusal struct {
	Node  string `json:"node"`
	Type  string `json:"type"`           // its short name
	Name  string `json:"name,omitempty"` // of the resource, if the client says it
	Cause string `json:"cause"`          // without secrets
}

// A RolloutRequest is the body of POST /api/v1/rollouts.
type RolloutRequest struct {
	Revision string        `json:"revision"`            // such as r412
	Steps    []RolloutStep `json:"steps"`               // a last one, of all, is added
	Of       []string      `json:"of,omitempty"`        // the groups that go to it; none: all frozen ones in which it differs
	Bake     string        `json:"bake,omitempty"`      // a duration such as 5m, which it is if it is not given
	MinAcked *float64      `json:"min_acked,omitempty"` // in %; 95 if it is not given
	Message  string        `json:"message"`             // why
	Author   string        `json:"author,omitempty"`    // as in a commit
}
