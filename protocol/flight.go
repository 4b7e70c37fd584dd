package protocol

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

const (
	// patience is how long a response may stay unanswered before the newest
	// state goes out all the same.
	patience = 5 * time.Second

	// maxFlights is how many unanswered responses of a type stay listed, so
	// that late answers find theirs.
	maxFlights = 4

	// maxGroups bounds what is remembered of refused responses; beyond it the
	// two oldest become one.
	maxGroups = 16
)

// An item is what a response said of one name: its stamp, absent, or nothing.
type item struct {
	name  string
	stamp *xds.Stamp
}

// A cargo is what a response carried, in the size of two pointers for a
// wildcard: the names in which from and to differ, and items, which override.
type cargo struct {
	from, to *xds.Versions
	items    []item // by name
}

// item returns the place of a name in items, and whether it is there.
func (c *cargo) item(name string) (int, bool) {
	return slices.BinarySearchFunc(c.items, name, func(it item, name string) int { return cmp.Compare(it.name, name) })
}

// carries returns what the cargo said of a name, or nil.
func (c *cargo) carries(name string) *xds.Stamp {
	if i, ok := c.item(name); ok {
		return c.items[i].stamp
	}
	if c.from == c.to {
		return nil
	}
	old, is := c.from.Get(name), c.to.Get(name)
	switch {
	case old == is || old != nil && is != nil && old.Sum == is.Sum:
		return nil
	case is == nil:
		return absent
	}
	return is
}

// all yields every name of the cargo with its stamp or absent.
func (c *cargo) all(yield func(string, *xds.Stamp) bool) {
	for _, it := range c.items {
		if it.stamp != nil && !yield(it.name, it.stamp) {
			return
		}
	}
	for old, is := range c.to.Since(c.from) {
		stamp := is
		if is == nil {
			stamp = absent
		}
		name := cmp.Or(is, old).Name
		if _, ok := c.item(name); ok {
			continue
		}
		if !yield(name, stamp) {
			return
		}
	}
}

// A part is one message of a flight: the upserts from lo to hi, by name.
type part struct {
	nonce   uint64
	lo, hi  string
	removed bool // it carried the removals
	settled bool
}

// A flight is a response that the client has not answered yet: one message, or
// several if it was split.
type flight struct {
	cargo
	parts   []part
	version string
	sent    time.Time
	seq     uint64          // the client is up to this change once it ACKs
	beats   []*xds.Resource // a heartbeat of these; nil: it is none
	stuck   bool            // a cluster in it has no assignment to give: no ACK is to be expected
	nacked  bool
	passed  bool // a later response was answered: nothing waits for this one
}

func (f *flight) settled() bool {
	return !slices.ContainsFunc(f.parts, func(p part) bool { return !p.settled })
}

// A group is what one refused response carried. "No version update after
// NACK": while all of it stays as it is, none of it is sent again; when one
// name changes, vanishes or is asked for again, all of it is, for the client
// may have applied none or some.
type group struct {
	cargo
	part
}

// has reports whether the refused response carried the name.
func (g *group) has(name string) bool {
	s := g.carries(name)
	return s != nil && g.within(name, s)
}

func (g *group) within(name string, s *xds.Stamp) bool {
	if s == absent {
		return g.removed
	}
	return g.lo <= name && name <= g.hi
}

// members yields the names of the group, and what was said of them.
func (g *group) members(yield func(string, *xds.Stamp) bool) {
	for name, s := range g.all {
		if g.within(name, s) && !yield(name, s) {
			return
		}
	}
}

// merge returns one group with the members of two.
func merge(a, b group) group {
	m := group{part: part{removed: true}}
	for _, g := range []group{a, b} {
		for name, s := range g.members {
			m.items = append(m.items, item{name, s})
			m.hi = max(m.hi, name)
		}
	}
	slices.SortStableFunc(m.items, func(a, b item) int { return cmp.Compare(a.name, b.name) })
	m.items = slices.CompactFunc(m.items, func(a, b item) bool { return a.name == b.name })
	return m
}

