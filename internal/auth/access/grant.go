package access

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chancery-xds/chancery/internal/yamlkeys"
	"github.com/chancery-xds/chancery/xds"
)

// A Grant is what an identity sees as a node. It never changes. The zero Grant sees nothing.
type Grant struct{ *grant }

type grant struct {
	id       *Identity
	node     string
	portions []portion // of rules that let it see something
	denials  []portion // of rules that hide something, or refuse nodes of some groups

	asks bool // a rule asks for groups

	filters map[string]*filter // by type URL of v3: of types that a rule names, and of secrets
	others  *filter
	key     string
}

// In returns what is seen by a node that gets these groups, all of them; each rule counts only
// if it lets the node have them all. An error is a [*Denied]: no rule does. Nil is for a source
// that has no groups, or does not say which: then rules that ask for groups let nothing be seen.
func (g Grant) In(groups []string) (Grant, error) {
	if g.grant == nil {
		return g, &Denied{Reason: "nothing is granted"}
	}
	n := &grant{id: g.id, node: g.node, portions: g.portions, denials: g.denials, asks: g.asks}
	if err := n.compile(groups); err != nil {
		return Grant{}, err
	}
	return Grant{n}, nil
}

// Allows reports whether a resource is seen, by its own name: not by an alias.
func (g Grant) Allows(t *xds.Type, name string) bool { return g.filter(t).allows(name) }

// some reports whether a resource of a name may be seen, or something of what a wildcard or a collection finds.
func (g Grant) some(t *xds.Type, name string) bool {
	if name == xds.Wildcard || xds.IsCollection(name) {
		f := g.filter(t)
		return f != nil && f.shown.some()
	}
	return g.Allows(t, name)
}

// All reports whether all resources of a type are seen.
func (g Grant) All(t *xds.Type) bool { return g.filter(t).all() }

// Key is equal of grants that show the same.
func (g Grant) Key() string {
	if g.grant == nil {
		return ""
	}
	return g.key
}

// Rules returns the names of the rules that it is made of; none if it is the default.
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

// filter returns what is seen of a type; a type of v2 has the rules of its successor.
func (g Grant) filter(t *xds.Type) *filter {
	if g.grant == nil || t == nil {
		return nil
	}
	if f := g.filters[urlOf(t)]; f != nil {
		return f
	}
	return g.others
}

// urlOf returns the URL of a type, of one of v2 that of v3.
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

// shown reports whether limits name nothing that is seen: of a rule that denies, it denies all.
func (l *limits) shown() bool { return l.types == nil && l.names == nil && l.secrets == nil }

// covers reports whether a rule is for nodes that get these groups. One that denies is if it
// names one of them.
func (p *portion) covers(groups []string) bool {
	if p.rule == nil || p.rule.limits.groups == nil {
		return true
	}
	if len(groups) == 0 { // unknown
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

// compile finds what is seen by a node of some groups.
func (g *grant) compile(groups []string) error {
	var shows, hides []portion
	var first *rule
	for _, p := range g.portions {
		if p.covers(groups) {
			shows = append(shows, p)
		} else if first == nil {
			first = p.rule
		}
	}
	if len(shows) == 0 {
		return first.denied(g.mayNot(groups))
	}
	urls := map[string]bool{xds.Secret.URL: true}
	for _, p := range g.denials {
		if !p.covers(groups) {
			continue
		}
		if p.rule.limits.shown() {
			return p.rule.denied(g.mayNot(groups))
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

func (g *grant) mayNot(groups []string) string {
	who := g.id.called() + ", as node " + yamlkeys.Quoted(g.node) + ", "
	if len(groups) == 0 {
		return who + "may see certain groups only, and which it gets is not known"
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
