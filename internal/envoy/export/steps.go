package export

import (
	"bytes"
	"maps"
	"slices"
)

// steps returns the exports to be put in place one after the other, so that
// Envoy comes from one to the other without a gap. The last is next.
//
//   - Make: clusters, endpoints, secrets and whatever else waits for nothing are
//     the next ones; clusters that are to go are still there.
//   - Switch: listeners and routes are the next ones.
//   - Break: clusters that are gone go.
//   - Sweep: files that nothing leads to any more go. Earlier, Envoy would look
//     for them once more, and complain.
//
// A step that changes nothing is left out, and so is the first one if there is
// no new cluster that a route might lead to too early.
func (f *Format) steps(shown, next files) []files {
	if len(shown) == 0 {
		return []files{next}
	}
	made, broken := maps.Clone(shown), maps.Clone(next)
	for path, was := range shown {
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
		if was := shown[path]; collective(now.typ) && was != nil {
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
	last := shown
	return slices.DeleteFunc(all, func(step files) bool {
		same := step.equal(last)
		last = step
		return same
	})
}
