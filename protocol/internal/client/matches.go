package client

import (
	"iter"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file decides which names find a resource (CLI-12, NAME-2): "*", the resource's own name and,
// with delta, its aliases and its collection.

// matches has, by alias or collection, the names of the resources that it finds. No set is empty.
type matches map[string]map[string]bool

func (m matches) add(key, name string) {
	if m[key] == nil {
		m[key] = map[string]bool{}
	}
	m[key][name] = true
}

func (m matches) remove(key, name string) {
	delete(m[key], name)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// names returns the names of the resources that a key finds, sorted.
func (m matches) names(key string) []string { return slices.Sorted(maps.Keys(m[key])) }

// otherNames yields the aliases and the collection of a resource, without repetition. In SotW it
// yields nothing, because only delta has aliases and collections. The compiler inlines it, so that a
// loop over it allocates nothing: a response may have many resources.
func (ts *typeState) otherNames(name string, r *xds.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !ts.delta {
			return
		}
		var seen map[string]bool // nil: a linear search is enough for a few aliases
		if len(r.Aliases) > 8 {
			seen = make(map[string]bool, len(r.Aliases))
		}
		for i, a := range r.Aliases {
			a = xds.CanonicalName(a)
			repeated := seen[a] || seen == nil && slices.Contains(r.Aliases[:i], a)
			if a == name || a == xds.Wildcard || repeated {
				continue
			}
			if seen != nil {
				seen[a] = true
			}
			if !yield(a) {
				return
			}
		}
		c := ts.typ.Collection(name)
		if c != "" {
			yield(c)
		}
	}
}

// eachFinder yields the known names that find a resource.
func (ts *typeState) eachFinder(name string, r *xds.Resource, yield func(string, *nameState) bool) {
	if ts.wildcard != nil && !yield(xds.Wildcard, ts.wildcard) {
		return
	}
	n := ts.names[name]
	if n != nil && !yield(name, n) {
		return
	}
	for s := range ts.otherNames(name, r) {
		n := ts.names[s]
		if n != nil && !yield(s, n) {
			return
		}
	}
}

// covers reports whether any name finds a resource. Only names for which the function `is` returns
// true count, without the name `except`.
func (ts *typeState) covers(name string, r *xds.Resource, is func(*nameState) bool, except string) (covers bool) {
	ts.eachFinder(name, r, func(s string, n *nameState) bool {
		covers = is(n) && s != except
		return !covers
	})
	return covers
}

// Filters for covers: subscribed by the application, in the requests to the server, or either.
func isSubscribed(n *nameState) bool { return n.subscribed }
func isRequested(n *nameState) bool  { return n.requested }
func isWanted(n *nameState) bool     { return n.subscribed || n.requested }

// has reports whether a name is known and the function `is` returns true for it.
func (ts *typeState) has(name string, is func(*nameState) bool) bool {
	n := ts.names[name]
	return n != nil && is(n)
}

// subscribersOf returns the subscribed names that find a resource.
func (ts *typeState) subscribersOf(name string, r *xds.Resource) (list []string) {
	ts.eachFinder(name, r, func(s string, n *nameState) bool {
		switch {
		case !n.subscribed:
		case list == nil && s == xds.Wildcard:
			list = wildcardOnly
		default:
			list = append(list, s)
		}
		return true
	})
	return list
}

// wildcardOnly is shared. Its capacity is 1, so that append copies it.
var wildcardOnly = []string{xds.Wildcard}[:1:1]

// addToIndex adds a resource to held.
func (ts *typeState) addToIndex(name string, r *xds.Resource) {
	for s := range ts.otherNames(name, r) {
		ts.held.add(s, name)
	}
}

// removeFromIndex removes a resource from held.
func (ts *typeState) removeFromIndex(name string, r *xds.Resource) {
	for s := range ts.otherNames(name, r) {
		ts.held.remove(s, name)
	}
}

// matchesOthers reports whether a name finds held or refused resources as an alias or a collection.
func (ts *typeState) matchesOthers(name string) bool {
	return len(ts.held[name])+len(ts.refused[name]) > 0
}
