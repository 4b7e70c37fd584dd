package relay

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

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
	for tried := 0; tried != len(rest); { // a resource may use an alias that another one has just released
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
