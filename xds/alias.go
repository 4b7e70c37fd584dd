package xds

import "slices"

// aliasing collects how the names of aliases change.
type aliasing struct {
	from  tree[[]string]
	names map[string][]string // of the aliases that change
}

func (m *aliasing) add(r *Resource) {
	for _, a := range r.Aliases {
		names := m.of(a)
		if i, has := slices.BinarySearch(names, r.Name); !has {
			m.names[a] = slices.Insert(names, i, r.Name)
		}
	}
}

func (m *aliasing) remove(r *Resource) {
	for _, a := range r.Aliases {
		names := m.of(a)
		if i, has := slices.BinarySearch(names, r.Name); has {
			m.names[a] = slices.Delete(names, i, i+1)
		}
	}
}

// of returns the names of an alias for changing.
func (m *aliasing) of(alias string) []string {
	names, ok := m.names[alias]
	if !ok {
		names, _ = m.from.get(alias)
		names = slices.Clone(names)
		if m.names == nil {
			m.names = map[string][]string{}
		}
		m.names[alias] = names
	}
	return names
}

func (m *aliasing) done() tree[[]string] {
	var edits []edit[[]string]
	for a, names := range m.names {
		edits = append(edits, edit[[]string]{hash: hash(a), name: a, value: names, gone: len(names) == 0})
	}
	return m.from.apply(ordered(edits))
}
