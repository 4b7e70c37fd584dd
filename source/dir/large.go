package dir

import (
	"cmp"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

// anyOverhead is the size of a resource in a SotW response, in bytes, without its type URL and its body.
const anyOverhead = 10

// largeResponses returns a warning for each type whose resources a SotW client gets in one response above the
// limit of gRPC clients (SAFE-4). A response of these types must be complete, so the server cannot split
// it. It reports a group only if no included group is reported.
func (r *reach) largeResponses() (found []findings.Problem) {
	reported := map[xds.Ref]bool{} // by type and group
	includes := map[string][]string{}
	for group := range r.contents {
		includes[group] = r.together.Includes(group)
	}
	for _, group := range slices.SortedFunc(maps.Keys(r.contents), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(includes[a]), len(includes[b])), byGroup(a, b))
	}) {
		for _, t := range xds.Types() {
			if !t.FullState || slices.ContainsFunc(includes[group], func(in string) bool { return reported[xds.Ref{Type: t, Name: in}] }) {
				continue
			}
			if p, large := r.response(group, includes[group], t); large {
				reported[xds.Ref{Type: t, Name: group}] = true
				found = append(found, p)
			}
		}
	}
	return found
}

// response returns the warning of [reach.largeResponses] for a type and a group, and whether it applies. Its
// place is that of the largest resource.
func (r *reach) response(group string, includes []string, t *xds.Type) (p findings.Problem, large bool) {
	var largest Loaded
	seen, size := map[string]bool{}, 0
	for _, in := range includes {
		c := r.contents[in].types[t.URL]
		if c == nil {
			continue
		}
		for name, l := range c.at {
			if l.OnDemand || seen[name] {
				continue
			}
			seen[name] = true
			size += len(l.Body) + len(t.URL) + anyOverhead
			if largest.Resource == nil || len(l.Body) > len(largest.Body) || len(l.Body) == len(largest.Body) && name < largest.Name {
				largest = l
			}
		}
	}
	if size <= xds.GRPCMessageSize {
		return p, false
	}
	p = largest.Pos.problem("a state-of-the-world response with all %d %s has about %.1f MiB, and %q is the largest: gRPC clients accept at most 4.0 MiB by default", len(seen), t, float64(size)/(1<<20), largest.Name)
	p.Warning, p.Code = true, findings.LargeResponse
	p.Hint = "Envoy has no such limit; for other clients use delta, raise their limit, or divide the resources among groups"
	if len(r.contents) > 1 {
		p.Group = group
	}
	return p, true
}

// doubts returns the warnings about the served configuration that need all of its resources.
func (s *Source) doubts() []findings.Problem {
	r := newReach(&s.layout, s.served.Load().contents, s.bootstraps)
	return append(problems(s.dangling(r, s.unresolved())), r.largeResponses()...)
}
