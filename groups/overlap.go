package groups

import (
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/text/glob"
)

// An Overlap decides which groups one node may get together, as far as the definitions show. If it
// cannot decide, it assumes that a node may get both, so that no warning is wrong. Create it with
// [NewOverlap]. It is not safe for concurrent use.
type Overlap struct {
	named        map[string]*Definition
	includedFrom map[string][]string // by group: the groups with a rule that include it
	fallback     map[string]bool     // groups of nodes that match no group
	cache        map[[2]string]bool  // results of earlier calls
}

// NewOverlap returns the Overlap of all groups.
func NewOverlap(definitions []Definition) *Overlap {
	t := &Overlap{named: map[string]*Definition{}, includedFrom: map[string][]string{}, fallback: map[string]bool{}, cache: map[[2]string]bool{}}
	otherwise := Default
	for i := range definitions {
		d := &definitions[i]
		t.named[d.Name] = d
		if d.Otherwise != "" {
			otherwise = d.Otherwise
		}
	}
	for name, d := range t.named {
		if d.Match != nil {
			for _, in := range t.Includes(name) {
				t.includedFrom[in] = append(t.includedFrom[in], name)
			}
		}
	}
	for _, in := range t.Includes(otherwise) { // no group has the name Refuse
		t.fallback[in] = true
	}
	return t
}

// Includes returns a group and all groups that it includes, directly or indirectly. The group itself is
// first.
func (t *Overlap) Includes(name string) []string {
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

// Possible reports whether a node may get both groups. It is true for a group that no node gets,
// because another finding reports such a group.
func (t *Overlap) Possible(a, b string) bool {
	switch {
	case a == b, t.fallback[a] && t.fallback[b]:
		return true
	case !t.fallback[a] && t.includedFrom[a] == nil, !t.fallback[b] && t.includedFrom[b] == nil:
		return true
	}
	yes, known := t.cache[[2]string{a, b}]
	if !known {
		yes = t.both(a, b)
		t.cache[[2]string{a, b}] = yes
	}
	return yes
}

// both reports whether a node may match one group that includes a, and one that includes b.
func (t *Overlap) both(a, b string) bool {
	for _, m := range t.includedFrom[a] {
		for _, n := range t.includedFrom[b] {
			if m == n || !disjointMatches(t.named[m].Match, t.named[n].Match) {
				return true
			}
		}
	}
	return false
}

// FirstPossible returns the first name in the list that a node may get together with the group, or
// "".
func (t *Overlap) FirstPossible(group string, in []string) string {
	for _, other := range in {
		if t.Possible(group, other) {
			return other
		}
	}
	return ""
}

// disjointMatches reports whether no node matches both, because they require different values of one
// field. It ignores metadata, which may have lists, and expressions.
func disjointMatches(a, b *Match) bool {
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

// literal returns the text that all values of a pattern begin with, and whether it is the whole value.
func literal(v any) (text string, whole bool) {
	pattern, ok := v.(string)
	if !ok {
		return "", false
	}
	p, err := glob.Compile(pattern)
	if err != nil {
		return "", false
	}
	return p.Prefix()
}
