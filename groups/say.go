package groups

import (
	"strconv"
	"strings"

	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

// maxText is how much is said of a rule, in bytes: there are rules as long as a page.
const maxText = 300

// say writes what of a rule holds for a node. If query is nil it writes all of the rule.
func (r *rule) say(b *strings.Builder, q *query) {
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
			if part := r.chosen(q); part != nil {
				part.say(b, q)
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
		r.parts[0].say(b, nil)
		b.WriteByte(')')
	case oneOf:
		b.WriteString(fieldNames[r.field])
		for _, key := range r.path {
			b.WriteByte('.')
			b.WriteString(key)
		}
		if q != nil {
			if v := r.found(&q.node); v != nil {
				b.WriteString(v.String())
				return
			}
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
		part.say(b, q)
	}
}

// Rule returns what the rule of a group asks for, and its place; "" if no node gets the group by
// itself, or if there is no such group.
func (r *Rules) Rule(group string) (text string, at Place) {
	for i := range r.groups {
		if g := &r.groups[i]; g.name == group && g.rule != nil {
			var b strings.Builder
			g.rule.say(&b, nil)
			return b.String(), g.rule.place
		}
	}
	return "", Place{}
}

// String returns ` is "edge"`, or ` is like "edge-*"`.
func (v *value) String() string {
	switch other := v.other.(type) {
	case bool:
		return " is " + strconv.FormatBool(other)
	case float64:
		return " is " + strconv.FormatFloat(other, 'g', -1, 64)
	}
	if text, all := v.glob.prefix(); all {
		return " is " + strconv.Quote(text)
	}
	return " is like " + strconv.Quote(v.glob.text)
}
