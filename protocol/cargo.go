package protocol

import (
	"cmp"
	"iter"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// An item is what a response said of one name, and what had been told before: a
// stamp, or absent. If is is nil it said nothing.
//
// Invariant: unless is is nil, was is not; what has lapsed was told to be gone.
type item struct {
	name    string
	was, is *xds.Stamp
	lapsed  bool // that it is gone since nothing finds it any more: the client has not given it up
	member  bool // and it was found by its collection then
	older   bool // only what has become one with the response said so
}

// tellsNothing reports whether the client may have nothing of the name, before and after.
func (it *item) tellsNothing() bool { return !stands(it.was) && !stands(it.is) && !it.lapsed }

// lapse notes that nothing finds any more what was told to be gone.
func (it *item) lapse(member bool) { it.lapsed, it.member = true, member }

// A cargo is what a response carried, in the size of two pointers for a
// wildcard: the names in which from and to differ, or all of to, and items,
// which override.
type cargo struct {
	from, to *xds.Versions
	whole    bool   // all of to was told, changed or not
	dropped  bool   // all of it was given up since: of what has no item the client had nothing before
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

// carries returns what the cargo said of a name, or nil.
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

// before returns what had been told of a name that the cargo carries.
func (c *cargo) before(name string) *xds.Stamp {
	if it := c.find(name); it != nil && it.was != nil {
		return it.was
	}
	return cmp.Or(c.had(name), absent)
}

// had returns what had been told of a name by way of the wildcard, or nil.
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

// add adds items of names that have none.
func (c *cargo) add(items []item) {
	if len(items) > 0 {
		c.items = append(c.items, items...)
		slices.SortFunc(c.items, itemByName)
	}
}

// without takes names out.
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
