package xds

import "iter"

// Members are the resources that match an alias or the name of a collection ([Table.Aliased]). A
// resource is a member if it has the name as an alias, or belongs to the collection with that name.
// Members is immutable. The nil *Members is empty.
type Members struct {
	bodies tree[*Resource]
	len    int
}

// Len returns the number of members.
func (m *Members) Len() int {
	if m == nil {
		return 0
	}
	return m.len
}

// Get returns the member with the name, or nil.
func (m *Members) Get(name string) *Resource {
	if m == nil {
		return nil
	}
	r, _ := m.bodies.get(name)
	return r
}

// All yields the members in no particular order.
func (m *Members) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) { m.all(yield) }
}

//go:noinline // see Versions.all
func (m *Members) all(yield func(*Resource) bool) {
	if m != nil {
		m.bodies.root.walk(func(_ string, r *Resource) bool { return yield(r) })
	}
}

// Where returns the members for which keep returns true. It returns m itself if keep accepts
// all members or is nil.
func (m *Members) Where(keep func(*Resource) bool) *Members {
	is := m
	for r := range m.All() {
		if keep != nil && !keep(r) {
			is = &Members{bodies: is.bodies.without(r.Name), len: is.len - 1}
		}
	}
	return is
}

// Since yields the name of each member that only m or only old has. The bool is true if m has the
// member. If m was made from old, or old from m, the cost depends on the difference, not on the
// size.
func (m *Members) Since(old *Members) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) { m.since(old, yield) }
}

//go:noinline // see Versions.all
func (m *Members) since(old *Members, yield func(string, bool) bool) {
	var a, b *node[*Resource]
	if old != nil {
		a = old.bodies.root
	}
	if m != nil {
		b = m.bodies.root
	}
	both := func(x, y *Resource) bool { return true }
	diff(a, b, 0, both, func(x, y *Resource) bool {
		if y != nil {
			return yield(y.Name, true)
		}
		return yield(x.Name, false)
	})
}

// aliasing collects the changes of members while a table changes.
type aliasing struct {
	typ   *Type
	from  tree[*Members]
	edits map[string][]edit[*Resource] // by alias or collection name
}

func (a *aliasing) add(r *Resource)    { a.note(r, false) }
func (a *aliasing) remove(r *Resource) { a.note(r, true) }

func (a *aliasing) note(r *Resource, gone bool) {
	for _, name := range r.Aliases {
		a.edit(name, r, gone)
	}
	if c := a.typ.Collection(r.Name); c != "" && !r.OnDemand {
		a.edit(c, r, gone)
	}
}

func (a *aliasing) edit(name string, r *Resource, gone bool) {
	if a.edits == nil {
		a.edits = map[string][]edit[*Resource]{}
	}
	a.edits[name] = append(a.edits[name], edit[*Resource]{hash: hash(r.Name), name: r.Name, value: r, gone: gone})
}

func (a *aliasing) done() tree[*Members] {
	var edits []edit[*Members]
	for name, changes := range a.edits {
		var m Members
		if old, _ := a.from.get(name); old != nil {
			m = *old
		}
		changes = ordered(changes)
		for _, e := range changes {
			if _, has := m.bodies.find(e.hash, e.name); has && e.gone {
				m.len--
			} else if !has && !e.gone {
				m.len++
			}
		}
		m.bodies = m.bodies.apply(changes)
		edits = append(edits, edit[*Members]{hash: hash(name), name: name, value: &m, gone: m.len == 0})
	}
	return a.from.apply(ordered(edits))
}
