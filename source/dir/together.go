package dir

import (
	"strings"

	"github.com/chancery-xds/chancery/groups"
)

// A together says which groups a node may see at once, as far as their definitions tell. It
// errs on the side of yes: of what two groups that are never together have, nothing is said.
type together struct {
	layout *layout
	roots  map[string][]string // by group: those with a rule that bring it in
	others map[string]bool     // what nodes get that match none
	known  map[[2]string]bool  // what was asked already
}

func (l *layout) together() *together {
	t := &together{layout: l, roots: map[string][]string{}, others: map[string]bool{}, known: map[[2]string]bool{}}
	otherwise := groups.Default
	for name, d := range l.named {
		if d.Otherwise != "" {
			otherwise = d.Otherwise
		}
		if d.Match != nil {
			for _, in := range l.includes(name) {
				t.roots[in] = append(t.roots[in], name)
			}
		}
	}
	if otherwise != groups.Refuse {
		for _, in := range l.includes(otherwise) {
			t.others[in] = true
		}
	}
	return t
}

// see reports whether there may be a node that sees both groups. Of a group that no node
// gets everything is possible: its own finding says enough.
func (t *together) see(a, b string) bool {
	switch {
	case a == b, t.others[a] && t.others[b]:
		return true
	case !t.others[a] && t.roots[a] == nil, !t.others[b] && t.roots[b] == nil:
		return true
	}
	yes, known := t.known[[2]string{a, b}]
	if !known {
		yes = t.both(a, b)
		t.known[[2]string{a, b}] = yes
	}
	return yes
}

// both reports whether a node may match a group that brings in the one, and one that brings
// in the other.
func (t *together) both(a, b string) bool {
	for _, m := range t.roots[a] {
		for _, n := range t.roots[b] {
			if m == n || !apart(t.layout.named[m].Match, t.layout.named[n].Match) {
				return true
			}
		}
	}
	return false
}

// first returns the first of some groups that a node may see together with a group; "" if
// there is none.
func (t *together) first(group string, in []string) string {
	for _, other := range in {
		if t.see(group, other) {
			return other
		}
	}
	return ""
}

// apart reports whether no node matches both: they ask for different values of one field.
// Nothing is concluded from metadata, which may be lists, and from expressions.
func apart(a, b *groups.Match) bool {
	for _, of := range []func(*groups.Match) groups.Values{
		func(m *groups.Match) groups.Values { return m.ID },
		func(m *groups.Match) groups.Values { return m.Cluster },
		func(m *groups.Match) groups.Values { return m.Region },
		func(m *groups.Match) groups.Values { return m.Zone },
		func(m *groups.Match) groups.Values { return m.SubZone },
		func(m *groups.Match) groups.Values { return m.UserAgentName },
		func(m *groups.Match) groups.Values { return m.UserAgentVersion },
	} {
		if x, y := of(a), of(b); x != nil && y != nil && disjoint(x, y) {
			return true
		}
	}
	return false
}

func disjoint(x, y groups.Values) bool {
	for _, v := range x {
		for _, w := range y {
			a, aWhole := literal(v)
			b, bWhole := literal(w)
			switch {
			case aWhole && bWhole:
				if a == b {
					return false
				}
			case aWhole:
				if strings.HasPrefix(a, b) {
					return false
				}
			case bWhole:
				if strings.HasPrefix(b, a) {
					return false
				}
			case strings.HasPrefix(a, b) || strings.HasPrefix(b, a):
				return false
			}
		}
	}
	return true
}

// literal returns what a value that a pattern stands for begins with, and whether that is all
// of it.
func literal(v any) (text string, whole bool) {
	pattern, ok := v.(string)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*', '?':
			return b.String(), false
		case '\\':
			if i++; i < len(pattern) {
				b.WriteByte(pattern[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}
