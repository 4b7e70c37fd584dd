package access

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chancery-xds/chancery/internal/yamlkeys"
	"github.com/chancery-xds/chancery/xds"
)

// A Grant is the set of resources that an identity sees as a node. It does not change. The zero Grant
// sees nothing.
type Grant struct{ *grant }

type grant struct {
	id       *Identity
	node     string
	portions []appliedRule // rules that show resources
	denials  []appliedRule // rules that hide resources, or refuse nodes of some groups

	needsGroups bool // a rule depends on groups

	filters map[string]*filter // by type URL of v3: for the types in rules and for secrets
	others  *filter            // for all other types
	key     string
}

// In returns the grant of a node with these groups. A rule that allows applies only if it allows all
// of the groups. The error is a [*Denied] if no rule applies. Pass nil if the source has no groups or
// they are unknown: then rules that depend on groups show nothing.
func (g Grant) In(groups []string) (Grant, error) {
	if g.grant == nil {
		return g, &Denied{Reason: "nothing is granted"}
	}
	n := &grant{id: g.id, node: g.node, portions: g.portions, denials: g.denials, needsGroups: g.needsGroups}
	if err := n.compile(groups); err != nil {
		return Grant{}, err
	}
	return Grant{n}, nil
}

// Allows reports whether a resource is visible. The name must be the resource's own name, not an
// alias.
func (g Grant) Allows(t *xds.Type, name string) bool { return g.filter(t).allows(name) }

// some reports whether a name is visible; for a wildcard or collection, whether any of its resources
// may be.
func (g Grant) some(t *xds.Type, name string) bool {
	if name == xds.Wildcard || xds.IsCollection(name) {
		f := g.filter(t)
		return f != nil && f.shown.some()
	}
	return g.Allows(t, name)
}

// All reports whether all resources of a type are visible.
func (g Grant) All(t *xds.Type) bool { return g.filter(t).all() }

// Key returns a text that is equal for grants that show the same names.
func (g Grant) Key() string {
	if g.grant == nil {
		return ""
	}
	return g.key
}

// Rules returns the names of the rules behind the grant; none for the default policy.
func (g Grant) Rules() (names []string) {
	if g.grant == nil {
		return nil
	}
	for _, p := range g.portions {
		if p.rule != nil && !slices.Contains(names, p.rule.name) {
			names = append(names, p.rule.name)
		}
	}
	return names
}

// filter returns the filter of a type. A type of v2 has the rules of its v3 type.
func (g Grant) filter(t *xds.Type) *filter {
	if g.grant == nil || t == nil {
		return nil
	}
	if f := g.filters[urlOf(t)]; f != nil {
		return f
	}
	return g.others
}

// urlOf returns the v3 URL of a type.
func urlOf(t *xds.Type) string {
	if !t.V2 {
		return t.URL
	}
	for _, u := range xds.Types() {
		if t.Is(u.Legacy()) {
			return u.URL
		}
	}
	return t.URL
}

// empty reports whether the limits name no resources. A denying rule with empty limits denies the
// node.
func (l *limits) empty() bool { return l.types == nil && l.names == nil && l.secrets == nil }

// covers reports whether a rule applies to nodes with these groups. An allowing rule must have all of
// them. A denying rule applies if it has one of them.
func (p *appliedRule) covers(groups []string) bool {
	if p.rule == nil || p.rule.limits.groups == nil {
		return true
	}
	if len(groups) == 0 { // the groups are unknown
		return p.rule.deny
	}
	some := p.rule.deny
	for _, g := range groups {
		if like(p.rule.limits.groups, g, p.with) == some {
			return some
		}
	}
	return !some
}

// compile makes the filters for a node with these groups.
func (g *grant) compile(groups []string) error {
	var shows, hides []appliedRule
	var first *rule
	for _, p := range g.portions {
		if p.covers(groups) {
			shows = append(shows, p)
		} else if first == nil {
			first = p.rule
		}
	}
	if len(shows) == 0 {
		return first.denied(g.deniedGroups(groups))
	}
	urls := map[string]bool{xds.Secret.URL: true}
	for _, p := range g.denials {
		if !p.covers(groups) {
			continue
		}
		if p.rule.limits.empty() {
			return p.rule.denied(g.deniedGroups(groups))
		}
		hides = append(hides, p)
	}
	for _, p := range slices.Concat(shows, hides) {
		if p.rule != nil {
			for url := range p.rule.limits.types {
				urls[url] = true
			}
			for url := range p.rule.limits.names {
				urls[url] = true
			}
		}
	}
	filterOf := func(url string) *filter {
		f := &filter{}
		for _, p := range shows {
			f.shown.add(p, url)
		}
		for _, p := range hides {
			f.hidden.add(p, url)
		}
		f.finish()
		return f
	}
	g.filters = make(map[string]*filter, len(urls))
	var key strings.Builder
	for _, url := range slices.Sorted(maps.Keys(urls)) {
		f := filterOf(url)
		g.filters[url] = f
		key.WriteString(url + " " + strconv.Itoa(len(f.key)) + ":" + f.key)
	}
	g.others = filterOf("")
	key.WriteString(" " + g.others.key)
	g.key = key.String()
	return nil
}

func (g *grant) deniedGroups(groups []string) string {
	who := g.id.called() + ", as node " + yamlkeys.Quoted(g.node) + ", "
	if len(groups) == 0 {
		return who + "may see only certain groups, and its groups are not known"
	}
	return who + "may not see the groups " + quotedList(groups)
}

func quotedList(groups []string) string {
	var b strings.Builder
	for i, g := range groups {
		switch {
		case i == 5:
			return b.String() + ", …"
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(yamlkeys.Quoted(g))
	}
	return b.String()
}
