package explain

import (
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// The link "references": does the node get the resources to which its resources refer? The link "valid"
// covers the references of the explained resource itself. This link follows them to the end, for example
// from a listener over its routes to their clusters.

// maxFollowed is the maximum number of resources that one explanation follows.
const maxFollowed = 100_000

// A missingReference is a reference to a resource that the node does not get.
type missingReference struct {
	path []xds.Ref // the resources that lead to the reference; the last one has the reference
	to   xds.Ref
}

// A follower finds missing references in the view of a node.
type follower struct {
	e      *Explainer
	groups []string
	view   xds.Tables
}

func (c *chain) follower() follower {
	groups := c.decision.Groups
	if len(groups) == 0 {
		return follower{e: c.e}
	}
	return follower{c.e, groups, c.before.Effective(groups...)}
}

// misses reports whether the node gets no resource for a reference, neither from the server nor from a known
// bootstrap. A relay knows that only if its upstream has answered.
func (f follower) misses(ref xds.Ref) bool {
	return len(f.groups) > 0 && ref.Name != xds.Wildcard && !ref.Type.V2 && !hasName(f.view, ref.Type, ref.Name) && !f.e.d.Source.InBootstrap(f.groups, ref) &&
		(f.e.d.Undecided == nil || !f.e.d.Undecided(ref.Type, ref.Name))
}

// direct returns the first missing reference of a resource; nil if the node gets all resources to which it
// refers.
func (f follower) direct(of xds.Ref) *missingReference {
	r := f.view.Table(of.Type).Lookup(of.Name)
	if r == nil {
		return nil
	}
	for _, ref := range r.Refs {
		if f.misses(ref) {
			return &missingReference{[]xds.Ref{of}, ref}
		}
	}
	return nil
}

// below returns the first missing reference of the resources to which a resource refers, directly or over
// others; nil if there is none.
func (f follower) below(of xds.Ref) *missingReference {
	type step struct {
		xds.Ref
		from int // index of the step before; -1: none
	}
	steps, seen := []step{{of, -1}}, map[xds.Ref]bool{of: true}
	for i := 0; i < len(steps) && len(steps) < maxFollowed; i++ {
		if i > 0 {
			if m := f.direct(steps[i].Ref); m != nil {
				m.path = nil
				for at := i; at > 0; at = steps[at].from {
					m.path = append([]xds.Ref{steps[at].Ref}, m.path...)
				}
				return m
			}
		}
		r := f.view.Table(steps[i].Type).Lookup(steps[i].Name)
		if r == nil {
			continue
		}
		for _, ref := range r.Refs {
			if !seen[ref] {
				seen[ref] = true
				steps = append(steps, step{ref, i})
			}
		}
	}
	return nil
}

// place returns the place of a missing reference; "" if it is unknown.
func (f follower) place(m *missingReference) string {
	from := m.path[len(m.path)-1]
	for _, group := range f.groups {
		if s, ok := f.e.d.Source.Lookup(group, from.Type, from.Name); ok {
			return f.e.reference(s.Loaded, m.to)
		}
	}
	return ""
}

// breaksReferences adds the broken link for a missing reference. The argument lead begins the text.
func (c *chain) breaksReferences(f follower, m *missingReference, lead, more string) {
	var way []string
	for _, ref := range m.path {
		way = append(way, title(ref.Type, ref.Name))
	}
	text := lead + strings.Join(way, ", which refers to ")
	verb := ", which refers to "
	if lead == "" && len(way) == 1 {
		verb = " refers to "
	}
	to, place := title(m.to.Type, m.to.Name), f.place(m)
	text += verb + to + ", which the node does not get"
	if near := c.e.d.Source.Nearest(m.to.Type, m.to.Name); near != "" {
		text += fmt.Sprintf(" (did you mean %s?)", quote(near))
	}
	advice := fmt.Sprintf("define %s, or correct the reference at %s", to, orElse(place, "its place"))
	if c.e.d.Upstream != nil {
		advice = fmt.Sprintf("define %s at the upstream, or correct the reference there", to)
	}
	c.breaks(references, place, advice, "%s%s%s", text, unlessBootstrap(m.to.Type), more)
}

// references adds the link "references" if a resource to which the explained one leads is missing.
func (c *chain) referencesLink() {
	f, self := c.follower(), xds.Ref{Type: c.t, Name: c.name}
	if c.at == nil { // the link "valid" covers only resources of files
		if m := f.direct(self); m != nil {
			c.breaksReferences(f, m, "", "")
			return
		}
	}
	if m := f.below(self); m != nil {
		c.breaksReferences(f, m, "it refers to ", "")
	}
}

// referencesAll adds the link "references" if a resource to which the client subscribes has a missing
// reference.
func (c *chain) referencesAll() {
	var first *missingReference
	n := 0
	for i := range c.streams {
		n += len(c.streams[i].missing)
		if first == nil && n > 0 {
			first = c.streams[i].missing[0]
		}
	}
	if first == nil {
		return
	}
	more := ""
	if n > 1 {
		more = fmt.Sprintf(" (and %s)", count(n-1, "other resource"))
	}
	c.breaksReferences(c.follower(), first, "", more)
}
