package api

import "time"

// A NoteRequest is the body of POST requests that need only an author and a reason.
type NoteRequest struct {
	Message string `json:"message,omitempty"` // the reason; some paths require it
	Author  string `json:"author,omitempty"`  // the author that the caller states; the server adds the caller's verified identity
}

// A FreezeRequest is the body of POST /api/v1/groups/{group}/freeze.
type FreezeRequest struct {
	Revision string `json:"revision,omitempty"` // revision at which to freeze the group, such as r411; "head": the newest; "": also the newest, but only for a group that is not frozen
	Message  string `json:"message"`            // the reason
	Author   string `json:"author,omitempty"`   // as in a commit
}

// A Freeze is the answer of POST /api/v1/groups/{group}/freeze and …/unfreeze.
type Freeze struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Freeze"
	Group      string `json:"group"`
	Revision   string `json:"revision"`         // revision at which the group is now frozen
	Was        string `json:"was,omitempty"`    // revision at which the group was frozen before; "": it was not frozen
	Before     *Hold  `json:"before,omitempty"` // author, time and reason of the earlier freeze
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
	From     map[string]string `json:"from,omitempty"` // revision at which each group was frozen, by group
	Steps    []RolloutStep     `json:"steps,omitempty"`
	Bake     string            `json:"bake"`      // how long a step must be healthy before the next one begins, in seconds, such as 300s
	MinAcked float64           `json:"min_acked"` // share of the selected clients that must have accepted the new revision, in %
	Author   string            `json:"author"`
	Message  string            `json:"message"`
	Began    time.Time         `json:"began"`
	Phase    string            `json:"phase"` // "running", "paused", "done", "rolled back", "aborted"
	Step     int               `json:"step"`  // the current step; the first is 1
	Since    time.Time         `json:"since"` // when the phase or the step began
	Why      string            `json:"why,omitempty"`
	Refusal  *RolloutRefusal   `json:"refusal,omitempty"` // the refusal that ended the rollout
	Nodes    string            `json:"nodes"`             // description of the selected nodes
	Clients  int               `json:"clients"`           // number of selected clients; 0 after the end, as are the next three fields
	Acked    int               `json:"acked"`             // selected clients that accepted all their responses
	Refused  int               `json:"refused"`
	Waiting  int               `json:"waiting"`
	WaitsFor string            `json:"waits_for,omitempty"` // the conditions for the next step; if no connected node is selected: that only the bake time counts
}

// A RolloutStep selects the nodes that match at least one of its fields. Each step includes the nodes of
// the earlier steps.
type RolloutStep struct {
	Percent float64           `json:"percent,omitempty"` // share of the nodes, selected by the hash of the node ID
	Labels  map[string]string `json:"labels,omitempty"`  // nodes with all these values in their metadata
	Groups  []string          `json:"groups,omitempty"`  // nodes that get one of these groups
}

// A RolloutRefusal is the refusal of a client that had accepted its configuration before the rollout.
type RolloutRefusal struct {
	Node  string `json:"node"`
	Type  string `json:"type"`           // short name of the type
	Name  string `json:"name,omitempty"` // name of the resource, if it is known
	Cause string `json:"cause"`          // secrets are removed

	Place string   `json:"place,omitempty"` // place of the resource, such as "clusters.yaml:12:3"
	Among []string `json:"among,omitempty"` // resources of the refused response, if the client names none and none has a known fault; at most 5
	Of    int      `json:"of,omitempty"`    // number of resources in the refused response
}

// A RolloutRequest is the body of POST /api/v1/rollouts.
type RolloutRequest struct {
	Revision string        `json:"revision"`            // such as r412
	Steps    []RolloutStep `json:"steps"`               // the server adds a last step with all nodes
	Of       []string      `json:"of,omitempty"`        // groups to move; none: all frozen groups that the revision changes
	Bake     string        `json:"bake,omitempty"`      // a duration; 5m if empty
	MinAcked *float64      `json:"min_acked,omitempty"` // in %; 95 if absent
	Message  string        `json:"message"`             // the reason
	Author   string        `json:"author,omitempty"`    // as in a commit
}
