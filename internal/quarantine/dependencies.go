package quarantine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"weak"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// dependencies hold back dependents. A dependent refers to a resource in quarantine, and the client has
// no version of that resource. Example: a route to a new cluster that the client refused. The protocol does
// not wait long for a refused cluster, and the route would lead to a missing cluster. So the client keeps
// the last version of the route until the cluster is accepted or the route changes. A dependent is not held
// back if it was already sent to the client, or if the client has no older version of the dependent. The zero
// value holds nothing back. Only the stream's goroutine uses it.
type dependencies struct {
	absent map[key]bool                       // resources in quarantine without a replacement
	before map[key]xds.Sum                    // dependents that are not held back
	later  map[key]held                       // dependents that came during the quarantine of the resource
	looked map[string]weak.Pointer[xds.Table] // by type URL
	extra  []Kept                             // resources to which replacements refer and that the wrapped view lacks, by type and name
	active []held                             // held back dependents, by name
}

// dependents returns the resources that refer to one of the held resources in of, if the held one is new
// to the client and the referring one was not sent yet. The stream's goroutine calls it.
func dependents(s *protocol.Session, t *xds.Type, of []held) (all []held) {
	names := map[key]bool{}
	for i := range of {
		if !of[i].has {
			names[keyOf(t, of[i].name)] = true
		}
	}
	for by := range waiters(t, len(names) > 0) {
		for n := range s.NameStates(by) {
			if n.View == nil || n.Held == nil || n.Held.Sum == n.View.Sum || n.Told != nil && n.Told.Sum == n.View.Sum || !refers(n.View, names) {
				continue
			}
			all = append(all, held{
				typ: by, name: n.Name, refused: n.View.Sum, version: n.View.Version, by: Dependent,
				has: true, had: n.Held.Sum, hadVersion: n.Held.Version,
			})
		}
	}
	return all
}

// waiters yields the types whose resources wait for resources of type t. It yields nothing if any is
// false.
func waiters(t *xds.Type, any bool) func(func(*xds.Type) bool) {
	return func(yield func(*xds.Type) bool) {
		for _, by := range t.ReferredBy() {
			if any && by.After.Is(t) && !yield(by) {
				return
			}
		}
	}
}

// A key is a type URL and a name.
type key struct{ url, name string }

func keyOf(t *xds.Type, name string) key { return key{t.URL, name} }

func refers(st *xds.Stamp, to map[key]bool) bool {
	return slices.ContainsFunc(st.Refs, func(r xds.Ref) bool { return to[keyOf(r.Type, r.Name)] })
}

// look sets the dependents to hold back and the extra resources for a view. It reports whether they
// changed.
func (n *dependencies) look(w *Watch, view xds.View) (moved bool) {
	moved = n.findDependents(w, view)
	var extra []Kept
	if len(w.holds) > 0 {
		extra = n.findExtra(w, view)
	}
	moved = moved || !slices.Equal(extra, n.extra)
	n.extra = extra
	return moved
}

// findDependents sets the dependents to hold back, and reports whether they changed.
func (n *dependencies) findDependents(w *Watch, view xds.View) (moved bool) {
	absent, was := map[key]bool{}, n.absent
	for i := range w.holds {
		if h := &w.holds[i]; h.old == nil {
			absent[keyOf(h.typ, h.name)] = true
		}
	}
	if len(absent) == 0 {
		moved = len(n.active) > 0
		n.absent, n.before, n.later, n.looked, n.active = nil, nil, nil, nil, nil
		return moved
	}
	same := maps.Equal(absent, was)
	n.absent = absent
	known, active := map[key]held{}, []held(nil)
	for _, h := range w.holds {
		if h.by == Dependent {
			known[keyOf(h.typ, h.name)] = h
		}
	}
	seen := map[string]bool{}
	for k := range absent {
		for by := range waiters(xds.TypeOf(k.url), !seen[k.url]) {
			active = append(active, n.ofType(w, by, view.Table(by), known, was, same)...)
		}
		seen[k.url] = true
	}
	slices.SortFunc(active, byName)
	moved = !slices.Equal(active, n.active)
	n.active = active
	return moved
}

