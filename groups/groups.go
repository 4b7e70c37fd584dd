// Package groups decides which groups of resources a node gets. A group is a directory of configuration
// with a group.yaml, whose rule selects nodes (docs/groups.md). [Parse] reads a group.yaml. [New]
// compiles the [Rules] of all groups. [Rules.Decide] returns the groups of a node, in their order, with
// the reasons.
//
// The package reads no files, holds no resources, reads no clock and starts no goroutine. Rules in CEL
// need package groups/cel, which programs pass in [Options].
package groups

import (
	"strconv"
	"sync"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// Default is the group of the root directory. Nodes that match no other group get it, unless
	// Otherwise is different. Groups may also include it.
	Default = "default"

	// Refuse is the value of Otherwise that refuses nodes that match no group.
	Refuse = "refuse"
)

// Rules decide which groups a node gets. They are immutable and safe for concurrent use. Create them
// with [New].
type Rules struct {
	groups    []group // each group comes before the groups that it includes
	index     index
	otherwise int // index in groups; noGroup: refuse
	queries   sync.Pool
}

// A group is a compiled Definition.
type group struct {
	name    string
	rule    *rule // nil: no node gets it, unless another group includes it
	include []int // indexes in Rules.groups
	rank    int   // position by priority and name; a lower rank comes first
	lane    *lane // nil: none
}

// noGroup is an index in Rules.groups of no group.
const noGroup = -1

// A Place is a position in a file. The zero Place is no position.
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

// A Decision is the list of groups of a node, with the reasons.
type Decision struct {
	// Groups are in order of precedence: if several groups have a resource of the same name, the node
	// gets that of the first one. Nil: no group matches, and the node is refused.
	Groups []string

	// Reasons has one element for each of Groups, in the same order. If no group matches, an element
	// without a group comes first.
	Reasons []Reason

	// Notes describe conditions that could not be evaluated: the metadata cannot be read, or a rule in
	// CEL uses a field that the node does not have.
	Notes []string
}

// A Reason is the reason why a node gets a group.
type Reason struct {
	Group string // "": no group matches
	Rule  string // the part of the rule that holds, such as `cluster is "edge"`
	Place Place  // position of the rule
	By    string // the group that includes this group; if Group is empty, the value of Otherwise; otherwise empty
}

// String returns the reason as a sentence.
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

// Decide returns the groups of a node. A nil node is a node without any fields.
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

// decision returns the matching groups with the groups that they include, in their order.
func (r *Rules) decision(q *query) Decision {
	var d Decision
	none := len(q.matched) == 0
	if none && r.otherwise != noGroup {
		q.matched = append(q.matched, r.otherwise)
		d.Reasons = append(d.Reasons, Reason{By: r.groups[r.otherwise].name})
	} else if none {
		d.Reasons = append(d.Reasons, Reason{By: Refuse})
	}
	all := r.order(q)
	if len(all) > 0 {
		d.Groups = make([]string, len(all))
	}
	for i, at := range all {
		g, p := &r.groups[at], &q.states[at]
		d.Groups[i] = g.name
		reason := Reason{Group: g.name}
		switch {
		case !p.matched:
			reason.By = r.groups[p.includedBy].name
		case !none:
			reason.Rule, reason.Place = g.rule.explain(q)
		}
		d.Reasons = append(d.Reasons, reason)
	}
	r.replaceByLanes(q, all, &d)
	if q.node.problem != "" {
		q.notes = append(q.notes, q.node.problem)
	}
	d.Notes = append([]string(nil), q.notes...)
	return d
}
