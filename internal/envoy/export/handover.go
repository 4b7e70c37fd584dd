package export

import (
	"bytes"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// handOver returns the pieces of a file in an order in which Envoy can apply them after the file with the pieces
// was. A listener that releases an address comes before the listener that takes it (HEAL-4). If the pieces are the
// same, the result is was, so that the file does not change. The pieces next are sorted by name.
func handOver(was, next []*piece) []*piece {
	byName := func(a, b *piece) int { return strings.Compare(a.name, b.name) }
	same := func(a, b *piece) bool { return a.name == b.name && bytes.Equal(a.data, b.data) }
	if slices.EqualFunc(slices.SortedFunc(slices.Values(was), byName), next, same) {
		return was
	}
	changes := &xds.Changes{}
	for _, p := range next {
		changes.Upserts = append(changes.Upserts, &xds.Resource{Stamp: p.stamp()})
	}
	changes = changes.HandOver(func(yield func(*xds.Stamp) bool) {
		for _, p := range was {
			if !yield(p.stamp()) {
				return
			}
		}
	})
	order := make([]*piece, len(next))
	for i, r := range changes.Upserts {
		at, _ := slices.BinarySearchFunc(next, &piece{name: r.Name}, byName)
		order[i] = next[at]
	}
	return order
}

// stamp returns the name and addresses of a piece.
func (p *piece) stamp() *xds.Stamp { return &xds.Stamp{Name: p.name, Addresses: p.addresses} }
