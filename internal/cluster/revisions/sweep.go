package revisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Swept is the result of a sweep.
type Swept struct {
	Oldest    Number // the oldest revision kept
	Revisions int    // number of removed revisions
	Packs     int    // number of removed packs
	Bytes     int64  // the size of the removed revisions and packs
	Held      Number // the revision at which a group is held, if the sweep keeps more revisions for it; 0: none
	Accepted  Number // the revision with content that clients accepted, if the sweep keeps more revisions for it; 0: none
	Foreign   []string
}

// sweepLease is the lease of the running sweep.
const sweepLease = "sweep"

// Sweep removes all revisions before the last `keep`, at least 1, and all packs that no revision
// refers to. It keeps up to 100 more revisions for the accepted versions (HEAL-3). Only one program
// can sweep at a time; the others get [ErrBusy]. Other programs may commit and read during a sweep.
// Sweep leaves unknown keys alone and returns them in [Swept.Foreign]. If it cannot read all kept
// revisions, it removes nothing.
//
// Sweep needs neither a clock nor a grace period. Each attempt to commit first reads the head, and
// then writes new packs. It refers only to these packs, and to packs of revisions that the head
// keeps. Sweep lists the packs, swaps the head, and then removes the listed packs that are not
// reachable. No later commit can refer to the removed packs: a writer with an older head fails to
// swap the head, and tries again.
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

// Plan returns what Sweep would remove now, without writing. It may count packs of a commit in progress.
func (r *Repository) Plan(ctx context.Context, keep int) (Swept, error) {
	return r.sweep(ctx, keep, true)
}

// Due returns the number of revisions that Sweep would remove now. It reads only the head and the accepted versions.
func (r *Repository) Due(ctx context.Context, keep int) (int, error) {
	h, err := r.head(ctx)
	if err != nil || h.at.number == 0 {
		return 0, err
	}
	from, _, _, err := r.keep(ctx, h, keep)
	return int(from - h.from), err
}

// AcceptedKey is the key of the versions that clients accepted. [revsource.Accepted] writes it.
const AcceptedKey = "accepted"

// acceptedMost is how many revisions a sweep keeps in addition for the accepted versions.
const acceptedMost = 100

// keep returns the oldest revision that a sweep must keep, if the last `keep` are wanted. If a group is held at an
// older revision, or accepted versions need one, that one is the oldest to keep, and also the result held or accepted.
func (r *Repository) keep(ctx context.Context, h head, keep int) (from, held, accepted Number, err error) {
	from = h.at.number - min(Number(max(keep, 1)), h.at.number) + 1
	last := from
	if old := h.oldest(); old > 0 && old < from {
		from, held = old, old
	}
	old, err := r.accepted(ctx, max(h.from, last-min(last, acceptedMost)))
	if err != nil {
		return 0, 0, 0, err
	}
	if old > 0 && old < from {
		from, held, accepted = old, 0, old
	}
	return max(from, h.from), held, accepted, nil
}

// accepted returns the oldest revision, from least on, with content that clients accepted; 0: none.
func (r *Repository) accepted(ctx context.Context, least Number) (oldest Number, err error) {
	b, err := r.engine.Get(ctx, AcceptedKey)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		return 0, err
	}
	var is struct {
		Servers map[string]struct{ Evidence struct{ Oldest Number } }
	}
	if json.Unmarshal(b, &is) != nil {
		return 0, nil //nolint:nilerr // the value is of another build, or invalid
	}
	for _, s := range is.Servers {
		if n := s.Evidence.Oldest; n > 0 && n >= least && (oldest == 0 || n < oldest) {
			oldest = n
		}
	}
	return oldest, nil
}

func (r *Repository) sweep(ctx context.Context, keep int, dry bool) (s Swept, err error) {
	was, err := r.head(ctx)
	if err != nil || was.at.number == 0 {
		return s, err // the repository is empty: the packs may belong to a first commit in progress
	}
	if err := r.checkHistory(ctx, was); err != nil {
		return s, err
	}
	for err = r.checkServers(ctx, was); err != nil; err = r.checkServers(ctx, was) {
		if !errors.Is(err, ErrConflict) {
			return s, err
		}
		was, err = r.head(ctx)
		if err != nil {
			return s, err
		}
	}
	var unused []string // first all keys, then without the kept ones
	for _, prefix := range []string{revisionPrefix, packPrefix} {
		for key, err := range r.engine.List(ctx, prefix) {
			if err != nil {
				return s, err
			}
			if ours(key) {
				unused = append(unused, key)
			} else {
				s.Foreign = append(s.Foreign, key)
			}
		}
	}
	h, err := r.moveOldest(ctx, was, keep, dry, &s)
	if err != nil {
		return s, err
	}
	kept, err := r.mark(ctx, h)
	if err != nil {
		return s, fmt.Errorf("nothing is removed: %w", err)
	}
	unused = slices.DeleteFunc(unused, func(key string) bool { return kept[key] })
	for keys := range slices.Chunk(unused, 64) {
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

// moveOldest swaps the head for one with a later oldest revision, and returns the new head. It sets the fields of s
// about the kept revisions. If dry is true, it does not write the head.
func (r *Repository) moveOldest(ctx context.Context, was head, keep int, dry bool, s *Swept) (h head, err error) {
	for {
		s.Oldest, s.Held, s.Accepted, err = r.keep(ctx, was, keep)
		if err == nil {
			h, err = was.next(was.at, s.Oldest, was.swept+1)
		}
		if err != nil || dry {
			return h, err
		}
		err = r.engine.CompareAndSwap(ctx, headKey, was.raw, h.raw)
		if err == nil || !errors.Is(err, ErrConflict) {
			return h, err
		}
		was, err = r.head(ctx)
		if err != nil {
			return h, err
		}
	}
}

// size returns the total size of the values that can be read.
func (r *Repository) size(ctx context.Context, keys []string) (n int64) {
	for _, key := range keys {
		if b, err := r.engine.Get(ctx, key); err == nil {
			n += int64(len(b))
		}
	}
	return n
}

// mark returns all keys reachable from the revisions that a head keeps.
func (r *Repository) mark(ctx context.Context, h head) (map[string]bool, error) {
	kept := map[string]bool{}
	l := r.loader()
	l.bodies = false
	if last := r.last.Load(); last != nil { // the snapshot may lack bodies, because mark does not return the tree
		l.knows(last.tree(), last.below)
	}
	seen := map[*node]bool{}
	for id := h.at; id.number >= h.from; {
		rev, err := r.revision(ctx, id)
		if err != nil {
			return nil, r.kept(ctx, id.number, err)
		}
		root, below, err := l.tree(ctx, rev.root)
		if err != nil {
			return nil, r.kept(ctx, id.number, err)
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
