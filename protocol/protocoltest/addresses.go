package protocoltest

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// checkAddresses checks that in a message each resource that releases an address comes before the resource that
// takes it (HEAL-4), except in a circle of such resources. If the client may hold several states of a resource,
// these states may form a circle that the judge does not see.
func (l *ledger) checkAddresses(a *account, r *xds.Response) error {
	several := func(x *xds.Resource) bool {
		k := a.lastSent[x.Name]
		return k.loose || a.acked[x.Name].res != k.res
	}
	if !a.typ.Binds || len(a.refused)+len(a.doubted) > 0 || slices.ContainsFunc(r.Upserts, several) {
		return nil
	}
	next := func(i int) (takers []int) { // the resources that take an address of resource i
		was := a.lastSent[r.Upserts[i].Name].res
		if was == nil {
			return nil
		}
		for j, x := range r.Upserts {
			if j != i && was.Frees(r.Upserts[i].Stamp, x.Stamp) {
				takers = append(takers, j)
			}
		}
		return takers
	}
	for last := range r.Upserts {
		for _, first := range next(last) {
			if first < last && !leadsTo(next, first, last, nil) {
				return fmt.Errorf("HEAL-4: %s comes before %s, which releases its address", r.Upserts[first].Name, r.Upserts[last].Name)
			}
		}
	}
	return nil
}

// waitsForAddress reports whether a resource takes an address whose release waits: the resource that releases it
// waits for clusters or for an address itself (HEAL-4). The names in seen form the chain of these waits so far.
func (l *ledger) waitsForAddress(a *account, n string, seen []string) bool {
	r := l.shown(a, n)
	if !a.typ.Binds || a.world || r == nil {
		return false
	}
	seen = append(seen, n)
	return slices.ContainsFunc(l.knownNames(a), func(m string) bool {
		is, was := l.shown(a, m), l.content(a, m, a.lastSent[m])
		return is != nil && was != nil && !slices.Contains(seen, m) && was.Frees(is.Stamp, r.Stamp) && l.missing(a, m) != "" &&
			(l.waitsForClusters(a, is) || l.waitsForAddress(a, m, seen))
	})
}

// leadsTo reports whether a path leads from i to j.
func leadsTo(next func(int) []int, i, j int, seen []int) bool {
	return slices.ContainsFunc(next(i), func(k int) bool {
		return k == j || !slices.Contains(seen, k) && leadsTo(next, k, j, append(seen, i))
	})
}

// addresses returns the addresses of a generation of a resource. Some of them overlap those of other resources.
func addresses(t *xds.Type, name string, gen int) *[]xds.Address {
	if !t.Binds || gen%5 == 4 {
		return nil
	}
	n := gen + int(name[len(name)-1])
	return &[]xds.Address{{Port: fmt.Sprint("tcp ", n%3), Host: []string{"", "a", "b"}[gen/3%3]}}
}
