// Package sent has the content of the responses of a session: for each name, the state that the client was told
// before the response, and the state in the response. It knows nothing of subscriptions, order or messages.
package sent

import (
	"cmp"
	"iter"
	"slices"

	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// An Item has two states of one name: Is in a response, and Was as the client was told before.
// A state is a stamp, or absent. If Is is nil, the response does not have the name. Terms: see
// protocol/doc.go.
//
// Invariant: if Is is set, Was is set, too. A lapsed item removes the name.
type Item struct {
	Name    string
	Was, Is *xds.Stamp
	Lapsed  bool // removed because no subscription matches it any more, not because the client dropped it
	Member  bool // lapsed items: the collection of the name matched it before
}

// TellsNothing reports whether the client has no resource with this name, neither before the item
// nor after it.
func (it *Item) TellsNothing() bool {
	return !names.Stands(it.Was) && !names.Stands(it.Is) && !it.Lapsed
}

// Lapse records that the name is removed because no subscription matches it any more. With member
// set, its collection matched it before.
func (it *Item) Lapse(member bool) { it.Lapsed, it.Member = true, member }

// A Cargo is the content of a response. For a wildcard it has only two tables: the cargo has the
// names in which From and To differ, or all names of To (Whole). The items override these names.
type Cargo struct {
	From, To *xds.Versions
	Whole    bool   // all of To was sent, changed or not
	Dropped  bool   // the client has dropped the wildcard since: names without an item count as not held before this cargo
	Items    []Item // by name, each once
}

// ItemByName orders items by their names.
func ItemByName(a, b Item) int { return cmp.Compare(a.Name, b.Name) }

// Find returns the item of a name, or nil.
func (c *Cargo) Find(name string) *Item {
	i, ok := slices.BinarySearchFunc(c.Items, name, func(it Item, name string) int { return cmp.Compare(it.Name, name) })
	if !ok {
		return nil
	}
	return &c.Items[i]
}

// Carries returns the state of a name in the cargo, or nil if the cargo does not have the name.
func (c *Cargo) Carries(name string) *xds.Stamp {
	if it := c.Find(name); it != nil {
		return it.Is
	}
	if c.From == c.To && !c.Whole {
		return nil
	}
	old, is := c.From.Get(name), c.To.Get(name)
	switch {
	case old == nil && is == nil:
		return nil
	case is == nil:
		return names.Absent
	case !c.Whole && old != nil && old.Sum == is.Sum:
		return nil
	}
	return is
}

// Before returns the state that the client was told before the cargo, for a name in the cargo.
func (c *Cargo) Before(name string) *xds.Stamp {
	if it := c.Find(name); it != nil && it.Was != nil {
		return it.Was
	}
	return cmp.Or(c.Had(name), names.Absent)
}

// Had returns the state of a name that the wildcard subscription was told before the cargo, or nil.
func (c *Cargo) Had(name string) *xds.Stamp {
	if c.Dropped {
		return nil
	}
	return c.From.Get(name)
}

// Each yields every name of the cargo.
func (c *Cargo) Each(yield func(string, Item) bool) {
	for _, it := range c.Items {
		if it.Is != nil && !yield(it.Name, it) {
			return
		}
	}
	tell := func(was, is *xds.Stamp) bool {
		name := cmp.Or(is, was).Name
		if c.Dropped {
			was = nil
		}
		return c.Find(name) != nil || yield(name, Item{Name: name, Was: cmp.Or(was, names.Absent), Is: cmp.Or(is, names.Absent)})
	}
	if c.Whole {
		for is := range c.To.All() {
			if !tell(c.Had(is.Name), is) {
				return
			}
		}
	}
	for was, is := range c.To.Since(c.From) {
		if (is == nil || !c.Whole) && !tell(was, is) {
			return
		}
	}
}

// Add adds items for names that have none.
func (c *Cargo) Add(items []Item) {
	if len(items) > 0 {
		c.Items = append(c.Items, items...)
		slices.SortFunc(c.Items, ItemByName)
	}
}

// Without removes names from the cargo.
func (c *Cargo) Without(gone iter.Seq2[string, Item]) {
	var out []Item
	for name := range gone {
		if it := c.Find(name); it != nil {
			*it = Item{Name: name}
		} else if c.Carries(name) != nil {
			out = append(out, Item{Name: name})
		}
	}
	c.Add(out)
}
