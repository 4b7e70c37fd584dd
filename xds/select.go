package xds

import (
	"iter"
	"weak"
)

// A part describes a table that shows only some resources of another table.
type part struct {
	of     weak.Pointer[Table]
	keep   func(name string) bool
	hidden int // resources of the other table that the part does not have; -1: not counted
}

// Part returns the part of the table with the names that keep selects. If keep selects all names and no
// resource was removed recently, it returns the table itself.
//
// A part does not keep the table alive. [Table.Departed] of the part finds the selected names only.
// The version of the part is the hash of its content, even if the table has a supplied version.
//
// The argument from may be the result of Part on an older table, with a function that selects the
// same names. Then the cost depends on the difference between the two tables. If from is nil, or
// the older table was already collected as garbage, the cost depends on the size of the table.
func (t *Table) Part(keep func(name string) bool, from *Table) *Table {
	old, hidden := from, 0
	if from != nil && from.part != nil {
		old, hidden = from.part.of.Value(), from.part.hidden
		if hidden < 0 {
			old = nil
		}
	}
	switch old {
	case nil:
		from, old, hidden = &Table{typ: t.typ}, &Table{}, 0
	case t:
		return from
	}
	var set []*Resource
	var remove []string
	diff(old.bodies.root, t.bodies.root, 0, func(a, b *Resource) bool { return a == b }, func(was, is *Resource) bool {
		r := is
		if is == nil {
			r = was
		}
		switch shown := keep(r.Name); {
		case shown && is != nil:
			set = append(set, is)
		case shown:
			remove = append(remove, r.Name)
		case is == nil:
			hidden--
		case was == nil:
			hidden++
		}
		return true
	})
	if hidden == 0 && !t.remembers() {
		return t
	} else if hidden == 0 { // the names of removed resources may still be hidden
		from, set, remove = t, nil, nil
	}
	return t.partly(from, set, remove, part{keep: keep, hidden: hidden})
}

// Changed yields the resources that old, an earlier state of the table, lacks or has with another body or state. The
// cost depends on the difference between the two tables. If old is nil, Changed yields all resources.
func (t *Table) Changed(old *Table) iter.Seq[*Resource] {
	if old == nil {
		old = &empty
	}
	return func(yield func(*Resource) bool) {
		diff(old.bodies.root, t.bodies.root, 0, func(a, b *Resource) bool { return a == b }, func(_, is *Resource) bool {
			return is == nil || yield(is)
		})
	}
}

// PartOf returns the part of the table with the given names. It does not look at other names. The
// function keep must select the same names. The argument from is nil, or the result of PartOf on
// another table with the same names.
func (t *Table) PartOf(names iter.Seq[string], keep func(name string) bool, from *Table) *Table {
	if from == nil {
		from = &Table{typ: t.typ}
	}
	var set []*Resource
	var remove []string
	for name := range names {
		if r := t.Lookup(name); r != nil {
			set = append(set, r)
		} else {
			remove = append(remove, name)
		}
	}
	return t.partly(from, set, remove, part{keep: keep, hidden: -1})
}

// Substitute returns a copy of the table with some resources replaced or added, and others left
// out, for a client that must not see the originals. For such a client the resources left out never
// existed: [Table.Departed] does not find them, but finds the other resources that were removed
// from t. Substitute returns the same errors as [Table.With]. The copy does not keep t alive.
func (t *Table) Substitute(others []*Resource, without ...string) (*Table, error) {
	n, err := t.With(others, without...)
	if err != nil || n == t {
		return t, err
	}
	names := make(map[string]bool, len(without))
	for _, name := range without {
		names[name] = true
	}
	n.part = &part{of: weak.Make(t), keep: func(name string) bool { return !names[name] }, hidden: -1}
	return n, nil
}

// remembers reports whether the table may remember a removed resource.
func (t *Table) remembers() bool {
	return t.departed[0].root != nil || t.departed[1].root != nil || len(t.layers) > 0
}

// partly applies edits to from and marks the result as a part of t.
func (t *Table) partly(from *Table, set []*Resource, remove []string, p part) *Table {
	n, err := from.With(set, remove...)
	if err != nil {
		panic("xds: invalid resource in a part of a table: " + err.Error())
	}
	if n == from { // even without a change the result must be a part of t
		n = from.clone()
	}
	p.of = weak.Make(t)
	n.version, n.part = "", &p
	return n
}
