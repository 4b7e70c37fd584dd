package api

// A ReferenceGraph is the answer of GET /api/v1/references/{type}/{name}: a resource of a group, the resources to
// which it refers, and the resources that refer to it, directly or over others.
type ReferenceGraph struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"` // "ReferenceGraph"
	Group      string          `json:"group"`
	Groups     []string        `json:"groups"` // all groups that have the resource
	Nodes      []ReferenceNode `json:"nodes"`  // the resource itself, then the others by distance
	Edges      []Reference     `json:"edges"`
	Cut        bool            `json:"cut"` // the graph lacks resources, because of limit or depth
}

// A ReferenceNode is a resource of a ReferenceGraph.
type ReferenceNode struct {
	Resource
	Group     string       `json:"group,omitempty"`     // the group that has the resource
	Missing   bool         `json:"missing,omitempty"`   // no group has the resource that a node gets together with the group of the reference
	Bootstrap bool         `json:"bootstrap,omitempty"` // a known bootstrap of the clients has the resource
	Cut       bool         `json:"cut,omitempty"`       // the graph lacks references of the resource
	Clients   *Subscribers `json:"clients,omitempty"`   // with ?subscribers=1, of the first 100 resources
}

// A Reference is a reference between two resources of a ReferenceGraph.
type Reference struct {
	From  int    `json:"from"` // index in nodes
	To    int    `json:"to"`
	Place string `json:"place,omitempty"` // of the field; only of the first 20 references to missing resources
}
