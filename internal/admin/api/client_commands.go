package api

// A ClientRequest is the body of a command for clients: POST /api/v1/clients/{node}/resync and
// /disconnect, and the same for a group.
type ClientRequest struct {
	Type   string `json:"type,omitempty"` // resync: only this type
	Name   string `json:"name,omitempty"` // resync: only this resource of the type
	Author string `json:"author,omitempty"`
}

// A ClientCommand is the answer to a command for clients. It covers all servers that the command reached.
type ClientCommand struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`    // "ClientCommand"
	Command    string     `json:"command"` // "resync" or "disconnect"
	Node       string     `json:"node,omitempty"`
	Group      string     `json:"group,omitempty"`
	Streams    int        `json:"streams"`            // streams that the command reaches
	Over       string     `json:"over,omitempty"`     // for a group: the time over which the streams are spread, such as 30s
	Types      []SentType `json:"types,omitempty"`    // resync of a client: what is sent again
	Replicas   []Replica  `json:"replicas,omitempty"` // with ?replicas=1: all servers of the store
	Unsure     string     `json:"unsure,omitempty"`   // why the list of servers may be incomplete; "": it is complete
}

// A SentType counts the resources of a type that a client is sent again.
type SentType struct {
	Type      string `json:"type"`
	Resources int    `json:"resources"`          // resources that the client was sent, including refused ones
	Released  int    `json:"released,omitempty"` // refused resources that leave quarantine, and are sent in addition
}
