package xds

// A Limit is the name of a limit to which clients are held. What tells of one names it, so
// that nobody has to find it in a text.
type Limit string

// Limits of what a request says.
const (
	LimitTypes      Limit = "types"       // resource types on one stream
	LimitNames      Limit = "names"       // names of one type
	LimitNameLength Limit = "name_length" // bytes of a name, of a version or of a node's id
	LimitNode       Limit = "node"        // bytes of a node
	LimitTypeURL    Limit = "type_url"    // bytes of a type URL
)

// A LimitError is that of a request which exceeds a limit.
type LimitError struct {
	Limit Limit
	Err   error // what is too much, for people
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
