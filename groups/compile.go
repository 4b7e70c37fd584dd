package groups

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/internal/text/glob"
)

// A compiler compiles the Match of one group.
type compiler struct {
	*builder
	def *Definition
}

// compileMatch returns the rule of a Match. Its cheapest parts are first.
func (c *compiler) compileMatch(m *Match) *rule {
	r := &rule{kind: allOf, place: m.place}
	for f, values := range [texts]Values{m.ID, m.Cluster, m.Region, m.Zone, m.SubZone, m.UserAgentName, m.UserAgentVersion} {
		if values != nil {
			r.parts = append(r.parts, c.field(m, field(f), nil, values))
		}
	}
	for _, e := range m.Metadata {
		r.parts = append(r.parts, c.field(m, metadata, e.Path, e.Values))
	}
	for i := range m.All {
		r.parts = append(r.parts, c.compileMatch(&m.All[i]))
	}
	if m.Any != nil {
		some := &rule{kind: anyOf, place: m.place}
		for i := range m.Any {
			some.parts = append(some.parts, c.compileMatch(&m.Any[i]))
		}
		r.parts = append(r.parts, some)
	}
	if m.Not != nil {
		r.parts = append(r.parts, &rule{kind: notOf, parts: []*rule{c.compileMatch(m.Not)}, place: m.place})
	}
	if m.CEL != "" {
		r.parts = append(r.parts, c.compileCEL(m))
	}
	if len(r.parts) == 1 {
		return r.parts[0]
	}
	return r
}

// field returns the rule of one field.
func (c *compiler) field(m *Match, f field, path []string, values Values) *rule {
	r := &rule{kind: oneOf, field: f, path: path, place: m.place}
	if f == metadata && (len(path) == 0 || len(path) > nodemeta.MaxDepth || strings.ContainsRune(strings.Join(path, ""), 0)) {
		c.fail(c.def, findings.NodeRule, "match", fmt.Sprintf("a path in the metadata has 1 to %d keys, without zero bytes", nodemeta.MaxDepth), "")
	}
	for _, v := range values {
		compiled, err := compileValue(v, f == metadata)
		if err != nil {
			c.fail(c.def, findings.NodeRule, "match", fieldNames[f]+": "+err.Error(), "")
		}
		if text, _ := v.(string); f != metadata && isForeign(text) {
			q := c.def.problem(findings.ForeignPattern, "match", fmt.Sprintf("%s: %q matches only this text: in a pattern only * and ** have a meaning", fieldNames[f], text), "for one of several values write a list, and for a regular expression cel: node.id.matches(...)")
			q.Pos, q.Warning = m.place.Pos, true
			c.problems = append(c.problems, q)
		}
		r.values = append(r.values, compiled)
	}
	return r
}

// compileValue compiles one of Values. If others is true, a bool or a float64 is valid, too.
func compileValue(v any, others bool) (value, error) {
	switch v := v.(type) {
	case string:
		p, err := glob.Compile(v)
		return value{pattern: p}, err
	case bool:
		if others {
			return value{other: v}, nil
		}
	case float64:
		if others && !math.IsNaN(v) {
			return value{other: v}, nil
		}
	}
	return value{}, fmt.Errorf("a %T (%v) cannot be a value of this field", v, v)
}

func (c *compiler) compileCEL(m *Match) *rule {
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

// never reports whether the rule holds for no node, as far as its structure shows.
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

// always reports whether the rule holds for each node, as far as its structure shows.
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

// isForeign reports whether a pattern looks like a regular expression or a shell pattern: a|b,
// [a-z], ^a, a$. Here these characters match themselves, and few node names have them.
func isForeign(pattern string) bool {
	_, afterBracket, _ := strings.Cut(pattern, "[")
	return strings.Contains(pattern, "|") || strings.Contains(afterBracket, "]") || strings.HasPrefix(pattern, "^") || strings.HasSuffix(pattern, "$")
}
