package export

import (
	"bytes"
	"maps"
	"slices"
)

// steps returns the exports to swap in one after the other, so that Envoy has no gap during the change.
// The last one is next.
//
//   - Make: clusters, endpoints, secrets and other types that depend on no other type get their new
//     versions. Old clusters stay.
//   - Switch: listeners and routes get their new versions.
//   - Break: old clusters are removed.
//   - Sweep: unreferenced files are removed. If they were removed earlier, Envoy would look for them
//     once more and log errors.
//
// A step without a change is left out. The first step is also left out if there is no new cluster that
// a route might reference too early.
func (f *Format) steps(live, next files) []files {
	if len(live) == 0 {
		return []files{next}
	}
	made, broken := maps.Clone(live), maps.Clone(next)
	for path, was := range live {
		if next[path] == nil {
			broken[path] = was
		}
	}
	switched := maps.Clone(broken)
	clusters := false
	for path, now := range next {
		if now.typ == nil || now.typ.After != nil {
			continue
		}
		if was := live[path]; collective(now.typ) && was != nil {
			now = f.union(was, now)
			clusters = clusters || !bytes.Equal(now.data, was.data)
			switched[path] = now
		}
		made[path] = now
	}
	all := []files{made, switched, broken, next}
	if !clusters {
		all = all[1:]
	}
	last := live
	return slices.DeleteFunc(all, func(step files) bool {
		same := step.equal(last)
		last = step
		return same
	})
}
