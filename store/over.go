package store

import "strings"

// over begins the names of groups that are laid over others. A name of a group that a person
// gives has no such byte.
const over = "\x00"

// Over returns the name of the group that is laid over a group in a store with [WithOvers].
func Over(group string) string { return over + group }

// IsOver reports whether a name is one that Over returns.
func IsOver(name string) bool { return strings.HasPrefix(name, over) }

// WithOvers has another group, which [Over] names, laid over each group, for who changes a little of
// it often and is not the one who says what is in it: nodes that see a group see of a name what that one
// has, if it has it. It is empty until something is written to it, and a node
// sees nothing of it before its own groups are known.
//
// Selectors do not name such groups, and [Watch.Groups] and [Snapshot.Groups] do not list them.
func WithOvers() Option {
	return func(st *Store) { st.overs = true }
}

// WithOverOf says which group's overlay is laid over a group, where it is not that with its own name: groups that are
// two states of one share what is laid over that. It must always say the same.
func WithOverOf(of func(group string) string) Option {
	return func(st *Store) { st.overOf = of }
}

// layered returns groups with those that are laid over them.
func (st *Store) layered(names []string) []string {
	if !st.overs {
		return names
	}
	all := make([]string, 0, 2*len(names))
	for _, name := range names {
		all = append(all, overOf(st.overOf, name), name)
	}
	return all
}

// overOf returns the name of what is laid over a group.
func overOf(of func(string) string, name string) string {
	if of != nil {
		name = of(name)
	}
	return Over(name)
}
