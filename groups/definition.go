package groups

import (
	"cmp"
	"strconv"

	"github.com/chancery-xds/chancery/findings"
)

// A Definition is the content of one group.yaml.
type Definition struct {
	// Name is the name of the group. It is empty after [Parse] if the file has no name. Then the reader
	// of the directory sets it: to the path from the root, or to Default for the root itself.
	Name string

	Match    *Match   // the nodes that get the group; nil: none, unless another group includes it
	Include  []string // groups whose resources are added with lower precedence
	Priority int      // groups with a higher priority have precedence
	Alone    bool     // an error in its files does not stop changes of other groups
	Lane     *Lane    // set if the group is a lane of another group

	// Otherwise is for the root only. It names the group for nodes that match no group: Default,
	// Refuse, or the name of a group. Empty: Default.
	Otherwise string

	File   string
	places map[string]findings.Problem // positions of keys, with their excerpts
}

// problem returns a problem with the position of a key, such as "name" or "include[0]". If the file
// does not have the key, the position is the beginning of the file.
func (d *Definition) problem(code findings.Code, key, message, hint string) findings.Problem {
	p, ok := d.places[key]
	if !ok {
		p = findings.Problem{File: cmp.Or(d.File, "group "+strconv.Quote(d.Name)), Path: key}
		if d.File != "" {
			p.Pos = findings.Pos{Line: 1, Column: 1}
		}
	}
	p.Code, p.Message, p.Hint = code, message, hint
	return p
}

// has reports whether the file has a key.
func (d *Definition) has(key string) bool { _, ok := d.places[key]; return ok }

// A Match is a condition for nodes. All fields that are set must hold, so the zero Match holds for each
// node.
type Match struct {
	ID, Cluster, Region, Zone, SubZone, UserAgentName, UserAgentVersion Values

	Metadata []MetadataMatch

	All []Match
	Any []Match // one must hold; nil: no condition; empty but not nil: holds for no node
	Not *Match
	CEL string // an expression that must be true; empty: no condition

	place Place
	cel   string // its key in Definition.places
}

// Values are the allowed values of a field; one of them must match. Nil: no condition. A string is a
// pattern (docs/patterns.md). In metadata, a value may also be a float64 or a bool.
type Values []any

// A MetadataMatch is a condition for a value in the node's metadata. If the value is a list, one of its
// elements must match.
type MetadataMatch struct {
	Path   []string // keys, the outermost first
	Values Values
}
