package groups

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/internal/yamlkeys"
	"github.com/chancery-xds/chancery/xds"
)

// A query is what is needed to decide about one node. It is used again for others.
type query struct {
	node       Node
	candidates []int // groups that may match
	matched    []int // groups that do
	members    []int // with what they include
	places     []position
	round      uint32 // which of places are of this query
	notes      []string
}

// A position is what is known of a group in a query.
type position struct {
	candidate, member uint32 // the round in which it was
	matched           bool
	level             int32 // how long the longest chain is by which it is included
	by                int   // who includes it; -1: not known yet
}

func (r *Rules) query(n *xds.Node) *query {
	q, _ := r.queries.Get().(*query)
	if q == nil {
		q = &query{places: make([]position, len(r.groups))}
	}
	if q.round++; q.round == 0 {
		clear(q.places)
		q.round = 1
	}
	q.node.set(n)
	q.candidates, q.matched, q.members, q.notes = q.candidates[:0], q.matched[:0], q.members[:0], q.notes[:0]
	return q
}

// maxNotes is how many rules are told that could not be evaluated.
const maxNotes = 10

func (q *query) note(g *group, r *rule, err error) {
	if g != nil && len(q.notes) < maxNotes {
		q.notes = append(q.notes, fmt.Sprintf("group %s: cel: %s: %s (%s)", g.name, yamlkeys.Short(r.text), yamlkeys.Short(err.Error()), r.place))
	}
}

// may adds groups that may match.
func (q *query) may(groups []int) {
	for _, i := range groups {
		if p := &q.places[i]; p.candidate != q.round {
			p.candidate = q.round
			q.candidates = append(q.candidates, i)
		}
	}
}

// order returns the groups that match and what they include. "Whoever includes comes
// before what it includes (longest chain); of the rest the higher priority comes first, then
// by name."
func (r *Rules) order(q *query) []int {
	for _, i := range q.matched {
		q.places[i] = position{candidate: q.round, member: q.round, matched: true, by: -1}
		q.members = append(q.members, i)
	}
	for n := 0; n < len(q.members); n++ {
		for _, i := range r.groups[q.members[n]].include {
			if p := &q.places[i]; p.member != q.round {
				*p = position{candidate: p.candidate, member: q.round, by: -1}
				q.members = append(q.members, i)
			}
		}
	}
	if len(q.members) == 1 {
		return q.members
	}
	slices.Sort(q.members) // who includes comes first: a level is known before it counts
	for _, at := range q.members {
		for _, i := range r.groups[at].include {
			q.places[i].level = max(q.places[i].level, q.places[at].level+1)
		}
	}
	slices.SortFunc(q.members, func(a, b int) int {
		return cmp.Or(cmp.Compare(q.places[a].level, q.places[b].level), cmp.Compare(r.groups[a].rank, r.groups[b].rank))
	})
	for _, at := range q.members {
		for _, i := range r.groups[at].include {
			if p := &q.places[i]; p.by < 0 {
				p.by = at
			}
		}
	}
	return q.members
}
