package protocol

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// This file has the order inside a type (ADS-10): aggregate clusters refer to clusters, and extension
// configs to extension configs. The members of a resource are the resources of its own type to which it
// refers. A type that waits for no other type waits for itself, by the rules of order.go: its function first
// returns the type itself. Only references by name count. Otherwise each cluster with unknown references
// would wait for all other clusters.

// first returns the type that the client must answer before resources of u that refer to it are sent.
func (u *subscription) first() *xds.Type {
	if u.ordersItself() {
		return u.typ
	}
	return u.typ.After
}

// ordersItself reports whether resources of u may wait for other resources of their type.
func (u *subscription) ordersItself() bool { return u.typ.After == nil }

// mayOrder reports whether an upsert of the wildcard's table may have to wait. On a client without clusters no
// cluster has to: a new cluster goes with its members.
func (s *Session) mayOrder(u *subscription, upserts []*xds.Resource) bool {
	if !u.ordersItself() {
		return true
	}
	return u.base.Len() > 0 && slices.ContainsFunc(upserts, func(r *xds.Resource) bool { return refersTo(r, u.typ) })
}

// refersTo reports whether r refers to a resource of a type by name.
func refersTo(r *xds.Resource, t *xds.Type) bool {
	return slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(t) && ref.Name != xds.Wildcard })
}

// mustWaitInside is the condition that r must wait, because the client may lack a member of r. If r is in a
// cycle, the resources of the cycle do not wait for each other, but each waits for the members of all. A
// resource that is new to the client does not wait, because its referrers wait for it and its members
// (mayLackWithMembers).
func (s *Session) mustWaitInside(u *subscription, r *xds.Resource) condition {
	if !refersTo(r, u.typ) || !s.canStay(u, r) {
		return condition{}
	}
	t := s.table(u.typ)
	by := s.reached(t, u.typ, r)
	cycle := map[string]bool{}
	spread(r.Name, by, cycle) // with r: each resource that r reaches and that reaches r
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if cycle[name] || !slices.ContainsFunc(by[name], func(n string) bool { return cycle[n] }) {
			continue
		}
		if is := s.mayLack(u, u, t, name, r.Name); is.holds {
			return is
		}
	}
	return condition{}
}

// canStay reports whether the client can go on with an earlier state of r. A full state repeats that
// state, so its content must be known, and the client must not have refused it.
func (s *Session) canStay(u *subscription, r *xds.Resource) bool {
	told := cmp.Or(u.leftovers[r.Name].stamp, u.told(r.Name))
	return stands(told) && differs(told, r) && (!s.tellsWorld(u) || !u.refuses(r.Name) && s.earlier(u, r.Name) != nil)
}

// reached returns the names of type to that r refers to, directly or through others of this type, each
// with the names of the resources that refer to it.
func (s *Session) reached(t *xds.Table, to *xds.Type, r *xds.Resource) (by map[string][]string) {
	for todo := []*xds.Resource{r}; len(todo) > 0; todo = todo[1:] {
		for _, ref := range todo[0].Refs {
			if !ref.Type.Is(to) || ref.Name == xds.Wildcard {
				continue
			}
			if by == nil {
				by = map[string][]string{}
			}
			for name, c := range s.found(t, ref.Name) {
				if by[name] == nil && c != nil && (name != r.Name || !r.Type.Is(to)) {
					todo = append(todo, c)
				}
				by[name] = append(by[name], todo[0].Name)
			}
		}
	}
	return by
}

// found yields the names that a reference means, with their resources: the name, or the resources with
// this alias.
func (s *Session) found(t *xds.Table, ref string) iter.Seq2[string, *xds.Resource] {
	return func(yield func(string, *xds.Resource) bool) {
		if !yield(ref, t.Lookup(ref)) || s.variant == xds.SotW || t.Lookup(ref) != nil {
			return
		}
		for c := range t.Aliased(ref).All() {
			if !yield(c.Name, c) {
				return
			}
		}
	}
}

// spread adds the names that a name reaches to seen, and returns the new ones, with the name itself.
func spread(name string, next map[string][]string, seen map[string]bool) (fresh []string) {
	for todo := []string{name}; len(todo) > 0; todo = todo[1:] {
		if n := todo[0]; !seen[n] {
			seen[n], fresh = true, append(fresh, n)
			todo = append(todo, next[n]...)
		}
	}
	return fresh
}

