package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// preferOwnNames removes aliases that are the name of another resource, because a name finds the resource of that name
// (CLI-15). It adds resources of the store that lose an alias to set. It returns an error for each resource that lost
// aliases, with one of them.
func (s *Source) preferOwnNames(set, drop map[*name]*xds.Resource) map[*name]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := map[*kind]map[string]int{} // by how much set and drop change the owners of each type
	for e, r := range set {
		if owners[e.kind] == nil {
			owners[e.kind] = map[string]int{}
		}
		if e.shown == nil || e.shown.Name != r.Name {
			owners[e.kind][r.Name]++
		}
	}
	for e, r := range drop {
		if m := owners[e.kind]; m != nil {
			m[r.Name]--
		}
	}
	view := s.store.Snapshot().View(store.DefaultGroup)
	all := maps.Clone(set)
	for e, r := range set {
		for o := range view.Table(e.typ).Aliased(r.Name).All() {
			for _, n := range append(slices.Clip(o.Aliases), o.Name) {
				if x := e.names[n]; x != nil && x.shown != nil && x.shown.Name == o.Name && set[x] == nil && drop[x] == nil {
					all[x] = x.shown
				}
			}
		}
	}
	lost := map[*name]error{}
	for e, r := range all {
		taken := func(a string) bool { return a != r.Name && e.kind.owners[a]+owners[e.kind][a] > 0 }
		i := slices.IndexFunc(r.Aliases, taken)
		if i < 0 {
			continue
		}
		lost[e] = fmt.Errorf("served without the alias %q, which is the name of another resource", r.Aliases[i])
		own := r.Copy()
		own.Aliases = slices.DeleteFunc(slices.Clone(r.Aliases), taken)
		own.Seal("")
		set[e] = own
	}
	return lost
}

// singly commits one by one, after a common commit failed: one resource may conflict with another, for
// example by an alias. It returns the refused names: their last good resource stays. All relays of an
// upstream refuse the same ones.
func (s *Source) singly(set, drop map[*name]*xds.Resource, touched []*name) (commit store.Commit, refused map[*name]error) {
	good, gone := map[*name]*xds.Resource{}, maps.Clone(drop)
	for e := range set {
		delete(gone, e) // until its successor is set
	}
	rest := slices.SortedFunc(maps.Keys(set), func(a, b *name) int {
		return cmp.Or(strings.Compare(a.typ.URL, b.typ.URL), strings.Compare(a.name, b.name))
	})
	commit, _ = s.write(nil, gone, touched) // a new resource may have the name of a removed one
	for tried := 0; tried != len(rest); {   // a resource may use an alias that another one has just released
		tried, refused = len(rest), map[*name]error{}
		rest = slices.DeleteFunc(rest, func(e *name) bool {
			if _, err := s.write(map[*name]*xds.Resource{e: set[e]}, nil, nil); err != nil {
				refused[e] = err
				return false
			}
			good[e] = set[e]
			if r := drop[e]; r != nil {
				gone[e] = r
			}
			return true
		})
		commit, _ = s.write(good, gone, touched)
	}
	return commit, refused
}

// refuse records the refused resources of types whose resources were all tried, and logs each once.
func (s *Source) refuse(of []*kind, set map[*name]*xds.Resource, refused map[*name]error) {
	for _, k := range of {
		was := k.refused
		k.refused = nil
		for e, err := range refused {
			if e.kind != k {
				continue
			}
			if k.refused == nil {
				k.refused = map[*name]*xds.Resource{}
			}
			k.refused[e] = set[e]
			if was[e] != set[e] {
				s.opts.Log.Error("cannot serve a resource of the upstream", "type", e.typ.String(), "name", set[e].Name, "error", err)
			}
		}
	}
}
