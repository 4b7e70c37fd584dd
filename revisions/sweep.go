package revisions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Swept says what a sweep did.
type Swept struct {
	Oldest    Number // the oldest revision that is kept
	Revisions int    // how many were removed
	Packs     int    // how many were removed
	Foreign   []string
}

// sweepLease is the name of the lease of who sweeps.
const sweepLease = "sweep"

// Sweep removes the revisions before the last keep, at least 1, and all that nothing refers
// to any more. One program at a time does it: [ErrBusy] says that another is at it.
// Others may commit and read meanwhile. What it does not know, it leaves alone, and tells ([Swept.Foreign]); if it
// cannot read all that is kept, it removes nothing.
//
// No clock decides what goes, and no grace. Each try to commit writes new packs, after it has read the head;
// and it may refer, besides to these, to what is reachable in revisions that the head says are kept. So what
// is there before the head is swapped here, and is not reachable after that, nobody can ever refer to: who
// had read the head before finds another one, and tries again.
func (r *Repository) Sweep(ctx context.Context, keep int) (Swept, error) {
	held, release, err := r.engine.Lease(ctx, sweepLease)
	if err != nil {
		return Swept{}, err
	}
	defer release()
	s, err := r.sweep(held, Number(max(keep, 1)))
	if err != nil && held.Err() != nil {
		err = errors.Join(err, context.Cause(held))
	}
	return s, err
}

func (r *Repository) sweep(ctx context.Context, keep Number) (s Swept, err error) {
	was, err := r.head(ctx)
	if err != nil || was.raw == nil {
		return s, err // whoever commits first may be about to
	}
	var there []string
	for _, prefix := range []string{revisionPrefix, packPrefix} {
		for key, err := range r.engine.List(ctx, prefix) {
			if err != nil {
				return s, err
			}
			_, revision := parseRevisionKey(key)
			_, pack := parseHash(strings.TrimPrefix(key, packPrefix))
			if revision || pack {
				there = append(there, key)
			} else {
				s.Foreign = append(s.Foreign, key)
			}
		}
	}
	var h head
	for {
		s.Oldest = was.at.number - min(keep, was.at.number) + 1
		if held := was.oldest(); held > 0 {
			s.Oldest = min(s.Oldest, held)
		}
		s.Oldest = max(s.Oldest, was.from)
		if h, err = was.next(was.at, s.Oldest, was.swept+1); err != nil {
			return s, err
		}
		if err = r.engine.CompareAndSwap(ctx, headKey, was.raw, h.raw); err == nil {
			break
		}
		if !errors.Is(err, ErrConflict) {
			return s, err
		}
		if was, err = r.head(ctx); err != nil {
			return s, err
		}
	}
	kept, err := r.mark(ctx, h)
	if err != nil {
		return s, fmt.Errorf("nothing is removed: %w", err)
	}
	there = slices.DeleteFunc(there, func(key string) bool { return kept[key] })
	for keys := range slices.Chunk(there, 64) {
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		if err := r.engine.Delete(ctx, keys...); err != nil {
			return s, err
		}
		for _, key := range keys {
			if strings.HasPrefix(key, packPrefix) {
				s.Packs++
			} else {
				s.Revisions++
			}
		}
	}
	return s, nil
}

// mark returns the keys that the revisions refer to that a head keeps, and theirs.
func (r *Repository) mark(ctx context.Context, h head) (map[string]bool, error) {
	kept := map[string]bool{}
	l := r.loader()
	l.bodies = false
	if last := r.last.Load(); last != nil { // what is marked is not returned: it may have bodies
		l.knows(last.tree(), last.below)
	}
	seen := map[*node]bool{}
	for id := h.at; id.number >= h.from; {
		rev, err := r.revision(ctx, id)
		if err != nil {
			return nil, err
		}
		root, below, err := l.tree(ctx, rev.root)
		if err != nil {
			return nil, err
		}
		kept[id.key()], kept[packKey(rev.root.pack)] = true, true
		for _, at := range below {
			kept[packKey(at.pack)] = true
		}
		root.leaves(func(n *node) {
			if seen[n] {
				return
			}
			seen[n] = true
			kept[packKey(n.at.pack)] = true
			for _, e := range n.page {
				for _, p := range e.pieces {
					kept[packKey(p.pack)] = true
				}
			}
		})
		id = revisionID{id.number - 1, rev.parent}
	}
	return kept, nil
}
