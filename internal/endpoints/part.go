package endpoints

import (
	"cmp"
	"slices"
	"strings"
)

// A place is the common part of the endpoints of one LocalityLbEndpoints.
type place struct {
	priority int
	Locality
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.priority, o.priority), strings.Compare(p.Region, o.Region), strings.Compare(p.Zone, o.Zone), strings.Compare(p.SubZone, o.SubZone))
}

// A part has those entries of a cluster that are at one place, in the order of their IDs. Their encodings
// are contiguous. So one entry can be changed, and all can be copied, without visiting each.
type part struct {
	place
	entries []*entry
	lbs     []byte // the encodings of the entries
	ends    []int  // the end of each in lbs
	weight  uint64
}

// set adds or replaces an entry; nil removes the entry of the ID.
func (p *part) set(id string, e *entry) {
	i, has := find(p.entries, id)
	from := 0
	if i > 0 {
		from = p.ends[i-1]
	}
	to := from
	if has {
		to = p.ends[i]
		p.weight -= p.entries[i].share()
	}
	var lb []byte
	if e != nil {
		lb = e.lb
		p.weight += e.share()
	}
	switch {
	case e == nil && !has:
		return
	case e == nil:
		p.entries, p.ends = slices.Delete(p.entries, i, i+1), slices.Delete(p.ends, i, i+1)
	case has:
		p.entries[i] = e
	default:
		p.entries, p.ends = slices.Insert(p.entries, i, e), slices.Insert(p.ends, i, from)
	}
	p.lbs = slices.Replace(p.lbs, from, to, lb...)
	for more := len(lb) - (to - from); i < len(p.ends) && more != 0; i++ {
		p.ends[i] += more
	}
}

// place is the place of an entry.
func (e *entry) place() place { return place{e.Priority, e.Locality} }

// share is the weight that the entry adds to its locality.
func (e *entry) share() uint64 { return uint64(max(e.Weight, 1)) }

// move updates the parts for an ID whose entry changed from old to e; nil: there is none.
func (c *cluster) move(id string, old, e *entry) {
	if old == nil || e == nil || old.addr != e.addr {
		if old != nil {
			c.countAddr(old.addr, -1)
		}
		if e != nil {
			c.countAddr(e.addr, 1)
		}
	}
	if old != nil && (e == nil || e.place() != old.place()) {
		if i, has := c.part(old.place()); has {
			c.parts[i].set(id, nil)
			if len(c.parts[i].entries) == 0 {
				c.parts = slices.Delete(c.parts, i, i+1)
			}
		}
	}
	if e == nil {
		return
	}
	i, has := c.part(e.place())
	if !has {
		c.parts = slices.Insert(c.parts, i, &part{place: e.place()})
	}
	c.parts[i].set(id, e)
}

// part returns the index of the part of a place, or its insertion point.
func (c *cluster) part(at place) (int, bool) {
	return slices.BinarySearchFunc(c.parts, at, func(p *part, at place) int { return p.compare(at) })
}

// once returns the parts without duplicates: of the entries with one address, only the one with the
// smallest ID stays.
func (c *cluster) once() []*part {
	var first cluster
	for _, e := range c.entries {
		if first.addrs[e.addr] == 0 {
			first.move(e.id, nil, e)
		}
	}
	return first.parts
}

// find returns the index of an ID among entries, or its insertion point.
func find(entries []*entry, id string) (int, bool) {
	return slices.BinarySearchFunc(entries, id, func(e *entry, id string) int { return strings.Compare(e.id, id) })
}
