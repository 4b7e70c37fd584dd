// Package groups says which groups of resources a node gets. A group is a directory of
// configuration with a group.yaml, which has the rule by which nodes are found
// (docs/groups.md); [Parse] reads one, [New] makes [Rules] of all, and [Rules.Decide] says
// for a node which groups it gets, in which order, and why.
//
// It reads no files, holds no resources, reads no clock and starts no goroutine. CEL is a
// package of its own, groups/cel, which [Options] take.
package groups

import (
	"strconv"
	"sync"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// Default is the group of the root: of nodes that match no other, unless Otherwise says
	// something else, and of who includes it.
	Default = "default"

	// Refuse is what the Otherwise of the root is if nodes that match no group are refused.
	Refuse = "refuse"
)

// Rules decide about nodes. They never change, and are safe for concurrent use. See [New].
type Rules struct {
	groups    []group // who includes comes before what it includes
	index     index
	otherwise int  // of groups; -1: refuse
	lanes     bool // there is one
	queries   sync.Pool
}

// A group is a Definition, ready to be asked.
type group struct {
	name    string
	rule    *rule // nil: no node gets it by itself
	include []int // of Rules.groups
	rank    int   // by priority and name: the lower comes first
	lane    *lane // nil: none
}

// A Place is where something stands in a file; the zero Place is nowhere.
type Place struct {
	File string
	Pos  findings.Pos
}

// String returns file:line:column.
func (p Place) String() string {
	if p.Pos.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Pos.Line) + ":" + strconv.Itoa(p.Pos.Column)
}

// A Decision is which groups a node gets, and why.
type Decision struct {
	// Groups are in order: of a name that several have, the first group's resource is seen.
	// Nil: no group matches, and the node is refused.
	Groups []string

	// Reasons has one for each of Groups, in their order; before them, or alone, it has one
	// without a group if none matches.
	Reasons []Reason

	// Notes say what was in the way: metadata that cannot be read, a rule in CEL that asks
	// for a field that the node does not have.
	Notes []string
}

// A Reason is why a node gets a group.
type Reason struct {
	Group string // "": none matches
	Rule  string // what of its rule holds, such as `cluster is "edge"`
	Place Place  // of the rule
	By    string // the group that includes this one, or Otherwise if none matches; else empty
}

// String returns the reason for people.
func (r Reason) String() string {
	switch {
	case r.Group == "":
		return "no group matches: otherwise " + r.By
	case r.By != "":
		return "group " + r.Group + ": included by " + r.By
	case r.Rule == "":
		return "group " + r.Group + ": otherwise"
	case r.Place == Place{}:
		return "group " + r.Group + ": " + r.Rule
	}
	return "group " + r.Group + ": " + r.Rule + " (" + r.Place.String() + ")"
}

// Decide returns which groups a node gets. A nil node is one that says nothing of itself.
func (r *Rules) Decide(n *xds.Node) Decision {
	q := r.query(n)
	defer r.queries.Put(q)
	for _, i := range r.index.candidates(q) {
		if g := &r.groups[i]; g.rule.holds(q, g) == yes {
			q.matched = append(q.matched, i)
		}
	}
	return r.decision(q)
}

// decision puts the groups that match in order, with what they include.
func (r *Rules) decision(q *query) Decision {
	var d Decision
	none := len(q.matched) == 0
	if none && r.otherwise >= 0 {
		q.matched = append(q.matched, r.otherwise)
	}
	all := r.order(q)
	d.Reasons = make([]Reason, 0, len(all)+1)
	if none && r.otherwise >= 0 {
		d.Reasons = append(d.Reasons, Reason{By: r.groups[r.otherwise].name})
	} else if none {
		d.Reasons = append(d.Reasons, Reason{By: Refuse})
	}
	if len(all) > 0 {
		d.Groups = make([]string, len(all))
	}
	for i, at := range all {
		g, p := &r.groups[at], &q.places[at]
		d.Groups[i] = g.name
		reason := Reason{Group: g.name}
		switch {
		case !p.matched:
			reason.By = r.groups[p.by].name
		case !none:
			reason.Rule, reason.Place = g.rule.why(q)
		}
		d.Reasons = append(d.Reasons, reason)
	}
	if r.lanes {
		r.change(q, all, &d)
	}
	if q.node.problem != "" {
		q.notes = append(q.notes, q.node.problem)
	}
	d.Notes = append([]string(nil), q.notes...)
	return d
}
