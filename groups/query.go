package groups

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/internal/yamlkeys"
	"github.com/chancery-xds/chancery/xds"
)

// A query has the working memory for the decision about one node. It is reused.
type query struct {
	node       Node
	candidates []int        // groups that may match
	matched    []int        // groups that match
	members    []int        // matching groups and all that they include
	states     []groupState // by group; the zero value for groups that are neither candidates nor members
	notes      []string
}

// A groupState is the state of a group in a query.
type groupState struct {
	candidate, member, matched bool
	level                      int32 // length of the longest chain of includes that ends at the group
	includedBy                 int   // the group that includes it; noGroup: not known yet
}

func (r *Rules) query(n *xds.Node) *query {
	q, _ := r.queries.Get().(*query)
	if q == nil {
		q = &query{states: make([]groupState, len(r.groups))}
	}
	for _, before := range [][]int{q.candidates, q.members} {
		for _, i := range before {
			q.states[i] = groupState{}
		}
	}
	q.node.set(n)
	q.candidates, q.matched, q.members, q.notes = q.candidates[:0], q.matched[:0], q.members[:0], q.notes[:0]
	return q
}

// maxNotes limits the notes about rules that could not be evaluated.
const maxNotes = 10

func (q *query) note(g *group, r *rule, err error) {
	if g != nil && len(q.notes) < maxNotes {
		q.notes = append(q.notes, fmt.Sprintf("group %s: cel: %s: %s (%s)", g.name, yamlkeys.Short(r.text), yamlkeys.Short(err.Error()), r.place))
	}
}

// addCandidates adds groups that may match.
func (q *query) addCandidates(groups []int) {
	for _, i := range groups {
		if p := &q.states[i]; !p.candidate {
			p.candidate = true
			q.candidates = append(q.candidates, i)
		}
	}
}

// order returns the matching groups with all that they include. A group comes before the groups that it
// includes, by the longest chain of includes; else by priority, then by name.
func (r *Rules) order(q *query) []int {
	for _, i := range q.matched {
		q.states[i] = groupState{member: true, matched: true, includedBy: noGroup}
		q.members = append(q.members, i)
	}
	for n := 0; n < len(q.members); n++ {
		for _, i := range r.groups[q.members[n]].include {
			if p := &q.states[i]; !p.member {
				*p = groupState{member: true, includedBy: noGroup}
				q.members = append(q.members, i)
			}
		}
	}
	slices.Sort(q.members) // each before those that it includes, so its level is final when it is used
	for _, at := range q.members {
		for _, i := range r.groups[at].include {
			q.states[i].level = max(q.states[i].level, q.states[at].level+1)
		}
	}
	slices.SortFunc(q.members, func(a, b int) int {
		return cmp.Or(cmp.Compare(q.states[a].level, q.states[b].level), cmp.Compare(r.groups[a].rank, r.groups[b].rank))
	})
	for _, at := range q.members {
		for _, i := range r.groups[at].include {
			if p := &q.states[i]; p.includedBy == noGroup {
				p.includedBy = at
			}
		}
	}
	return q.members
}
