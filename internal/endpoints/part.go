package endpoints

import (
	"cmp"
	"slices"
	"strings"
)

// A place is what the endpoints of one LocalityLbEndpoints have in common.
type place struct {
	priority int
	Locality
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.priority, o.priority), strings.Compare(p.Region, o.Region), strings.Compare(p.Zone, o.Zone), strings.Compare(p.SubZone, o.SubZone))
}

// A part is those entries of a cluster that are at one place, in the order of their IDs. They are side by side as they are served, so that
// one of them is changed, and all are copied, without a look at each.
type part struct {
	place
	entries []*entry
	lbs     []byte // of the entries
	ends    []int  // where that of each ends
	weight  uint64
}

// set has the part have an entry, or none of an ID.
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

// place is where an entry is.
func (e *entry) place() place { return place{e.Priority, e.Locality} }

// share is the weight that it adds to its locality.
func (e *entry) share() uint64 { return uint64(max(e.Weight, 1)) }

// move has the entry of an ID be where it is now, and no more where it was; nil: there is none.
func (c *cluster) move(id string, old, e *entry) {
	if old == nil || e == nil || old.addr != e.addr {
		if old != nil {
			c.has(old.addr, -1)
		}
		if e != nil {
			c.has(e.addr, 1)
		}
	}
	if old != nil && (e == nil || e.place() != old.place()) {
		if i, has := c.part(old.place()); has {
			if c.parts[i].set(id, nil); len(c.parts[i].entries) == 0 {
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

// part returns where the part of a place is, or would be.
func (c *cluster) part(at place) (int, bool) {
	return slices.BinarySearchFunc(c.parts, at, func(p *part, at place) int { return p.compare(at) })
}

// once returns the parts without entries whose address one with a smaller ID has.
func (c *cluster) once() []*part {
	var first cluster
	for _, e := range c.entries {
		if first.addrs[e.addr] == 0 {
			first.move(e.id, nil, e)
		}
	}
	return first.parts
}

// find returns where an ID is among entries, or would be.
func find(entries []*entry, id string) (int, bool) {
	return slices.BinarySearchFunc(entries, id, func(e *entry, id string) int { return strings.Compare(e.id, id) })
}
