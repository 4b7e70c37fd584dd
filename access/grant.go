package access

import "github.com/chancery-xds/chancery/xds"

// A Grant is what an identity sees as a node. It never changes. The zero Grant sees nothing.
type Grant struct{ *grant }

// In returns what is seen by a node that gets these groups, all of them; each rule counts only
// if it lets the node have them all. An error is a [*Denied]: no rule does.
func (g Grant) In(groups []string) (Grant, error) { return g.in(groups) }

// Allows reports whether a resource is seen, by its own name: not by an alias.
func (g Grant) Allows(t *xds.Type, name string) bool { return g.filter(t).allows(name) }

// All reports whether all resources of a type are seen.
func (g Grant) All(t *xds.Type) bool { return g.filter(t) == nil }

// Key is equal of grants that show the same: they share what is filtered.
func (g Grant) Key() string { return g.key() }

// Rules returns the names of the rules that it is made of; none if it is the default.
func (g Grant) Rules() []string { return g.rules() }
