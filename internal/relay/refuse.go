package relay

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// singly commits what cannot be committed at once: one contradicts another, such as by an alias. It returns
// what is refused: its last good stays, and the others go on. All relays of an upstream refuse the same.
func (s *Source) singly(set, drop map[*name]*xds.Resource, touched []*name) (commit store.Commit, refused map[*name]error) {
	good, gone := map[*name]*xds.Resource{}, maps.Clone(drop)
	for e := range set {
		delete(gone, e) // until that is set
	}
	rest := slices.SortedFunc(maps.Keys(set), func(a, b *name) int {
		return cmp.Or(strings.Compare(a.typ.URL, b.typ.URL), strings.Compare(a.name, b.name))
	})
	for tried := 0; tried != len(rest); { // what one gives up another may have
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

// refuse notes what was refused of types of which all was tried, and says so once.
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
			if k.refused[e] = set[e]; was[e] != set[e] {
				s.opts.Log.Error("cannot serve a resource of the upstream", "type", e.typ.String(), "name", set[e].Name, "error", err)
			}
		}
	}
}
