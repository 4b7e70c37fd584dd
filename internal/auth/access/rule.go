package access

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/xds"
)

// maxBindings limits the ways in which one rule may match one identity. An identity may have many
// names.
const maxBindings = 64

// A rule is a parsed rule of an access.yaml.
type rule struct {
	name, place string

	identity *identityCondition // nil: all identities, which only a denying rule may have
	node     nodeCondition
	limits   limits
	deny     bool // the rule refuses the node; with limits on resources, it only hides these
}

// An identityCondition is a condition on identities. All fields that are set must match.
type identityCondition struct {
	kinds                        []string
	dns, uris, subjects, issuers []glob.Pattern // nil: not checked
	claims                       []entry
	uids, gids                   []int
}

// A nodeCondition is a condition on nodes. All fields that are set must match; nil fields are not
// checked. But if ids is nil, an allowing rule requires that the node ID is a name of the identity.
type nodeCondition struct {
	ids, clusters []glob.Pattern
	metadata      []entry
}

// Limits are the resources that a rule shows or hides.
type limits struct {
	groups  []glob.Pattern            // nil: all groups
	types   map[string]bool           // by URL; nil: all types to allow, none to deny
	names   map[string][]glob.Pattern // by type URL; nil for a type: all its names
	secrets []glob.Pattern            // nil: no secrets
}

// An entry is a condition on a value in metadata or claims.
type entry struct {
	path   []string
	values []value
}

// A value is a pattern, or a float64 or bool that must be equal.
type value struct {
	pattern glob.Pattern
	other   any // nil: the value is a pattern
}

// A binding has the captures of a rule, by name.
type binding map[string]string

// bindings returns the ways in which the rule matches an identity. If there are more than
// maxBindings, tooMany is true and the result is incomplete.
func (w *identityCondition) bindings(id *Identity, names []string) (all []binding, tooMany bool) {
	if w == nil {
		return []binding{{}}, false
	}
	if w.dns != nil && !some(w.dns, names) || w.uris != nil && !some(w.uris, id.URIs) { // true for most rules, so it comes first
		return nil, false
	}
	if w.kinds != nil && !slices.Contains(w.kinds, id.Kind) ||
		w.uids != nil && (id.Kind != Unix || !slices.Contains(w.uids, id.UID)) ||
		w.gids != nil && (id.Kind != Unix || !slices.Contains(w.gids, id.GID)) {
		return nil, false
	}
	all = []binding{{}}
	for _, f := range []struct {
		patterns []glob.Pattern
		values   func() []string
	}{
		{w.dns, func() []string { return names }},
		{w.uris, func() []string { return id.URIs }},
		{w.subjects, func() []string { return one(id.Subject) }},
		{w.issuers, func() []string { return one(id.Issuer) }},
	} {
		if f.patterns == nil {
			continue
		}
		all = extend(all, f.patterns, f.values())
		if len(all) == 0 || len(all) > maxBindings {
			return nil, len(all) > 0
		}
	}
	for _, e := range w.claims {
		all = e.extend(all, id.Claims, e.path)
		if len(all) == 0 || len(all) > maxBindings {
			return nil, len(all) > 0
		}
	}
	return all, false
}

// some reports whether one of the values matches one of the patterns.
func some(patterns []glob.Pattern, values []string) bool {
	for _, v := range values {
		for i := range patterns {
			if patterns[i].Match(v, nil) {
				return true
			}
		}
	}
	return false
}

