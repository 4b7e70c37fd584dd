package protocol

import (
	"cmp"
	"iter"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// An item has two states of one name: `is` in a response, and `was` as the client was told before.
// A state is a stamp, or absent. If `is` is nil, the response does not have the name. Terms: see
// doc.go.
//
// Invariant: if `is` is set, `was` is set, too. A lapsed item removes the name.
type item struct {
	name    string
	was, is *xds.Stamp
	lapsed  bool // removed because no subscription matches it any more, not because the client dropped it
	member  bool // lapsed items: the collection of the name matched it before
}

// tellsNothing reports whether the client has no resource with this name, neither before the item
// nor after it.
func (it *item) tellsNothing() bool { return !stands(it.was) && !stands(it.is) && !it.lapsed }

// lapse records that the name is removed because no subscription matches it any more. With member
// set, its collection matched it before.
func (it *item) lapse(member bool) { it.lapsed, it.member = true, member }

// A cargo is the content of a response. For a wildcard it has only two tables: the cargo has the
// names in which from and to differ, or all names of to (whole). The items override these names.
type cargo struct {
	from, to *xds.Versions
	whole    bool   // all of to was sent, changed or not
	dropped  bool   // the client has dropped the wildcard since: names without an item count as not held before this cargo
	items    []item // by name, each once
}

func itemByName(a, b item) int { return cmp.Compare(a.name, b.name) }

// find returns the item of a name, or nil.
func (c *cargo) find(name string) *item {
	i, ok := slices.BinarySearchFunc(c.items, name, func(it item, name string) int { return cmp.Compare(it.name, name) })
	if !ok {
		return nil
	}
	return &c.items[i]
}

// carries returns the state of a name in the cargo, or nil if the cargo does not have the name.
func (c *cargo) carries(name string) *xds.Stamp {
	if it := c.find(name); it != nil {
		return it.is
	}
	if c.from == c.to && !c.whole {
		return nil
	}
	old, is := c.from.Get(name), c.to.Get(name)
	switch {
	case old == nil && is == nil:
		return nil
	case is == nil:
		return absent
	case !c.whole && old != nil && old.Sum == is.Sum:
		return nil
	}
	return is
}

// before returns the state that the client was told before the cargo, for a name in the cargo.
func (c *cargo) before(name string) *xds.Stamp {
	if it := c.find(name); it != nil && it.was != nil {
		return it.was
	}
	return cmp.Or(c.had(name), absent)
}

// had returns the state of a name that the wildcard subscription was told before the cargo, or nil.
func (c *cargo) had(name string) *xds.Stamp {
	if c.dropped {
		return nil
	}
	return c.from.Get(name)
}

// each yields every name of the cargo.
func (c *cargo) each(yield func(string, item) bool) {
	for _, it := range c.items {
		if it.is != nil && !yield(it.name, it) {
			return
		}
	}
	tell := func(was, is *xds.Stamp) bool {
		name := cmp.Or(is, was).Name
		if c.dropped {
			was = nil
		}
		return c.find(name) != nil || yield(name, item{name: name, was: cmp.Or(was, absent), is: cmp.Or(is, absent)})
	}
	if c.whole {
		for is := range c.to.All() {
			if !tell(c.had(is.Name), is) {
				return
			}
		}
	}
	for was, is := range c.to.Since(c.from) {
		if (is == nil || !c.whole) && !tell(was, is) {
			return
		}
	}
}

// add adds items for names that have none.
func (c *cargo) add(items []item) {
	if len(items) > 0 {
		c.items = append(c.items, items...)
		slices.SortFunc(c.items, itemByName)
	}
}

// without removes names from the cargo.
func (c *cargo) without(names iter.Seq2[string, item]) {
	var out []item
	for name := range names {
		if it := c.find(name); it != nil {
			*it = item{name: name}
		} else if c.carries(name) != nil {
			out = append(out, item{name: name})
		}
	}
	c.add(out)
}
