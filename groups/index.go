package groups

import (
	"cmp"
	"slices"
	"strings"
)

// An index finds the groups that may match a node, without asking all: by something that
// the rule demands, such as one of three clusters, or an id that begins with "edge-". What
// demands nothing of the kind is asked each time.
//
// Invariant: a group whose rule holds for a node is among the node's candidates.
type index struct {
	fields [texts]table
	paths  *paths
	rest   []int
}

// A table finds groups by a value.
type table struct {
	equal    map[string][]int
	prefixed map[string][]int
	lengths  []int // of prefixes, that there are
	other    map[any][]int
}

// Paths is a tree of the keys that rules demand of the metadata.
type paths struct {
	table
	below map[string]*paths
}

// A demand is a value of a field without which a rule does not hold. All that is compared is
// in it, so that demands can be counted.
type demand struct {
	field  field
	path   string // keys, with a zero byte behind each
	text   string
	prefix bool // the value begins with the text
	other  any  // a float64 or bool; nil: it is a text
}

// maxPrefix is how much of a prefix is looked for: each length is looked for by itself.
const maxPrefix = 32

// newIndex chooses for each group by what it is found: of all that it demands what the
// fewest groups have.
func newIndex(groups []group) index {
	count := map[demand]int{}
	for i := range groups {
		if r := groups[i].rule; r != nil {
			r.count(count)
		}
	}
	var x index
	for i := range groups {
		r := groups[i].rule
		if r == nil {
			continue
		}
		demands, _, ok := r.demands(count)
		if !ok {
			x.rest = append(x.rest, i)
		}
		for _, d := range demands {
			x.add(d, i)
		}
	}
	return x
}

// count adds how often what is demanded.
func (r *rule) count(count map[demand]int) {
	switch r.kind {
	case allOf, anyOf:
		for _, part := range r.parts {
			part.count(count)
		}
	case oneOf:
		for _, v := range r.values {
			if d, ok := r.demand(v); ok {
				count[d]++
			}
		}
	}
}

// demand returns what a value demands, if it is something that can be looked up.
func (r *rule) demand(v value) (d demand, ok bool) {
	d = demand{field: r.field}
	if r.field == metadata {
		d.path = strings.Join(r.path, "\x00") + "\x00"
	}
	if v.other != nil {
		d.other = v.other
		return d, true
	}
	text, all := v.glob.prefix()
	if d.text = text; !all {
		d.prefix, d.text = true, text[:min(len(text), maxPrefix)]
	}
	return d, all || text != ""
}

// demands returns demands of which each node meets one for which the rule holds, and how
// many groups have one of these; not ok: there are none.
func (r *rule) demands(count map[demand]int) (best []demand, cost int, ok bool) {
	switch r.kind {
	case allOf:
		for _, part := range r.parts {
			if d, n, is := part.demands(count); is && (!ok || n < cost) {
				best, cost, ok = d, n, true
			}
		}
		return best, cost, ok
	case anyOf:
		for _, part := range r.parts {
			d, n, is := part.demands(count)
			if !is {
				return nil, 0, false
			}
			best, cost = append(best, d...), cost+n
		}
		return best, cost, true
	case oneOf:
		for _, v := range r.values {
			d, is := r.demand(v)
			if !is {
				return nil, 0, false
			}
			best, cost = append(best, d), cost+2*count[d]
			if d.prefix {
				cost++ // what is equal is met by fewer nodes
			}
		}
		return best, cost, true
	}
	return nil, 0, false
}

func (x *index) add(d demand, group int) {
	if d.field != metadata {
		x.fields[d.field].add(d, group)
		return
	}
	if x.paths == nil {
		x.paths = &paths{}
	}
	at := x.paths
	for key := range strings.SplitSeq(strings.TrimSuffix(d.path, "\x00"), "\x00") {
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

func (t *table) add(d demand, group int) {
	switch {
	case d.other != nil:
		t.other = with(t.other, d.other, group)
	case d.prefix:
		t.prefixed = with(t.prefixed, d.text, group)
		if i, found := slices.BinarySearch(t.lengths, len(d.text)); !found {
			t.lengths = slices.Insert(t.lengths, i, len(d.text))
		}
	default:
		t.equal = with(t.equal, d.text, group)
	}
}

func with[K comparable](m map[K][]int, key K, group int) map[K][]int {
	if m == nil {
		m = map[K][]int{}
	}
	m[key] = append(m[key], group)
	return m
}

// candidates returns the groups that may match, each once.
func (x *index) candidates(q *query) []int {
	for f := range x.fields {
		x.fields[f].find(q, field(f).of(&q.node))
	}
	if x.paths != nil {
		x.paths.find(q, q.node.Metadata())
	}
	q.may(x.rest)
	return q.candidates
}

func (t *table) find(q *query, value string) {
	if t.equal != nil {
		q.may(t.equal[value])
	}
	for _, n := range t.lengths {
		if n > len(value) {
			break
		}
		q.may(t.prefixed[value[:n]])
	}
}

// find goes through what is in both, the tree and the metadata.
func (p *paths) find(q *query, at any) {
	switch at := at.(type) {
	case []any:
		for _, element := range at {
			p.find(q, element)
		}
	case map[string]any:
		if len(at) < len(p.below) {
			for key, value := range at {
				if below := p.below[key]; below != nil {
					below.find(q, value)
				}
			}
			return
		}
		for key, below := range p.below {
			if value, ok := at[key]; ok {
				below.find(q, value)
			}
		}
	case string:
		p.table.find(q, at)
	case float64, bool:
		q.may(p.other[at])
	}
}

// less orders groups by priority, and then by name.
func less(a, b *Definition) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
}
