package xds

import (
	"iter"
	"weak"
)

// A part is what a table is of another.
type part struct {
	of     weak.Pointer[Table]
	keep   func(name string) bool
	hidden int // resources of the other that it does not have; -1: nobody has counted
}

// Part returns the part of the table whose names are selected; if all are, and nothing departed
// lately, the table itself.
//
// A part does not keep the table alive. It finds what of the selected departed lately. Its
// version is the hash of what it has, whatever the table's own is.
//
// If from is what Part made of an older table by a function that selects the same names, it costs what
// differs between the two tables. If it is nil, or that table is in use no more, it costs the table.
func (t *Table) Part(keep func(name string) bool, from *Table) *Table {
	old, hidden := from, 0
	if from != nil && from.part != nil {
		if old, hidden = from.part.of.Value(), from.part.hidden; hidden < 0 {
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
	} else if hidden == 0 { // of what departed something may be hidden
		from, set, remove = t, nil, nil
	}
	return t.partly(from, set, remove, part{keep: keep, hidden: hidden})
}

// PartOf returns the part of the table that has certain names, and looks at no others; keep selects
// these. From is what PartOf made of another table, with the same names; nil: nothing.
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

// Substitute returns the table with other resources in the place of some, and without others, as it is
// shown to who must not see these. What it is shown without it has never had: [Table.Departed] finds what
// departed from t, and not that. An error is one of [Table.With]. The table does not keep t alive.
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

// remembers reports whether the table may know of something that departed.
func (t *Table) remembers() bool {
	return t.departed[0].root != nil || t.departed[1].root != nil || len(t.layers) > 0
}

// partly returns what edits make of a table; it is a part of t.
func (t *Table) partly(from *Table, set []*Resource, remove []string, p part) *Table {
	n, err := from.With(set, remove...)
	if err != nil {
		panic("xds: a table has what none can have: " + err.Error())
	}
	if n == from { // it is of another table all the same
		n = from.clone()
	}
	p.of = weak.Make(t)
	n.version, n.part = "", &p
	return n
}