// ofType returns the dependents of one type. was is the previous value of absent.
func (n *dependencies) ofType(w *Watch, by *xds.Type, t *xds.Table, known map[key]held, was map[key]bool, same bool) (all []held) {
	if same && n.looked[by.URL].Value() == t {
		for _, h := range n.active {
			if h.typ.Is(by) {
				all = append(all, h)
			}
		}
		return all
	}
	if n.looked == nil {
		n.looked, n.before, n.later = map[string]weak.Pointer[xds.Table]{}, map[key]xds.Sum{}, map[key]held{}
	}
	n.looked[by.URL] = weak.Make(t)
	for r := range t.All() {
		if len(r.Refs) == 0 || !refers(r.Stamp, n.absent) {
			continue
		}
		k := keyOf(by, r.Name)
		h, is := known[k]
		if !is || h.refused != r.Sum {
			h, is = n.later[k], true
		}
		switch {
		case is && h.refused == r.Sum:
			h.refs = r.Stamp
		case n.before[k] == r.Sum:
			continue
		case !refers(r.Stamp, was): // the dependent existed when the client refused the resource
			n.before[k] = r.Sum
			continue
		default:
			h = held{typ: by, name: r.Name, refused: r.Sum, version: r.Version, by: Dependent, body: r, old: n.last(w, by, r), refs: r.Stamp}
			if h.old == nil {
				n.before[k] = r.Sum
				continue
			}
			n.later[k] = h
		}
		all = append(all, h)
	}
	return all
}

// last returns the newest earlier version of a resource that did not refer to an absent one.
func (n *dependencies) last(w *Watch, by *xds.Type, r *xds.Resource) *xds.Resource {
	for _, t := range w.recent(by) {
		if was := t.Lookup(r.Name); was != nil && was.Refs != nil && !refers(was.Stamp, n.absent) {
			return was
		}
	}
	return nil
}

// exported returns the held back dependents, each with the resource in quarantine to which it refers.
func (n *dependencies) exported() (all []Held) {
	for i := range n.active {
		h := n.active[i].exported()
		if r := n.active[i].refs; r != nil {
			at := slices.IndexFunc(r.Refs, func(ref xds.Ref) bool { return n.absent[keyOf(ref.Type, ref.Name)] })
			h.RefersTo = r.Refs[max(at, 0)]
		}
		all = append(all, h)
	}
	return all
}

// all returns all resources that the client is shown and that the wrapped view lacks.
func (n *dependencies) all(holds []held) (all []*xds.Resource) {
	for _, h := range slices.Concat(holds, n.active) {
		if h.old != nil {
			all = append(all, h.old)
		}
	}
	return append(all, bodies(n.extra)...)
}

// findExtra returns the resources to which replacements refer, directly or indirectly, and that the view
// lacks.
func (n *dependencies) findExtra(w *Watch, view xds.View) (all []Kept) {
	seen := map[key]bool{}
	var queue []*xds.Resource
	add := func(by *xds.Resource, t *xds.Type, name string) {
		k := keyOf(t, name)
		if seen[k] {
			return
		}
		seen[k] = true
		if table := view.Table(t); table.Lookup(name) != nil || table.Aliased(name).Len() > 0 {
			return
		}
		if r := n.lastKnown(w, t, name); r != nil {
			queue, all = append(queue, r), append(all, Kept{r, xds.Ref{Type: by.Type, Name: by.Name}})
		}
	}
	for _, h := range w.holds {
		if h.old != nil && h.by != Dependent {
			queue = append(queue, h.old)
		}
	}
	for _, h := range n.active {
		queue = append(queue, h.old)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, ref := range refsOf(queue[0]) {
			if ref.Name != xds.Wildcard {
				add(queue[0], ref.Type, ref.Name)
				continue
			}
			for _, r := range n.extra {
				if r.Type.Is(ref.Type) {
					add(queue[0], r.Type, r.Name)
				}
			}
			for _, t := range w.recent(ref.Type)[:min(1, len(w.recent(ref.Type)))] {
				for st := range t.Versions().All() {
					add(queue[0], ref.Type, st.Name)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Kept) int {
		return cmp.Or(strings.Compare(a.Type.URL, b.Type.URL), strings.Compare(a.Name, b.Name))
	})
	return all
}

// refsOf returns the references of a resource. If the references are unknown, the result is a wildcard of
// each type to which the resource may refer.
func refsOf(r *xds.Resource) []xds.Ref {
	if r.Refs != nil {
		return r.Refs
	}
	var all []xds.Ref
	for _, t := range xds.Types() {
		if slices.ContainsFunc(t.ReferredBy(), r.Type.Is) {
			all = append(all, xds.Ref{Type: t, Name: xds.Wildcard})
		}
	}
	return all
}

// lastKnown returns the last known version of a resource that the view lacks; nil if no version is known. If the
// client has refused the newest version, the result is the replacement.
func (n *dependencies) lastKnown(w *Watch, t *xds.Type, name string) *xds.Resource {
	for _, r := range slices.Concat(bodies(n.extra), w.freed) {
		if r.Name == name && r.Type.Is(t) {
			return r
		}
	}
	for _, table := range w.recent(t) {
		if r := table.Lookup(name); r != nil {
			return r
		}
	}
	e := w.evidence.Load()
	if r := w.source.replacements.find(w.scope, t, name); r != nil || e == nil {
		return r
	}
	return e.Removed(time.Now(), t, name)
}
