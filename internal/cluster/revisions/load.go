package revisions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// A loader reads trees. The trees share the nodes that the loader already knows.
type loader struct {
	repo   *Repository
	bodies bool // also read bodies that are in other packs
	pages  map[place]*node
	below  map[place]*node
	packs  map[hash][]byte // the packs that contain manifests of this tree
	fresh  map[*node]bool  // the pages that this loader has read
}

// loader returns a loader that knows the nodes of the given snapshots.
func (r *Repository) loader(known ...*Snapshot) *loader {
	l := &loader{repo: r, bodies: true, pages: map[place]*node{}, below: map[place]*node{}}
	for _, s := range known {
		if s != nil {
			l.knows(s.tree(), s.below)
		}
	}
	return l
}

func (l *loader) knows(root *node, below map[*node]*place) {
	for n, at := range below {
		l.below[*at] = n
	}
	root.leaves(func(n *node) {
		if n.at != (place{}) {
			l.pages[n.at] = n
		}
	})
}

func (n *node) leaves(f func(*node)) {
	if n.isPage() {
		f(n)
		return
	}
	n.kids[0].leaves(f)
	n.kids[1].leaves(f)
}

// pack returns a pack whose content matches the hash in its name.
func (r *Repository) pack(ctx context.Context, h hash) ([]byte, error) {
	b, err := r.engine.Get(ctx, packKey(h))
	switch {
	case err != nil:
		return nil, err
	case sha256.Sum256(b) != h:
		return nil, fmt.Errorf("%s: its content does not match its name: %w", packKey(h), ErrDamaged)
	case !bytes.HasPrefix(b, []byte(packMagic)) || len(b) < packHead:
		return nil, fmt.Errorf("%s: unknown pack format: %w", packKey(h), ErrNewer)
	}
	return b, nil
}

// tree reads the tree whose manifest is at a place.
func (l *loader) tree(ctx context.Context, at place) (*node, map[*node]*place, error) {
	l.packs, l.fresh = map[hash][]byte{}, map[*node]bool{}
	root := child{below: true, at: at}
	lists := map[place][]child{}
	if err := l.manifests(ctx, []child{root}, lists); err != nil {
		return nil, nil, err
	}
	if err := l.manifests(ctx, lists[at], lists); err != nil {
		return nil, nil, err
	}
	var pages []child
	for _, list := range lists {
		for _, c := range list {
			if !c.below {
				pages = append(pages, c)
			}
		}
	}
	if err := l.read(ctx, pages); err != nil {
		return nil, nil, err
	}
	n, err := l.join(root, lists)
	if err == nil {
		err = n.check(0, 0, l.fresh)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", packKey(at.pack), err)
	}
	below := map[*node]*place{}
	for _, c := range lists[at] {
		if c.below {
			below[l.below[c.at]] = &c.at
		}
	}
	return n, below, nil
}

// manifests reads the manifests among the children that the loader does not know.
func (l *loader) manifests(ctx context.Context, children []child, lists map[place][]child) error {
	var packs []hash
	for _, c := range children {
		if _, have := l.packs[c.at.pack]; c.below && l.below[c.at] == nil && !have {
			packs = append(packs, c.at.pack)
			l.packs[c.at.pack] = nil
		}
	}
	got := make([][]byte, len(packs))
	if err := each(ctx, len(packs), func(ctx context.Context, i int) (err error) {
		got[i], err = l.repo.pack(ctx, packs[i])
		return err
	}); err != nil {
		return err
	}
	for i, h := range packs {
		l.packs[h] = got[i]
	}
	for _, c := range children {
		if !c.below || l.below[c.at] != nil {
			continue
		}
		b, err := c.at.in(l.packs[c.at.pack])
		if err != nil {
			return err
		}
		lists[c.at], err = decodeManifest(b, c.at.pack)
		if err != nil {
			return fmt.Errorf("%s: a manifest: %w", packKey(c.at.pack), err)
		}
	}
	return nil
}

// join returns the node of a child.
func (l *loader) join(c child, lists map[place][]child) (*node, error) {
	if !c.below {
		return l.pages[c.at], nil
	}
	if n := l.below[c.at]; n != nil {
		return n, nil
	}
	list, ok := lists[c.at]
	if !ok {
		return nil, fmt.Errorf("manifests nested too deeply: %w", ErrDamaged)
	}
	delete(lists, c.at) // a manifest must not contain itself
	nodes := make([]*node, len(list))
	for i, c := range list {
		n, err := l.join(c, lists)
		if err != nil {
			return nil, err
		}
		nodes[i] = n
	}
	n, err := assemble(c.depth, list, nodes)
	if err == nil {
		lists[c.at] = list
		l.below[c.at] = n
	}
	return n, err
}

