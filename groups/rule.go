package groups

import (
	"strings"

	"github.com/chancery-xds/chancery/internal/text/glob"
)

// A verdict is the result of a rule for a node. It is unknown if an expression cannot be evaluated. The
// negation of unknown is unknown, so an error never makes a rule hold.
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
	allOf kind = iota // all parts
	anyOf
	notOf
	oneOf // one of values
	expression
)

// A rule is a compiled Match.
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
	texts    // number of string fields
	metadata = texts
)

var fieldNames = [...]string{"id", "cluster", "locality.region", "locality.zone", "locality.sub_zone", "user_agent_name", "user_agent_version", "metadata"}

// valueOf returns the node's value of a string field.
func (f field) valueOf(n *Node) string {
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

// A value is one of Values: a pattern, a float64 or a bool.
type value struct {
	pattern glob.Pattern
	other   any // nil: a pattern
}

func (v *value) is(got any) bool {
	if v.other != nil {
		return got == v.other
	}
	s, ok := got.(string)
	return ok && v.pattern.Match(s, nil)
}

// holds evaluates the rule for a node. Its notes name the group.
func (r *rule) holds(q *query, g *group) verdict {
	switch r.kind {
	case allOf:
		v := yes
		for _, part := range r.parts {
			v = min(v, part.holds(q, g))
			if v == no {
				return no
			}
		}
		return v
	case anyOf:
		v := no
		for _, part := range r.parts {
			v = max(v, part.holds(q, g))
			if v == yes {
				return yes
			}
		}
		return v
	case notOf:
		return yes - r.parts[0].holds(q, g)
	case oneOf:
		return verdictOf(r.matchingValue(&q.node) != nil)
	}
	ok, err := r.predicate(&q.node)
	if err != nil {
		q.note(g, r, err)
		return unknown
	}
	return verdictOf(ok)
}

// matchingValue returns the value that the node has, or nil.
func (r *rule) matchingValue(n *Node) *value {
	if r.field == metadata {
		return r.valueIn(n.Metadata(), r.path)
	}
	got := r.field.valueOf(n)
	for i := range r.values {
		if v := &r.values[i]; v.pattern.Match(got, nil) {
			return v
		}
	}
	return nil
}

// valueIn looks for one of the values below a value of the metadata.
func (r *rule) valueIn(at any, path []string) *value {
	if list, ok := at.([]any); ok {
		for _, element := range list {
			if v := r.valueIn(element, path); v != nil {
				return v
			}
		}
		return nil
	}
	if len(path) > 0 {
		m, _ := at.(map[string]any)
		return r.valueIn(m[path[0]], path[1:])
	}
	for i := range r.values {
		if v := &r.values[i]; v.is(at) {
			return v
		}
	}
	return nil
}

// explain returns the part of the rule that holds for a node, and its position.
func (r *rule) explain(q *query) (text string, at Place) {
	var b strings.Builder
	r.describe(&b, q)
	for part := r; part != nil; part = part.matchingPart(q) {
		at = part.place
	}
	return b.String(), at
}

// matchingPart returns the part of anyOf that holds for a node, or nil.
func (r *rule) matchingPart(q *query) *rule {
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
