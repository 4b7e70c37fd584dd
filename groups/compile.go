package groups

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
)

// A compiler makes rules of the Match of one group.
type compiler struct {
	*builder
	def *Definition
}

// match returns the rule of a Match. What costs least stands first.
func (c *compiler) match(m *Match) *rule {
	r := &rule{kind: allOf, place: m.place}
	for f, values := range [texts]Values{m.ID, m.Cluster, m.Region, m.Zone, m.SubZone, m.UserAgentName, m.UserAgentVersion} {
		if values != nil {
			r.parts = append(r.parts, c.one(m, field(f), nil, values))
		}
	}
	for _, e := range m.Metadata {
		r.parts = append(r.parts, c.one(m, metadata, e.Path, e.Values))
	}
	for i := range m.All {
		r.parts = append(r.parts, c.match(&m.All[i]))
	}
	if m.Any != nil {
		some := &rule{kind: anyOf, place: m.place}
		for i := range m.Any {
			some.parts = append(some.parts, c.match(&m.Any[i]))
		}
		r.parts = append(r.parts, some)
	}
	if m.Not != nil {
		r.parts = append(r.parts, &rule{kind: notOf, parts: []*rule{c.match(m.Not)}, place: m.place})
	}
	if m.CEL != "" {
		r.parts = append(r.parts, c.cel(m))
	}
	if len(r.parts) == 1 {
		return r.parts[0]
	}
	return r
}

// one returns the rule of a field.
func (c *compiler) one(m *Match, f field, path []string, values Values) *rule {
	r := &rule{kind: oneOf, field: f, path: path, place: m.place}
	if f == metadata && (len(path) == 0 || len(path) > nodemeta.MaxDepth || strings.ContainsRune(strings.Join(path, ""), 0)) {
		c.fail(c.def, findings.NodeRule, "match", fmt.Sprintf("a path in the metadata has 1 to %d keys, without zero bytes", nodemeta.MaxDepth), "")
	}
	for _, v := range values {
		compiled, err := compileValue(v, f == metadata)
		if err != nil {
			c.fail(c.def, findings.NodeRule, "match", fieldNames[f]+": "+err.Error(), "")
		}
		if text, is := v.(string); is && f != metadata && foreign(text) {
			q := c.def.problem(findings.ForeignPattern, "match", fmt.Sprintf("%s: %q stands for this text itself: in a pattern only * and ? have a meaning", fieldNames[f], text), "for one of several values write a list, and for a regular expression cel: node.id.matches(...)")
			if m.place.Pos.Line > 0 {
				q.Pos = m.place.Pos
			}
			q.Warning = true
			c.problems = append(c.problems, q)
		}
		r.values = append(r.values, compiled)
	}
	return r
}

// compileValue takes one of Values.
func compileValue(v any, others bool) (value, error) {
	switch v := v.(type) {
	case string:
		g, err := compile(v)
		return value{glob: g}, err
	case bool:
		if others {
			return value{other: v}, nil
		}
	case float64:
		if others && !math.IsNaN(v) {
			return value{other: v}, nil
		}
	}
	return value{}, fmt.Errorf("a %T (%v) is no value of it", v, v)
}

func (c *compiler) cel(m *Match) *rule {
	r := &rule{kind: expression, text: m.CEL, place: m.place}
	err := errNoCEL
	if c.options.CEL != nil {
		r.predicate, err = c.options.CEL(m.CEL)
	}
	if err != nil {
		c.fail(c.def, findings.NodeRule, cmp.Or(m.cel, "match"), err.Error(), "")
	}
	return r
}

// never reports whether the rule holds for no node, whatever it says of itself.
func (r *rule) never() bool {
	switch r.kind {
	case allOf:
		for _, part := range r.parts {
			if part.never() {
				return true
			}
		}
	case anyOf:
		for _, part := range r.parts {
			if !part.never() {
				return false
			}
		}
		return true
	case notOf:
		return r.parts[0].always()
	case oneOf:
		return len(r.values) == 0
	}
	return false
}

// always reports whether the rule holds for every node.
func (r *rule) always() bool {
	switch r.kind {
	case allOf:
		for _, part := range r.parts {
			if !part.always() {
				return false
			}
		}
		return true
	case anyOf:
		for _, part := range r.parts {
			if part.always() {
				return true
			}
		}
	case notOf:
		return r.parts[0].never()
	}
	return false
}