// settle pairs an answer with its response.
func (u *subscription) settle(s *Session, req xds.Request) {
	n, err := strconv.ParseUint(req.Nonce, 10, 64)
	at, p := -1, (*part)(nil)
	for i := range u.flights {
		for j := range u.flights[i].parts {
			if q := &u.flights[i].parts[j]; err == nil && q.nonce == n && !q.settled {
				at, p = i, q
			}
		}
	}
	if p == nil {
		if err == nil && n == u.nonce {
			return // a repeat at the newest nonce
		}
		s.event(Event{Kind: Stale, Type: u.typ, Nonce: req.Nonce})
		return
	}
	f := &u.flights[at]
	newest := at == len(u.flights)-1
	p.settled = true
	u.silent = s.now
	e := Event{Kind: Acked, Type: u.typ, Nonce: req.Nonce, Version: f.version, Took: s.now.Sub(f.sent), Settled: newest}
	// "NACK [...] is indicated by the presence of the error_detail field."
	if req.Error != nil {
		e.Kind, e.Error, e.InUse = Nacked, req.Error, req.Version
		f.nacked = true
		g := group{f.cargo, *p}
		if f.beats != nil {
			g.cargo = beaten(f.beats)
		}
		u.refuse(s.variant, g, newest)
	}
	s.event(e)
	if !f.settled() {
		return
	}
	if !f.nacked {
		if newest {
			u.spurned = nil
		}
		u.refused = slices.DeleteFunc(u.refused, func(g group) bool { return g.nonce < f.parts[0].nonce && f.covers(&g) })
		if !u.refuses() {
			u.acked = max(u.acked, f.seq)
		}
	}
	for i := range at { // what was sent before has been dealt with
		u.flights[i].passed = true
	}
	u.open = u.open && !newest
	if !u.open && !u.wildcard {
		u.base = nil
	}
	u.flights = slices.Delete(u.flights, at, at+1)
}

// refuse notes that the client has not taken what a message carried.
func (u *subscription) refuse(v xds.Variant, g group, newest bool) {
	if v == xds.SotW && u.typ.FullState {
		if newest {
			u.spurned = append(u.spurned[max(0, len(u.spurned)+1-maxGroups):], g) // the world is one group
		}
		return
	}
	if u.surpassed(&g) {
		// One of the names was told anew already. The others, which the client
		// may not have applied, would otherwise stay refused with it.
		u.touch(func(yield func(string, *xds.Stamp) bool) {
			for name, s := range g.members {
				if same(u.told(name), s) && !yield(name, s) {
					return
				}
			}
		})
		return
	}
	u.refused = append(u.refused, g)
	if len(u.refused) > maxGroups {
		u.refused = append([]group{merge(u.refused[0], u.refused[1])}, u.refused[2:]...)
	}
}

// covers reports whether a response carried all that another one carried.
func (c *cargo) covers(g *group) bool {
	for name, s := range g.members {
		if told := c.carries(name); told == nil || !same(told, s) {
			return false
		}
	}
	return true
}

// surpassed reports whether the client was told something else of a name since.
func (u *subscription) surpassed(g *group) bool {
	for name, s := range g.members {
		if !same(u.told(name), s) {
			return true
		}
	}
	return false
}

// dissolve ends the groups of which one of the names has moved, and reports
// whether there were any: all their names are to be told again.
func (u *subscription) dissolve(names func(func(string) bool)) (any bool) {
	for i := 0; i < len(u.refused); i++ {
		g := u.refused[i]
		moved := false
		for n := range names {
			if g.has(n) {
				moved = true
				break
			}
		}
		if moved {
			u.refused = slices.Delete(u.refused, i, i+1)
			i, any = i-1, true
			u.touch(g.members)
		}
	}
	return any
}

// abandon forgets the groups of which nothing is subscribed any more.
func (u *subscription) abandon() {
	u.refused = slices.DeleteFunc(u.refused, func(g group) bool {
		for n := range g.members {
			if u.covers(n) {
				return false
			}
		}
		return true
	})
}
