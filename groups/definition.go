package groups

import (
	"cmp"
	"strconv"

	"github.com/chancery-xds/chancery/findings"
)

// A Definition is what one group.yaml says.
type Definition struct {
	// Name is the group's. If the file says none it is empty after [Parse], and whoever
	// reads the directory sets the path from the root, or Default for the root itself.
	Name string

	Match    *Match   // which nodes get it; nil: none by itself
	Include  []string // groups whose resources are added behind its own
	Priority int      // the higher comes first
	Alone    bool     // an error in its files keeps nobody else's from changing
	Lane     *Lane    // of which group it is one; nil: of none

	// Otherwise is what nodes get that match no group, in the root: Default, Refuse, or the
	// name of a group. Empty: Default.
	Otherwise string

	File   string
	places map[string]findings.Problem // places of keys, with what is quoted of them
}

// problem returns a problem at a key, such as "name" or "include[0]"; at the beginning of the
// file if the key is not there.
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

// A Match says for which nodes a group is. All that is set must hold, so the zero Match
// holds for every node.
type Match struct {
	ID, Cluster, Region, Zone, SubZone, UserAgentName, UserAgentVersion Values

	Metadata []Entry

	All []Match
	Any []Match // one must hold; nil: not asked. If it is empty and not nil, the Match holds for no node
	Not *Match
	CEL string // an expression that must be true; empty: none

	place Place
	cel   string // the key of its place in Definition.places
}

// Values are what a field may be: one of them. Nil: it is not asked. Each is a pattern, a
// string that must be equal, in which "*" stands for any characters, "?" for one, and `\`
// makes the next character a plain one. In metadata it may be a float64 or a bool.
type Values []any

// An Entry asks for a value in the node's metadata. In a list one of the elements must do.
type Entry struct {
	Path   []string // keys, from the outermost
	Values Values
}
