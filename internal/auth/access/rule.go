package access

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/xds"
)

// maxBindings is in how many ways one rule may hold for one identity, which may have many names.
const maxBindings = 64

// A rule is one of an access.yaml, ready to be asked.
type rule struct {
	name, place string

	identity *whose // nil: everybody's; of rules that deny only
	node     about
	limits   limits
	deny     bool // the node is refused or, if there are limits, does not see what they say
}

// Whose are the identities that a rule is for. All that is set must hold.
type whose struct {
	kinds                     []string
	dns, uris, subject, issue []glob.Pattern // nil: not asked
	claims                    []entry
	uids, gids                []int
}

// About are the nodes that a rule is for. All that is set must hold.
type about struct {
	ids, clusters []glob.Pattern // nil: not asked. That of ids asks for a name of the identity then, unless the rule denies
	metadata      []entry
}

// Limits are what a rule lets a node see.
type limits struct {
	groups  []glob.Pattern            // nil: all
	types   map[string]bool           // by URL; nil: all
	names   map[string][]glob.Pattern // by type URL: of other types all
	secrets []glob.Pattern            // nil: none
}

// An entry asks for a value in metadata or claims.
type entry struct {
	path   []string
	values []value
}

// A value is a pattern, or a float64 or a bool.
type value struct {
	pattern glob.Pattern
	other   any // nil: a pattern
}

// A binding is what a rule has captured.
type binding map[string]string

// bindings returns the ways in which the rule holds for an identity. If there are too many it
// reports so: then nobody can say what holds.
func (w *whose) bindings(id *Identity, names []string) (all []binding, tooMany bool) {
	if w == nil {
		return []binding{{}}, false
	}
	if w.dns != nil && !some(w.dns, names) || w.uris != nil && !some(w.uris, id.URIs) { // so are most
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
		{w.subject, func() []string { return one(id.Subject) }},
		{w.issue, func() []string { return one(id.Issuer) }},
	} {
		if f.patterns == nil {
			continue
		}
		if all = extend(all, f.patterns, f.values()); len(all) == 0 || len(all) > maxBindings {
			return nil, len(all) > 0
		}
	}
	for _, e := range w.claims {
		if all = e.extend(all, id.Claims, e.path); len(all) == 0 || len(all) > maxBindings {
			return nil, len(all) > 0
		}
	}
	return all, false
}

// some reports whether one of the values is like one of the patterns.
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

// extend returns the bindings by which one of the values is like one of the patterns, too.
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

// and returns both bindings; a capture that has two values holds for none.
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

// extend does the same for a value in the claims. In a list one of the elements must do.
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

// is reports whether the rule is for a node, by what it has captured.
func (r *rule) is(id *Identity, n *nodeOf, b binding) bool {
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

// like reports whether a value is like one of the patterns.
func like(patterns []glob.Pattern, v string, b binding) bool {
	for i := range patterns {
		if p, ok := patterns[i].With(b); ok && p.Match(v, nil) {
			return true
		}
	}
	return false
}

// holds reports whether what the node says of itself is one of the values. Groups are found by
// any element of a list, so all must do: or a client would send, beside what it may say, what
// it may not. Of a rule that denies any will do.
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

// A nodeOf is a node whose metadata is decoded when a rule asks for it.
type nodeOf struct {
	*xds.Node
	decoded map[string]any
	done    bool
}

// metadata returns it; nil if it cannot be read, which is as if there were none. Whoever finds
// groups by it reads it by the same code.
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
