package groups

import (
	"slices"
	"strings"
)

// A Together says which groups a node may see at once, as far as their definitions tell. It
// errs on the side of yes: of what two groups that are never together have, nothing is said.
// Make it by [NewTogether]. It is not safe for concurrent use.
type Together struct {
	named  map[string]*Definition
	roots  map[string][]string // by group: those with a rule that bring it in
	others map[string]bool     // what nodes get that match none
	known  map[[2]string]bool  // what was asked already
}

// NewTogether returns what is known of all groups that there are.
func NewTogether(definitions []Definition) *Together {
	t := &Together{named: map[string]*Definition{}, roots: map[string][]string{}, others: map[string]bool{}, known: map[[2]string]bool{}}
	otherwise := Default
	for i := range definitions {
		d := &definitions[i]
		if t.named[d.Name] = d; d.Otherwise != "" {
			otherwise = d.Otherwise
		}
	}
	for name, d := range t.named {
		if d.Match != nil {
			for _, in := range t.Includes(name) {
				t.roots[in] = append(t.roots[in], name)
			}
		}
	}
	if otherwise != Refuse {
		for _, in := range t.Includes(otherwise) {
			t.others[in] = true
		}
	}
	return t
}

// Includes returns the names of all groups that a group brings in, itself first.
func (t *Together) Includes(name string) []string {
	all := []string{name}
	for n := 0; n < len(all); n++ {
		if d := t.named[all[n]]; d != nil {
			for _, next := range d.Include {
				if !slices.Contains(all, next) {
					all = append(all, next)
				}
			}
		}
	}
	return all
}

// See reports whether there may be a node that sees both groups. Of a group that no node
// gets everything is possible: its own finding says enough.
func (t *Together) See(a, b string) bool {
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
func (t *Together) both(a, b string) bool {
	for _, m := range t.roots[a] {
		for _, n := range t.roots[b] {
			if m == n || !apart(t.named[m].Match, t.named[n].Match) {
				return true
			}
		}
	}
	return false
}

// First returns the first of some groups that a node may see together with a group; "" if
// there is none.
func (t *Together) First(group string, in []string) string {
	for _, other := range in {
		if t.See(group, other) {
			return other
		}
	}
	return ""
}

// apart reports whether no node matches both: they ask for different values of one field.
// Nothing is concluded from metadata, which may be lists, and from expressions.
func apart(a, b *Match) bool {
	for _, of := range []func(*Match) Values{
		func(m *Match) Values { return m.ID },
		func(m *Match) Values { return m.Cluster },
		func(m *Match) Values { return m.Region },
		func(m *Match) Values { return m.Zone },
		func(m *Match) Values { return m.SubZone },
		func(m *Match) Values { return m.UserAgentName },
		func(m *Match) Values { return m.UserAgentVersion },
	} {
		if x, y := of(a), of(b); x != nil && y != nil && disjoint(x, y) {
			return true
		}
	}
	return false
}

func disjoint(x, y Values) bool {
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
	g, err := compile(pattern)
	if err != nil {
		return "", false
	}
	return g.prefix()
}
