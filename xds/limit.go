package xds

import "fmt"

// A Limit is the name of a limit for clients. Errors, logs and metrics have this name, so that a
// program can distinguish limits without the text of the error.
type Limit string

// Limits of a request.
const (
	LimitTypes      Limit = "types"       // resource types on one stream
	LimitNames      Limit = "names"       // names of one type
	LimitNameLength Limit = "name_length" // bytes of a name, of a version or of a node's id
	LimitNode       Limit = "node"        // bytes of a node
	LimitTypeURL    Limit = "type_url"    // bytes of a type URL
	LimitUnanswered Limit = "unanswered"  // responses without an answer
)

// Limits of a client for a server.
const (
	LimitResponse Limit = "upstream_response" // bytes of a response, and of its entries in memory
	LimitHeld     Limit = "upstream_held"     // bytes of all resources in memory
)

// A MemoryLimit is a client's limit for the memory of resources, in bytes. The zero value is no limit.
type MemoryLimit struct {
	Bytes int
	Hint  string // how to raise the limit, for errors, such as "--flag"; empty: no hint
}

// Exceeded returns the error of something that exceeds the limit.
func (m MemoryLimit) Exceeded(limit Limit, what string) *LimitError {
	hint := ""
	if m.Hint != "" {
		hint = " (" + m.Hint + ")"
	}
	return &LimitError{limit, fmt.Errorf("%s, more than the limit of %d bytes%s", what, m.Bytes, hint)}
}

// A LimitError is the error of a request or a response that exceeds a limit.
type LimitError struct {
	Limit Limit
	Err   error // the exceeded value, for people
}

// Error implements error.
func (e *LimitError) Error() string {
	if e.Err == nil {
		return "limit exceeded: " + string(e.Limit)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *LimitError) Unwrap() error { return e.Err }

// GRPCMessageSize is the largest message, in bytes, that gRPC clients accept by default. Envoy has no such limit.
const GRPCMessageSize = 4 << 20

// The measured memory of one entry, in bytes, in all parts of a relay together.
const (
	resourceMemory = 3 << 10 // a resource, without its texts
	nameMemory     = 1 << 10 // an alias, or a requested name without a resource, without its text
)

// Memory returns the bytes that a resource counts in a [MemoryLimit]. A nil resource counts 0.
func (r *Resource) Memory() int {
	if r == nil || r.Stamp == nil {
		return 0
	}
	n := resourceMemory + len(r.Body) + len(r.Name) + len(r.Version)
	for _, a := range r.Aliases {
		n += NameMemory(a)
	}
	return n
}

// NameMemory returns the bytes that a requested name without a resource counts in a [MemoryLimit].
func NameMemory(name string) int { return nameMemory + len(name) }
