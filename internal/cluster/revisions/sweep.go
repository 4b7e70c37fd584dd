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
	Bytes     int64  // of both
	Held      Number // the oldest revision that a group is held at, if more is kept for it; 0: none
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
	s, err := r.sweep(held, keep, false)
	if err != nil && held.Err() != nil {
		err = errors.Join(err, context.Cause(held))
	}
	return s, err
}

// Plan returns what Sweep would remove now, and writes nothing. What somebody is about to commit may be counted, too.
func (r *Repository) Plan(ctx context.Context, keep int) (Swept, error) {
	return r.sweep(ctx, keep, true)
}

// Due returns how many revisions Sweep would remove now. It reads the head alone.
func (r *Repository) Due(ctx context.Context, keep int) (int, error) {
	h, err := r.head(ctx)
	if err != nil || h.raw == nil {
		return 0, err
	}
	from, _ := h.keep(keep)
	return int(from - h.from), nil
}

// keep returns which revision is to be the oldest if so many are kept, and that which a group is held at if it
// is older than that.
func (h *head) keep(keep int) (from, held Number) {
	from = h.at.number - min(Number(max(keep, 1)), h.at.number) + 1
	if old := h.oldest(); old > 0 && old < from {
		from, held = old, old
	}
	return max(from, h.from), held
}

func (r *Repository) sweep(ctx context.Context, keep int, dry bool) (s Swept, err error) {
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
		s.Oldest, s.Held = was.keep(keep)
		if h, err = was.next(was.at, s.Oldest, was.swept+1); err != nil {
			return s, err
		}
		if dry {
			break
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
		size := r.size(ctx, keys)
		if !dry {
			if err := r.engine.Delete(ctx, keys...); err != nil {
				return s, err
			}
		}
		s.Bytes += size
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

// size returns how many bytes are stored under keys, as far as they can be read.
func (r *Repository) size(ctx context.Context, keys []string) (n int64) {
	for _, key := range keys {
		if b, err := r.engine.Get(ctx, key); err == nil {
			n += int64(len(b))
		}
	}
	return n
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
