package xds

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
)

// A LimitError is the error of a request that exceeds a limit.
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
