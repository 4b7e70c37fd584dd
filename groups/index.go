package groups

import (
	"cmp"
	"slices"
	"strings"
)

// An index finds the groups that may match a node, without evaluating all rules. It uses the
// values that a rule accepts for a field: for example three clusters, or ids that begin with "edge-".
// Rules that do not limit a field in this way are always evaluated.
//
// Invariant: a group whose rule holds for a node is one of the node's candidates.
type index struct {
	fields    [texts]table
	paths     *paths
	unindexed []int
}

// A table finds groups by a value of a field.
type table struct {
	equal    map[string][]int
	prefixed map[string][]int
	lengths  []int // lengths of the prefixes, sorted
	other    map[any][]int
}

// Paths is a tree of the metadata keys that rules require.
type paths struct {
	table
	below map[string]*paths
}

// A requirement is one value, or one prefix, that a rule accepts for a field. It is comparable, so that
// equal requirements can be counted.
type requirement struct {
	field  field
	path   string // of metadata: keys, with a zero byte between them
	text   string
	prefix bool // the value begins with text
	other  any  // a float64 or bool; nil: the value is text
}

// maxPrefix limits the length of prefixes in a table, because each length needs a lookup.
const maxPrefix = 32

// newIndex chooses the requirements by which each group is found: those that the fewest groups share.
func newIndex(groups []group) index {
	count := map[requirement]int{}
	for i := range groups {
		if r := groups[i].rule; r != nil {
			r.countRequirements(count)
		}
	}
	var x index
	for i := range groups {
		r := groups[i].rule
		if r == nil {
			continue
		}
		found := r.requirements(count)
		if found == nil {
			x.unindexed = append(x.unindexed, i)
			continue
		}
		for _, d := range found.any {
			x.add(d, i)
		}
	}
	return x
}

// countRequirements adds the requirements of a rule to count.
func (r *rule) countRequirements(count map[requirement]int) {
	switch r.kind {
	case allOf, anyOf:
		for _, part := range r.parts {
			part.countRequirements(count)
		}
	case oneOf:
		for _, v := range r.values {
			if d, ok := r.requirement(v); ok {
				count[d]++
			}
		}
	}
}

// requirement returns the requirement of one value, if it can be looked up.
func (r *rule) requirement(v value) (d requirement, ok bool) {
	d = requirement{field: r.field, path: strings.Join(r.path, "\x00")}
	if v.other != nil {
		d.other = v.other
		return d, true
	}
	text, all := v.pattern.Prefix()
	d.text = text
	if !all {
		d.prefix, d.text = true, text[:min(len(text), maxPrefix)]
	}
	return d, all || text != ""
}

// A requirementList has the requirements of a rule: each node for which the rule holds meets one of them.
type requirementList struct {
	any []requirement

	// The cost of a requirement is twice the number of its uses in all rules. A prefix costs one more,
	// because more nodes match it.
	cost int
}

// requirements returns the cheapest requirementList of a rule, or nil if it has none.
func (r *rule) requirements(count map[requirement]int) *requirementList {
	var found requirementList
	switch r.kind {
	case allOf:
		var best *requirementList
		for _, part := range r.parts {
			if l := part.requirements(count); l != nil && (best == nil || l.cost < best.cost) {
				best = l
			}
		}
		return best
	case anyOf:
		for _, part := range r.parts {
			l := part.requirements(count)
			if l == nil {
				return nil
			}
			found.any, found.cost = append(found.any, l.any...), found.cost+l.cost
		}
		return &found
	case oneOf:
		for _, v := range r.values {
			d, ok := r.requirement(v)
			if !ok {
				return nil
			}
			found.any, found.cost = append(found.any, d), found.cost+2*count[d]
			if d.prefix {
				found.cost++
			}
		}
		return &found
	}
	return nil
}

func (x *index) add(d requirement, group int) {
	if d.field != metadata {
		x.fields[d.field].add(d, group)
		return
	}
	if x.paths == nil {
		x.paths = &paths{}
	}
	at := x.paths
	for key := range strings.SplitSeq(d.path, "\x00") {
		if at.below == nil {
			at.below = map[string]*paths{}
		}
		if at.below[key] == nil {
			at.below[key] = &paths{}
		}
		at = at.below[key]
	}
	at.add(d, group)
}

func (t *table) add(d requirement, group int) {
	switch {
	case d.other != nil:
		t.other = appendGroup(t.other, d.other, group)
	case d.prefix:
		t.prefixed = appendGroup(t.prefixed, d.text, group)
		if i, found := slices.BinarySearch(t.lengths, len(d.text)); !found {
			t.lengths = slices.Insert(t.lengths, i, len(d.text))
		}
	default:
		t.equal = appendGroup(t.equal, d.text, group)
	}
}

func appendGroup[K comparable](m map[K][]int, key K, group int) map[K][]int {
	if m == nil {
		m = map[K][]int{}
	}
	m[key] = append(m[key], group)
	return m
}

// candidates returns the groups that may match a node, each once.
func (x *index) candidates(q *query) []int {
	for f := range x.fields {
		x.fields[f].addMatches(q, field(f).valueOf(&q.node))
	}
	if x.paths != nil {
		x.paths.addMatches(q, q.node.Metadata())
	}
	q.addCandidates(x.unindexed)
	return q.candidates
}

func (t *table) addMatches(q *query, value string) {
	q.addCandidates(t.equal[value])
	for _, n := range t.lengths {
		if n > len(value) {
			break
		}
		q.addCandidates(t.prefixed[value[:n]])
	}
}

// addMatches walks the tree and the metadata together.
func (p *paths) addMatches(q *query, at any) {
	switch at := at.(type) {
	case []any:
		for _, element := range at {
			p.addMatches(q, element)
		}
	case map[string]any:
		for key, value := range at { // the decoder has limited the metadata, and rules may require any number of keys
			if below := p.below[key]; below != nil {
				below.addMatches(q, value)
			}
		}
	case string:
		p.table.addMatches(q, at)
	case float64, bool:
		q.addCandidates(p.other[at])
	}
}

// compareRank orders groups by priority, then by name.
func compareRank(a, b *Definition) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
}