// read reads the unknown pages, and the bodies of their items.
func (l *loader) read(ctx context.Context, pages []child) error {
	in := map[hash][]place{}
	var packs []hash
	for _, c := range pages {
		if l.pages[c.at] != nil {
			continue
		}
		if in[c.at.pack] == nil {
			packs = append(packs, c.at.pack)
		}
		in[c.at.pack] = append(in[c.at.pack], c.at)
	}
	var mu sync.Mutex
	bodies := map[hash][]*waiting{}
	err := each(ctx, len(packs), func(ctx context.Context, i int) (err error) {
		h := packs[i]
		data := l.packs[h]
		if data == nil {
			data, err = l.repo.pack(ctx, h)
			if err != nil {
				return err
			}
		}
		for _, at := range in[h] {
			b, err := at.in(data)
			if err != nil {
				return err
			}
			n, wait, err := decodePage(bytes.Clone(b)) // a clone, because one item would otherwise keep the whole pack in memory
			if err != nil {
				return fmt.Errorf("%s: a page: %w", packKey(h), err)
			}
			n.at = at
			mu.Lock()
			l.pages[at], l.fresh[n] = n, true
			for _, w := range wait {
				for i, p := range w.pieces {
					bodies[p.pack] = append(bodies[p.pack], &waiting{w, i})
				}
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil || !l.bodies {
		return err
	}
	if err := l.fill(ctx, bodies); err != nil || l.repo.opts.Prepare == nil {
		return err
	}
	fresh := slices.Collect(maps.Keys(l.fresh))
	return each(ctx, len(fresh), func(_ context.Context, i int) error {
		for _, e := range fresh[i].page {
			if e.item.Resource != nil {
				l.repo.opts.Prepare(e.item.Resource)
			}
		}
		return nil
	})
}

// each calls f with 0 to n-1, several calls at once, until one call returns an error or ctx is done.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	const most = 8
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, most) {
		workers.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err) // the first error is the cause
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// decodePage decodes a page. The result refers to b.
func decodePage(b []byte) (*node, []*body, error) {
	n := &node{pages: 1}
	var wait []*body
	for f, err := range protoscan.Fields(b) {
		if err != nil {
			return nil, nil, err
		}
		if f.Number != pageItem {
			continue
		}
		k, it, pieces, finish, err := decodeItem(f.Bytes)
		if err != nil {
			return nil, nil, err
		}
		if pieces != nil {
			wait = append(wait, &body{pieces: pieces, got: make([][]byte, len(pieces)), finish: finish, item: it})
		} else if err := it.check(); err != nil {
			return nil, nil, errors.Join(ErrDamaged, err)
		}
		e := &entry{at: k.position(), raw: f.Bytes, item: it, pieces: pieces}
		n.page = append(n.page, e)
		n.renamed = n.renamed || k != it.Key()
		n.size += e.size()
		n.items++
	}
	return n, wait, nil
}

// A body is the body of an item, stored in pieces.
type body struct {
	item   *Item
	pieces []place
	got    [][]byte
	finish func([]byte)
}

// waiting is one missing piece of a body.
type waiting struct {
	*body
	i int
}

// fill reads the missing pieces, and gives the items their bodies.
func (l *loader) fill(ctx context.Context, bodies map[hash][]*waiting) error {
	packs := make([]hash, 0, len(bodies))
	for h := range bodies {
		packs = append(packs, h)
	}
	if err := each(ctx, len(packs), func(ctx context.Context, i int) error {
		data, err := l.repo.pack(ctx, packs[i])
		if err != nil {
			return err
		}
		for _, w := range bodies[packs[i]] {
			b, err := w.pieces[w.i].in(data)
			if err != nil {
				return err
			}
			w.got[w.i] = bytes.Clone(b)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, h := range packs {
		for _, w := range bodies[h] {
			if w.i > 0 {
				continue // set each body only once
			}
			all := w.got[0]
			if len(w.got) > 1 {
				all = bytes.Join(w.got, nil)
			}
			w.finish(all)
			if err := w.item.check(); err != nil {
				return fmt.Errorf("%s: %w", packKey(h), errors.Join(ErrDamaged, err))
			}
		}
	}
	return nil
}

// check checks the positions of the items in fresh pages, because a lookup would never find a
// misplaced item.
func (n *node) check(depth int, prefix uint64, fresh map[*node]bool) error {
	if !n.isPage() {
		if err := n.kids[0].check(depth+1, prefix, fresh); err != nil {
			return err
		}
		return n.kids[1].check(depth+1, prefix|1<<(63-depth), fresh)
	}
	if !fresh[n] {
		return nil
	}
	for i, e := range n.page {
		if depth > 0 && e.at>>(64-depth) != prefix>>(64-depth) || i > 0 && n.page[i-1].compare(e) >= 0 {
			return fmt.Errorf("%s: wrong position in the tree: %w", e.item.Key(), ErrDamaged)
		}
	}
	return nil
}
