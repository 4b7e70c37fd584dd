package api

import "time"

// A Fleet is the answer of GET /api/v1/fleet: the composition of the connected clients, and what may soon exceed a limit.
type Fleet struct {
	APIVersion   string        `json:"apiVersion"`
	Kind         string        `json:"kind"` // "Fleet"
	Connected    int           `json:"connected"`
	Agents       []AgentCount  `json:"agents"`       // most clients first; at most 100
	Responses    []TypeLoad    `json:"responses"`    // the largest last responses; at most 20
	Names        []TypeLoad    `json:"names"`        // the most subscribed names; at most 20
	Certificates []Certificate `json:"certificates"` // in served resources, those that expire first; at most 100
}

// An AgentCount counts the clients of one program and version.
type AgentCount struct {
	Agent   string `json:"agent"` // such as "envoy 1.40.0"; "": unknown
	Clients Counts `json:"clients"`
}

// A TypeLoad is the size of one type on a client.
type TypeLoad struct {
	Node      string `json:"node"` // its ID, or the name to use in paths, such as "stream:41"
	Type      string `json:"type"`
	Bytes     int    `json:"bytes"`     // size of the last response
	Resources int    `json:"resources"` // number of resources in it
	Names     int    `json:"names"`     // number of names to which the client subscribes
}

// A Certificate is a certificate in a served resource. Certificates in files of the clients' machines are unknown.
type Certificate struct {
	Resource
	Group string    `json:"group"`
	Path  string    `json:"path,omitempty"` // of the message with the certificate
	Ends  time.Time `json:"ends"`           // the first end in the chain
}
