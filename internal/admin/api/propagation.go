package api

import "time"

// A Propagation is the answer of GET /api/v1/propagation: how fast the clients of this server accepted its last
// commits, and the clients that have not accepted the newest configuration.
type Propagation struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`  // "Propagation"
	Items      []Spread  `json:"items"` // the last commits with accepted responses, newest first; at most 8
	Clients    Counts    `json:"clients"`
	Missing    []Missing `json:"missing"` // connected clients that are not synced, worst first; at most 20
}

// A Spread is the propagation of a commit. A client has accepted the commit when it has answered all responses that
// the server sent after the commit and before the next one. The times have a precision of a tenth.
type Spread struct {
	Revision uint64        `json:"revision"` // number of this server, as in the status
	At       time.Time     `json:"at"`
	Clients  int           `json:"clients"` // clients that have accepted it, also those that have disconnected since
	P50      float64       `json:"p50_ms"`
	P99      float64       `json:"p99_ms"`
	Last     float64       `json:"last_ms"` // time of the last client
	Curve    []SpreadPoint `json:"curve"`
}

// A SpreadPoint is a point of the curve of a Spread.
type SpreadPoint struct {
	After   float64 `json:"ms"`      // time since the commit
	Clients int     `json:"clients"` // clients that had accepted the commit
}

// A Missing is a client that has not accepted the newest configuration.
type Missing struct {
	Node  string `json:"node"`
	Path  string `json:"path,omitempty"` // as in Client
	State State  `json:"state"`
	Type  string `json:"type,omitempty"` // the first type in that state
	Why   string `json:"why,omitempty"`  // such as the error text of a refusal
}
