package groups

import "strings"

// A verdict is what a rule says of a node. What is unknown, since an expression cannot be
// evaluated, stays unknown if it is turned around: an error lets nobody in.
type verdict int8

const (
	no verdict = iota
	unknown
	yes
)

func verdictOf(b bool) verdict {
	if b {
		return yes
	}
	return no
}

type kind int8

const (
	allOf kind = iota // of its parts
	anyOf
	notOf
	oneOf // of its values
	expression
)

// A rule is a Match, ready to be asked.
type rule struct {
	kind  kind
	parts []*rule // of allOf, anyOf and notOf

	field  field    // of oneOf
	path   []string // of metadata
	values []value

	text      string // of an expression
	predicate Predicate

	place Place
}

// A field is a field of a node.
type field int8

const (
	id field = iota
	cluster
	region
	zone
	subZone
	userAgentName
	userAgentVersion
	texts    // how many are strings
	metadata = texts
)

var fieldNames = [...]string{"id", "cluster", "locality.region", "locality.zone", "locality.sub_zone", "user_agent_name", "user_agent_version", "metadata"}

// of returns what the node says in a field that is a string.
func (f field) of(n *Node) string {
	switch f {
	case id:
		return n.ID
	case cluster:
		return n.Cluster
	case region:
		return n.Region
	case zone:
		return n.Zone
	case subZone:
		return n.SubZone
	case userAgentName:
		return n.UserAgentName
	}
	return n.UserAgentVersion
}

// A value is one of Values: a pattern, or a float64 or a bool.
type value struct {
	glob  glob
	other any // nil: a pattern
}

func (v *value) is(got any) bool {
	if v.other != nil {
		return got == v.other
	}
	s, ok := got.(string)
	return ok && v.glob.match(s)
}

// holds says what the rule says of a node. Notes of what cannot be evaluated name the group.
func (r *rule) holds(q *query, g *group) verdict {
	switch r.kind {
	case allOf:
		v := yes
		for _, part := range r.parts {
			if v = min(v, part.holds(q, g)); v == no {
				return no
			}
		}
		return v
	case anyOf:
		v := no
		for _, part := range r.parts {
			if v = max(v, part.holds(q, g)); v == yes {
				return yes
			}
		}
		return v
	case notOf:
		return yes - r.parts[0].holds(q, g)
	case oneOf:
		return verdictOf(r.found(&q.node) != nil)
	}
	ok, err := r.predicate(&q.node)
	if err != nil {
		q.note(g, r, err)
		return unknown
	}
	return verdictOf(ok)
}

// found returns the value that the node has; nil if it has none of them.
func (r *rule) found(n *Node) *value {
	if r.field == metadata {
		return r.within(n.Metadata(), r.path)
	}
	got := r.field.of(n)
	for i := range r.values {
		if v := &r.values[i]; v.other == nil && v.glob.match(got) {
			return v
		}
	}
	return nil
}

// within looks for one of the values below a value of the metadata.
func (r *rule) within(at any, path []string) *value {
	if list, ok := at.([]any); ok {
		for _, element := range list {
			if v := r.within(element, path); v != nil {
				return v
			}
		}
		return nil
	}
	if len(path) > 0 {
		m, _ := at.(map[string]any)
		next, ok := m[path[0]]
		if !ok {
			return nil
		}
		return r.within(next, path[1:])
	}
	for i := range r.values {
		if v := &r.values[i]; v.is(at) {
			return v
		}
	}
	return nil
}

// why returns what of the rule holds for a node, and where that stands.
func (r *rule) why(q *query) (text string, at Place) {
	var b strings.Builder
	r.say(&b, q)
	for part := r; part != nil; part = part.chosen(q) {
		at = part.place
	}
	return b.String(), at
}

// chosen returns the part of anyOf that holds for a node; nil if there is none.
func (r *rule) chosen(q *query) *rule {
	if r.kind != anyOf {
		return nil
	}
	for _, part := range r.parts {
		if part.holds(q, nil) == yes {
			return part
		}
	}
	return nil
}