func one(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// extend returns the bindings under which one of the values also matches one of the patterns.
func extend(all []binding, patterns []glob.Pattern, values []string) (out []binding) {
	for _, v := range values {
		for i := range patterns {
			found := binding{}
			same := true
			if !patterns[i].Match(v, func(name, value string) {
				if had, ok := found[name]; ok && had != value {
					same = false
				}
				found[name] = value
			}) || !same {
				continue
			}
			for _, b := range all {
				if len(out) > maxBindings {
					return out
				}
				if merged, ok := b.and(found); ok && !slices.ContainsFunc(out, func(o binding) bool { return maps.Equal(o, merged) }) {
					out = append(out, merged)
				}
			}
		}
	}
	return out
}

// and returns the union of both bindings; false if a capture would have two values.
func (b binding) and(o binding) (binding, bool) {
	if len(o) == 0 {
		return b, true
	}
	merged := maps.Clone(b)
	for name, v := range o {
		if had, ok := merged[name]; ok && had != v {
			return nil, false
		}
		merged[name] = v
	}
	return merged, true
}

// extend returns the bindings under which the claims also match the entry. In a list, one element must
// match.
func (e *entry) extend(all []binding, at any, path []string) (out []binding) {
	if list, ok := at.([]any); ok {
		for _, element := range list {
			for _, b := range e.extend(all, element, path) {
				if len(out) > maxBindings {
					return out
				}
				if !slices.ContainsFunc(out, func(o binding) bool { return maps.Equal(o, b) }) {
					out = append(out, b)
				}
			}
		}
		return out
	}
	if len(path) > 0 {
		m, _ := at.(map[string]any)
		next, ok := m[path[0]]
		if !ok {
			return nil
		}
		return e.extend(all, next, path[1:])
	}
	if n, ok := at.(json.Number); ok {
		if f, err := n.Float64(); err == nil {
			at = f
		}
	}
	var patterns []glob.Pattern
	for _, v := range e.values {
		switch v.other {
		case nil:
			patterns = append(patterns, v.pattern)
		case at:
			return all
		}
	}
	if s, ok := at.(string); ok {
		return extend(all, patterns, []string{s})
	}
	return nil
}

// matchesNode reports whether the rule matches a node, with the captures of b.
func (r *rule) matchesNode(id *Identity, n *nodeOf, b binding) bool {
	a := &r.node
	if a.ids == nil {
		if !r.deny && !id.own(n.ID) {
			return false
		}
	} else if !like(a.ids, n.ID, b) {
		return false
	}
	if a.clusters != nil && !like(a.clusters, n.Cluster, b) {
		return false
	}
	for i := range a.metadata {
		if e := &a.metadata[i]; !e.holds(n.metadata(), e.path, b, r.deny) {
			return false
		}
	}
	return true
}

// like reports whether a value matches one of the patterns.
func like(patterns []glob.Pattern, v string, b binding) bool {
	for i := range patterns {
		if p, ok := patterns[i].With(b); ok && p.Match(v, nil) {
			return true
		}
	}
	return false
}

// holds reports whether the metadata of a node matches the entry.
//
// If the metadata has a list, all elements must match: otherwise a client could add a forbidden
// element to an allowed one. For a denying rule (some is true), one element is enough, as for the
// rules that choose groups.
func (e *entry) holds(at any, path []string, b binding, some bool) bool {
	if list, ok := at.([]any); ok {
		for _, element := range list {
			if e.holds(element, path, b, some) == some {
				return some
			}
		}
		return !some && len(list) > 0
	}
	if len(path) > 0 {
		m, _ := at.(map[string]any)
		next, ok := m[path[0]]
		return ok && e.holds(next, path[1:], b, some)
	}
	for i := range e.values {
		v := &e.values[i]
		if v.other != nil {
			if v.other == at {
				return true
			}
		} else if s, ok := at.(string); ok {
			if p, ok := v.pattern.With(b); ok && p.Match(s, nil) {
				return true
			}
		}
	}
	return false
}

// A nodeOf is a node whose metadata is decoded when a rule needs it.
type nodeOf struct {
	*xds.Node
	decoded map[string]any
	done    bool
}

// metadata returns the decoded metadata; nil if the node has none or it cannot be decoded. The rules
// that choose groups use the same code.
func (n *nodeOf) metadata() any {
	if !n.done {
		n.done = true
		if m, err := nodemeta.Decode(n.Metadata); err == nil {
			n.decoded = m
		}
	}
	if n.decoded == nil {
		return nil
	}
	return n.decoded
}
