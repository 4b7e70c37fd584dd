package api

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/text"
)

// maxReadyNode is the maximum length of the node ID in a request for readiness, in bytes.
const maxReadyNode = 4 << 10

// A QueryError is a parameter for which a request is invalid.
type QueryError struct{ Param, Message, Hint string }

// ReadyQuery parses the query of GET /ready, on the admin API and on the listener of the metrics. Any other
// parameter is an error: a gate with a misspelled "strict" would otherwise pass.
func ReadyQuery(query string) (node string, strict bool, _ *QueryError) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", false, &QueryError{"query", "malformed: " + strings.TrimPrefix(err.Error(), "net/url: "), ""}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case name != "node" && name != "strict":
			return "", false, &QueryError{text.Head(name, 200), "unknown parameter", "this path takes node, strict"}
		case len(values[name]) > 1:
			return "", false, &QueryError{name, "given more than once", ""}
		case len(values[name][0]) > maxReadyNode:
			return "", false, &QueryError{name, fmt.Sprintf("more than %d bytes", maxReadyNode), ""}
		}
	}
	if values.Get("node") == "" {
		return "", false, &QueryError{"node", "is needed: the ID of one node", ""}
	}
	strict, ok := Flag(values, "strict")
	if !ok {
		return "", false, &QueryError{"strict", "must be 1, 0, true or false", ""}
	}
	return values.Get("node"), strict, nil
}

// Flag returns a boolean parameter; false if absent. A parameter without a value is true. It returns ok = false if
// the value is not a boolean.
func Flag(values url.Values, name string) (value, ok bool) {
	if !values.Has(name) {
		return false, true
	}
	switch values.Get(name) {
	case "", "1", "true":
		return true, true
	case "0", "false":
		return false, true
	}
	return false, false
}
