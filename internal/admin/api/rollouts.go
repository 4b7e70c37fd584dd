package api

import "time"

// A NoteRequest is the body of POSTs that need only an author and a reason.
type NoteRequest struct {
	Message string `json:"message,omitempty"` // why; required by some paths
	Author  string `json:"author,omitempty"`  // the author as the caller gives it; the server adds the identity that it verified
}

// A FreezeRequest is the body of POST /api/v1/groups/{group}/freeze.
type FreezeRequest struct {
	Revision string `json:"revision,omitempty"` // revision to serve the group from, such as r411, or head; "": the newest, if the group is not frozen yet
	Message  string `json:"message"`            // why
	Author   string `json:"author,omitempty"`   // as in a commit
}

// A Freeze is the answer of POST /api/v1/groups/{group}/freeze and …/unfreeze.
type Freeze struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Freeze"
	Group      string `json:"group"`
	Revision   string `json:"revision"`         // revision that the group is served from now
	Was        string `json:"was,omitempty"`    // revision that it was frozen at before; "": it was not frozen
	Before     *Hold  `json:"before,omitempty"` // who had frozen it at that revision, when and why
}

// A RolloutList is the answer of GET /api/v1/rollouts, newest first, and of all requests about one rollout.
type RolloutList struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // "RolloutList"
	Items      []Rollout `json:"items"`
}

// A Rollout moves frozen groups to another revision, step by step.
type Rollout struct {
	ID       string            `json:"id"`
	Revision string            `json:"revision"`       // the target revision, such as r412
	From     map[string]string `json:"from,omitempty"` // revision that each group was frozen at, by group
	Steps    []RolloutStep     `json:"steps,omitempty"`
	Bake     string            `json:"bake"`      // how long a step must be good before the next one, in seconds, such as 300s
	MinAcked float64           `json:"min_acked"` // share of the selected clients that must have accepted the new revision, in %
	Author   string            `json:"author"`
	Message  string            `json:"message"`
	Began    time.Time         `json:"began"`
	Phase    string            `json:"phase"` // "running", "paused", "done", "rolled back", "aborted"
	Step     int               `json:"step"`  // the current step; the first is 1
	Since    time.Time         `json:"since"` // when the phase or the step began
	Why      string            `json:"why,omitempty"`
	Refusal  *RolloutRefusal   `json:"refusal,omitempty"` // the refusal that ended it
	Nodes    string            `json:"nodes"`             // which nodes are selected, in words
	Clients  int               `json:"clients"`           // number of selected clients; 0 after the end, like the next three
	Acked    int               `json:"acked"`             // selected clients that accepted everything they were sent
	Refused  int               `json:"refused"`
	Waiting  int               `json:"waiting"`
	WaitsFor string            `json:"waits_for,omitempty"` // what the next step waits for, apart from time; or that time alone decides, because no connected node is selected
}

// A RolloutStep selects nodes: those that match at least one of its fields. Each step includes the nodes of
// the steps before.
type RolloutStep struct {
	Percent float64           `json:"percent,omitempty"` // this share of the nodes, by the hash of their ID
	Labels  map[string]string `json:"labels,omitempty"`  // nodes with all of these in their metadata
	Groups  []string          `json:"groups,omitempty"`  // nodes that get one of these groups
}

// A RolloutRefusal is the refusal of a client that had accepted its resources before the rollout.
type RolloutRefusal struct {
	Node  string `json:"node"`
	Type  string `json:"type"`           // short name of the type
	Name  string `json:"name,omitempty"` // name of the resource, if the client reports it
	Cause string `json:"cause"`          // secrets are removed
}

// A RolloutRequest is the body of POST /api/v1/rollouts.
type RolloutRequest struct {
	Revision string        `json:"revision"`            // such as r412
	Steps    []RolloutStep `json:"steps"`               // a last step with all nodes is added
	Of       []string      `json:"of,omitempty"`        // groups to move; none: all frozen groups that the revision changes
	Bake     string        `json:"bake,omitempty"`      // a duration; 5m if empty
	MinAcked *float64      `json:"min_acked,omitempty"` // in %; 95 if absent
	Message  string        `json:"message"`             // why
	Author   string        `json:"author,omitempty"`    // as in a commit
}
