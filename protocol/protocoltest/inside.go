package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file makes and judges references inside a type (ADS-10): the resources to which a resource refers in
// its type are its members.

// memberRefs chooses members of a resource. A member may be the resource itself.
func (c *content) memberRefs(url string) (refs []xds.Ref) {
	for _, k := range []int{atClusters, atFilters} {
		if kinds[k].url != url || c.inner.IntN(3) > 0 {
			continue
		}
		for range 1 + c.inner.IntN(2) {
			refs = append(refs, xds.Ref{Type: kinds[k].typ(), Name: kinds[k].names[c.inner.IntN(len(kinds[k].names))]})
		}
	}
	return refs
}

// group chooses the members of new and of some old resources of a whole world, and adds all members to needed. It
// returns the resources with other members.
func (c *content) group(k kind, needed map[string]bool) (again map[string]bool) {
	again = map[string]bool{}
	for todo := slices.Sorted(maps.Keys(needed)); len(todo) > 0; todo = todo[1:] {
		name := todo[0]
		if c.view.Table(k.typ()).Lookup(name) == nil || c.inner.IntN(4) == 0 {
			c.members[k.url+name] = c.memberRefs(k.url)
			again[name] = true
		}
		for _, ref := range c.members[k.url+name] {
			if !needed[ref.Name] {
				needed[ref.Name] = true
				todo = append(todo, ref.Name)
			}
		}
	}
	return again
}

// refersInside reports whether a resource of a type refers to the name in its own type; "": to any name.
func refersInside(t *xds.Type, r *xds.Resource, name string) bool {
	return r != nil && slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(t) && (name == "" || ref.Name == name) })
}

// leadsInside reports whether references inside a type lead from one name to another.
func leadsInside(t *xds.Type, from, to string, resources func(string) []*xds.Resource) bool {
	seen := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		for _, r := range resources(todo[0]) {
			if refersInside(t, r, to) {
				return true
			}
			for _, ref := range r.Refs {
				if ref.Type.Is(t) && !seen[ref.Name] {
					seen[ref.Name] = true
					todo = append(todo, ref.Name)
				}
			}
		}
	}
	return false
}

// waitsInside reports whether a resource may wait for others of its type, so that the client keeps an earlier state.
func (l *ledger) waitsInside(a *account, name string) bool {
	return a.typ.After == nil && refersInside(a.typ, l.shown(a, name), "")
}

// checkMembers checks that a resource that the client holds changes after its members.
func (l *ledger) checkMembers(a *account, r *xds.Response) error {
	for _, x := range r.Upserts {
		if k := a.acked[x.Name]; !l.waitsInside(a, x.Name) || k.res == nil || a.lastSent[x.Name].res == nil || a.lastSent[x.Name].is(x) || len(a.refused) > 0 || a.full && k.seq == 0 {
			continue
		}
		inView := func(n string) []*xds.Resource { // a cycle may pass through members that the client has not subscribed to
			if is := a.table.Lookup(n); is != nil {
				return []*xds.Resource{is}
			}
			return nil
		}
		for _, ref := range x.Refs {
			if !ref.Type.Is(a.typ) || ref.Name == x.Name || leadsInside(a.typ, ref.Name, x.Name, inView) {
				continue // members of a cycle go together
			}
			if err := l.checkCluster(a, a, x, ref.Name); err != nil {
				return fmt.Errorf("ADS-10: %w", err)
			}
		}
	}
	return nil
}

// refersInsideSurely returns a resource on the client that the view has lost or replaced, and that refers to a removed
// name of its type.
func (l *ledger) refersInsideSurely(a *account, name string) *xds.Resource {
	held := func(n string) (all []*xds.Resource) {
		for _, k := range []fact{a.acked[n], a.lastSent[n]} {
			if k.res != nil {
				all = append(all, k.res)
			}
		}
		return all
	}
	if slices.ContainsFunc(a.flights, func(f *flight) bool { return l.now.Sub(f.at) >= silentAfter }) {
		return nil
	}
	for n, k := range a.acked {
		if k.res == nil || k.is(l.shown(a, n)) || l.variant == xds.SotW && !a.full || n == name || !a.covers(n) {
			continue
		}
		if refersInside(a.typ, k.res, name) && !leadsInside(a.typ, name, n, held) {
			return k.res
		}
	}
	return nil
}

// mayBeMember reports whether any state of a resource that the client may hold refers to a name of its type.
func (l *ledger) mayBeMember(a *account, name string) bool {
	refers := func(r *xds.Resource) bool { return refersInside(a.typ, r, name) }
	for _, t := range l.opts.Recent(a.typ) {
		if (len(a.refused) > 0 || l.resumes) && slices.ContainsFunc(slices.Collect(t.All()), refers) {
			return true
		}
	}
	all := []map[string]fact{a.lastSent, a.acked}
	for _, f := range a.flights {
		all = append(all, f.carried)
	}
	for _, facts := range all {
		for n, k := range facts {
			if refers(k.res) && !k.is(l.shown(a, n)) {
				return true
			}
		}
	}
	return false
}

// brokenMember returns a complaint if a client holds a cluster without a member that exists.
func (n *lane) brokenMember() string {
	a, held := n.ledger.account(xds.Cluster), n.client.held(xds.Cluster)
	if a == nil || n.only != nil || n.limit > 0 || !a.wildcard { // a response in parts; or the client subscribes to members later
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		for _, ref := range held[name].Refs {
			if ref.Type.Is(xds.Cluster) && held[ref.Name] == nil && !n.lostByItself(ref.Name) && !n.lostByItself(name) {
				return fmt.Sprintf("ADS-10: %s is held without %s", show(held[name]), ref.Name)
			}
		}
	}
	return ""
}
