package api

// A Diff is the answer of GET /api/v1/diff: the differences from one set of resources to another.
type Diff struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"` // "Diff"
	From       DiffSide     `json:"from"`
	To         DiffSide     `json:"to"`
	Added      int          `json:"added"`
	Removed    int          `json:"removed"`
	Changed    int          `json:"changed"`
	Total      int          `json:"total"`
	Items      []Difference `json:"items"`            // in push order; the first ones, up to limit
	Impact     *Impact      `json:"impact,omitempty"` // of the differences, if they are from "served"; absent: unknown
}

// A DiffSide is one of the two compared sets of resources.
type DiffSide struct {
	Of        string `json:"of"`             // the parameter, such as "rev:r412"
	Resources int    `json:"resources"`      // number of compared resources
	Note      string `json:"note,omitempty"` // such as the groups of a client
}

// A Difference is a resource that differs.
type Difference struct {
	Kind   string       `json:"kind"` // "added", "removed", "changed"
	Type   string       `json:"type"`
	Name   string       `json:"name"`
	Group  string       `json:"group,omitempty"`
	Place  string       `json:"place,omitempty"`  // of the new resource, or of the removed one
	Secret bool         `json:"secret,omitempty"` // only secrets differ, or content that cannot be shown
	Fields []FieldValue `json:"fields,omitempty"`

	Drains *Draining `json:"drains,omitempty"` // the connections that Envoy drains because of the change; nil: none
	Bytes  int       `json:"bytes,omitempty"`  // of the new resource, encoded
}

// A FieldValue is a field with different values.
type FieldValue struct {
	Path string `json:"path"`
	From string `json:"from"` // "": not set
	To   string `json:"to"`
}

// A Draining lists the connections that Envoy drains when a listener changes. Envoy closes them after
// its --drain-time-s.
type Draining struct {
	Whole  bool     `json:"whole"`                   // all connections of the listener
	Chains []string `json:"filter_chains,omitempty"` // only the connections of these chains; by name or index
}
