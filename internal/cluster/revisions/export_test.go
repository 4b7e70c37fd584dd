package revisions

import (
	"context"
	"slices"
)

// CommitAsStored replaces the content by items, and does not check their names, as an earlier version did.
func CommitAsStored(ctx context.Context, r *Repository, base *Snapshot, items ...*Item) error {
	rev := Revision{Number: base.Revision.Number + 1, Time: r.opts.Now(), parent: base.Revision.id.hash, Set: len(items)}
	var p packer
	var all []*entry
	for _, it := range items {
		pieces := p.body(it)
		p.settle()
		e := &entry{at: it.Key().position(), item: it}
		for _, at := range pieces {
			e.pieces = append(e.pieces, *at)
		}
		e.raw = it.encode(e.pieces)
		all = append(all, e)
	}
	slices.SortFunc(all, (*entry).compare)
	next := &Snapshot{root: build(0, all)}
	top, below := p.tree(next.root, nil)
	p.settle()
	rev.root, rev.Items, next.below = *top, len(all), below
	next.Revision = rev
	return r.publish(ctx, base.head, next, p.done)
}
