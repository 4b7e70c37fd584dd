package xds

import (
	"iter"
	"slices"
)

// An Address is an address that a client binds for a resource, such as the port of a listener. A client refuses
// a resource with an address that another of its resources has.
type Address struct {
	Port string // "tcp 8080", "udp 53", "unix /run/a.sock", "internal name"
	Host string // empty: every host
}

// overlaps reports whether one client cannot bind both addresses for different resources.
func (a Address) overlaps(b Address) bool {
	return a.Port == b.Port && (a.Host == "" || b.Host == "" || a.Host == b.Host)
}

// addresses returns the addresses of a resource.
func (s *Stamp) addresses() []Address {
	if s == nil || s.Addresses == nil {
		return nil
	}
	return *s.Addresses
}

// Frees reports whether the change of a resource from the state s to another one releases an address that a
// resource takes. A nil state means that the resource is removed.
func (s *Stamp) Frees(is, taker *Stamp) bool {
	return slices.ContainsFunc(s.addresses(), func(a Address) bool {
		return !slices.Contains(is.addresses(), a) && slices.ContainsFunc(taker.addresses(), a.overlaps)
	})
}

// HandOver returns the changes in an order in which each resource that releases an address comes before the
// resource that takes it (HEAL-4). A client applies the resources of a response in their order, after it has
// removed others. The parameter was has the states that the client may hold of the changed and removed names.
// HandOver returns c itself if its order and any split of it are right.
//
// Resources that exchange their addresses have no such order. They stay in the order of c.
func (c *Changes) HandOver(was iter.Seq[*Stamp]) *Changes {
	const removed = -1
	type leaver struct {
		Address
		at int // its index in Upserts, or removed
	}
	var freed map[string][]leaver
	var index map[string]int
	for old := range was {
		if old.Addresses == nil {
			continue
		}
		if freed == nil {
			freed, index = map[string][]leaver{}, make(map[string]int, len(c.Upserts))
			for i, r := range c.Upserts {
				index[r.Name] = i
			}
		}
		at, changed := index[old.Name]
		if !changed {
			at = removed
		}
		for _, a := range *old.Addresses {
			if !changed || !slices.Contains(c.Upserts[at].addresses(), a) {
				freed[a.Port] = append(freed[a.Port], leaver{a, at})
			}
		}
	}
	if len(freed) == 0 {
		return c
	}
	before := map[int][]int{} // the indexes that come before an index
	right := true
	for i, r := range c.Upserts {
		for _, a := range r.addresses() {
			for _, f := range freed[a.Port] {
				if f.overlaps(a) && f.at != i {
					before[i] = append(before[i], f.at)
					right = right && f.at != removed && f.at < i
				}
			}
		}
	}
	if right {
		return c
	}
	out := &Changes{Upserts: make([]*Resource, 0, len(c.Upserts)), Removed: c.Removed, Absent: c.Absent, Missing: c.Missing, Together: true}
	done := make([]bool, len(c.Upserts))
	var visit func(i int)
	visit = func(i int) {
		if i == removed || done[i] {
			return
		}
		done[i] = true
		slices.Sort(before[i])
		for _, j := range before[i] {
			visit(j)
		}
		out.Upserts = append(out.Upserts, c.Upserts[i])
	}
	for i := range c.Upserts {
		visit(i)
	}
	return out
}