// fromRoots yields all names of a graph, each with one root that reaches it. Only names of its own cycle reach
// a root.
func fromRoots(next map[string][]string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		var roots []string // no root is reached by an earlier one, so the last is a root of the graph
		seen := map[string]bool{}
		for name := range next {
			if len(spread(name, next, seen)) > 0 {
				roots = append(roots, name)
			}
		}
		clear(seen)
		for _, name := range slices.Backward(roots) {
			if reached := spread(name, next, seen); len(reached) > 0 && !yield(name, reached) {
				return
			}
		}
	}
}

// mayLackWithMembers is the condition that the resource waiter of u must wait for a cluster or for one of
// its members.
func (s *Session) mayLackWithMembers(u, first *subscription, t *xds.Table, name, waiter string) condition {
	is, c := s.mayLack(u, first, t, name, waiter), t.Lookup(name)
	if is.holds || c == nil || !refersTo(c, first.typ) {
		return is
	}
	for _, member := range slices.Sorted(maps.Keys(s.reached(t, first.typ, c))) {
		if is := s.mayLack(u, first, t, member, waiter); is.holds {
			return is
		}
	}
	return condition{}
}

// outdatedByWait returns the resources that the client holds while a newer state waits, if their content
// is known.
func (s *Session) outdatedByWait(u *subscription) (all []*xds.Resource) {
	for name := range u.waiting.all {
		if r := s.earlier(u, name); r != nil && u.lingers(name) == nil {
			all = append(all, r)
		}
	}
	return all
}

// waitsTogether reports whether all names wait if one waits. A full state is sent as a whole. Inside a
// type it goes on with the earlier state of the waiting names (ADS-10).
func (s *Session) waitsTogether(u *subscription) bool { return s.tellsWorld(u) && !u.ordersItself() }

// substitutes returns the resources that a full state has in place of waiting ones.
func (s *Session) substitutes(u *subscription) []*xds.Resource {
	if u.waiting.len() == 0 || s.waitsTogether(u) {
		return nil
	}
	return s.outdatedByWait(u)
}

// holdMembers holds the kept members of kept resources. A member of a held resource is held as long. A
// member of a resource that leaves now is held until the client acknowledges that removal. Resources in a
// cycle leave together. The cost is the number of kept resources and of their references (SAFE-9).
func (u *subscription) holdMembers(refs []referrer) {
	i := slices.IndexFunc(refs, func(r referrer) bool { return r.why == delay.Member })
	if i < 0 {
		return
	}
	members, by := u.members(refs[i].kept)
	var holders []string
	for name, l := range u.leaving {
		if l.holds {
			holders = append(holders, name)
		}
	}
	slices.SortFunc(holders, func(a, b string) int { return u.leaving[b].end().Compare(u.leaving[a].end()) })
	seen := map[string]bool{}
	for _, name := range holders { // the longest hold first, so each member is visited once
		for _, n := range spread(name, members, seen) {
			if n != name {
				u.leaving[n].join(u.leaving[name].condition)
			}
		}
	}
	for root, reached := range fromRoots(members) {
		cycle := map[string]bool{}
		spread(root, by, cycle)
		for _, n := range reached {
			if m := u.leaving[n]; !cycle[n] && !m.holds {
				m.join(because(delay.Member))
			}
		}
	}
}

// members returns the kept members of each kept resource, and the kept resources that refer to each of them.
func (u *subscription) members(kept []*xds.Stamp) (members, by map[string][]string) {
	found := map[string][]string{} // kept names by name, collection and alias
	for name, l := range u.leaving {
		if !l.Released {
			for _, n := range l.called(u.typ, name) {
				found[n] = append(found[n], name)
			}
		}
	}
	members, by = map[string][]string{}, map[string][]string{}
	for _, st := range kept {
		for _, ref := range st.Refs {
			if !ref.Type.Is(u.typ) {
				continue
			}
			for _, n := range found[ref.Name] {
				members[st.Name], by[n] = append(members[st.Name], n), append(by[n], st.Name)
			}
		}
	}
	return members, by
}

// called returns the names by which references find a kept resource.
func (l *leaver) called(t *xds.Type, name string) []string {
	all := []string{name}
	if c := t.Collection(name); c != "" {
		all = append(all, c)
	}
	if l.Body != nil {
		all = append(all, l.Body.Aliases...)
	}
	return all
}
