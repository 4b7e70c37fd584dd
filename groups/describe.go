package groups

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

// maxText limits the description of a rule, in bytes.
const maxText = 300

// describe writes the part of a rule that holds for a node. If q is nil it writes the whole rule.
func (r *rule) describe(b *strings.Builder, q *query) {
	if b.Len() > maxText {
		if !strings.HasSuffix(b.String(), "…") {
			b.WriteString("…")
		}
		return
	}
	switch r.kind {
	case allOf:
		if len(r.parts) == 0 {
			b.WriteString("every node")
		}
		r.join(b, q, " and ")
	case anyOf:
		if q != nil {
			if part := r.matchingPart(q); part != nil {
				part.describe(b, q)
				return
			}
		}
		if len(r.parts) == 0 {
			b.WriteString("no node")
		}
		if len(r.parts) > 1 {
			b.WriteByte('(')
			defer b.WriteByte(')')
		}
		r.join(b, nil, " or ")
	case notOf:
		b.WriteString("not (")
		r.parts[0].describe(b, nil)
		b.WriteByte(')')
	case oneOf:
		b.WriteString(fieldNames[r.field])
		for _, key := range r.path {
			b.WriteByte('.')
			b.WriteString(key)
		}
		if q != nil {
			b.WriteString(r.matchingValue(&q.node).String())
			return
		}
		for i := range r.values {
			if i > 0 {
				b.WriteString(" or")
			}
			if b.Len() > maxText {
				b.WriteString(" …")
				return
			}
			b.WriteString(r.values[i].String())
		}
	case expression:
		b.WriteString("cel: ")
		b.WriteString(yamlkeys.Short(r.text))
	}
}

func (r *rule) join(b *strings.Builder, q *query, between string) {
	for i, part := range r.parts {
		if i > 0 && b.Len() <= maxText {
			b.WriteString(between)
		}
		part.describe(b, q)
	}
}

// Rule returns the description of a group's rule and its position. A lane has no position. The text is "" if the
// group has no rule or does not exist.
func (r *Rules) Rule(group string) (text string, at Place) {
	for i := range r.groups {
		g := &r.groups[i]
		switch {
		case g.name == group && g.rule != nil:
			var b strings.Builder
			g.rule.describe(&b, nil)
			return b.String(), g.rule.place
		case g.lane != nil && g.lane.name == group:
			return fmt.Sprintf("nodes of group %s that rollout %s has picked", g.name, g.lane.Rollout), Place{}
		}
	}
	return "", Place{}
}

// String returns ` is "edge"`, or ` is like "edge-*"`.
func (v *value) String() string {
	if v.other != nil {
		return fmt.Sprint(" is ", v.other)
	}
	if text, all := v.pattern.Plain(); all {
		return " is " + strconv.Quote(text)
	}
	return " is like " + strconv.Quote(v.pattern.String())
}
