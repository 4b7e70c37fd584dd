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
			refs = append(refs, pick(c.inner, k))
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

// leadsInside reports whether references inside a type lead from one name to another.
func leadsInside(t *xds.Type, from, to string, resources func(string) []*xds.Resource) bool {
	seen := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		for _, r := range resources(todo[0]) {
			for _, name := range refs(r, t) {
				if !seen[name] {
					seen[name] = true
					todo = append(todo, name)
				}
			}
		}
	}
	return seen[to]
}

// waitsInside reports whether a resource may wait for others of its type, so that the client keeps an earlier state.
func (l *ledger) waitsInside(a *account, name string) bool {
	return a.typ.After == nil && len(refs(l.shown(a, name), a.typ)) > 0
}

// checkMembers checks that a resource that the client holds changes after its members.
func (l *ledger) checkMembers(a *account, r *xds.Response) error {
	inView := func(n string) []*xds.Resource { return []*xds.Resource{a.table.Lookup(n)} } // also members to which the client has not subscribed
	for _, x := range r.Upserts {
		if !l.changesInside(a, x) {
			continue
		}
		for _, n := range refs(x, a.typ) {
			if n == x.Name || leadsInside(a.typ, n, x.Name, inView) {
				continue // members of a cycle go together
			}
			if err := l.checkCluster(a, a, x, n); err != nil {
				return fmt.Errorf("ADS-10: %w", err)
			}
		}
	}
	return nil
}

// changesInside reports whether a resource changes on the client, and should wait for its members.
func (l *ledger) changesInside(a *account, x *xds.Resource) bool {
	held, sent := a.acked[x.Name], a.lastSent[x.Name]
	surely := held.res != nil && len(a.refused) == 0 && (!a.full || held.seq > 0)
	return surely && l.waitsInside(a, x.Name) && sent.res != nil && !sent.is(x)
}

// refersInsideSurely returns a resource on the client that the view has lost or replaced, and that refers to a removed
// name of its type.
func (l *ledger) refersInsideSurely(a *account, name string) *xds.Resource {
	held := func(n string) []*xds.Resource { return l.statesOf(a, n) }
	if l.variant == xds.SotW && !a.full || l.waitsTooLong(a) {
		return nil
	}
	for n, k := range a.acked {
		if a.covers(n) && !k.is(l.shown(a, n)) && refersTo(k.res, a.typ, name) && !leadsInside(a.typ, name, n, held) {
			return k.res
		}
	}
	return nil
}

// statesOf returns the states of a name that the client may hold: on a new stream, any earlier one.
func (l *ledger) statesOf(a *account, name string) []*xds.Resource {
	all := []*xds.Resource{a.acked[name].res, a.lastSent[name].res}
	if l.resumes {
		for _, t := range l.opts.Recent(a.typ) {
			all = append(all, t.Lookup(name))
		}
	}
	return all
}

// mayBeMember reports whether any state of a resource that the client may hold refers to a name of its type. After a
// response without an answer the client may hold any earlier state.
func (l *ledger) mayBeMember(a *account, name string) bool {
	refers := func(r *xds.Resource) bool { return refersTo(r, a.typ, name) }
	unsure := len(a.refused)+len(a.flights) > 0 || l.resumes
	if unsure && slices.ContainsFunc(l.opts.Recent(a.typ), func(t *xds.Table) bool { return slices.ContainsFunc(slices.Collect(t.All()), refers) }) {
		return true
	}
	for n, k := range a.sentOrAcked {
		if refers(k.res) && !k.is(l.shown(a, n)) {
			return true
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
		for _, member := range refs(held[name], xds.Cluster) {
			if held[member] == nil && !n.lostByItself(member) && !n.lostByItself(name) {
				return fmt.Sprintf("ADS-10: %s is held without %s", show(held[name]), member)
			}
		}
	}
	return ""
}
