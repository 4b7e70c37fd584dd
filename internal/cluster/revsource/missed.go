package revsource

import (
	"context"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// How far back it is looked what was removed: about as far as a store remembers it, and no longer than clients may wait.
const (
	missedMost = 64 // revisions
	missedTime = time.Second
)

// missed returns revisions between the one that is served and the next, the oldest first, that are to be served on the
// way: those after which something was removed that is not served so. A client of another server may have it as it was
// then, and goes on to be told of it as long as it may need it: it must not be told what it was before that.
// Only what SotW sends as a whole type is told so, and groups that are held have a course of their own.
func (s *Source) missed(ctx context.Context, next *revisions.Snapshot) (all []*revisions.Snapshot) {
	was := s.served.Load()
	if was == nil || was.Revision.Number == 0 || next.Revision.Number <= was.Revision.Number+1 {
		return nil
	}
	for _, h := range next.Holds() {
		if h.Next != nil { // who is picked is counted from when all of it is served
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, missedTime)
	defer cancel()
	seen := map[revisions.Key]bool{}
	looked := 0
	_ = s.repo.History(ctx, func(r revisions.Revision) bool { // after an error the next one is served all the same
		looked++
		if r.Removed > 0 && r.Number <= next.Revision.Number && r.Number > was.Revision.Number+1 {
			at, err := s.repo.At(ctx, r.Number-1)
			if err != nil {
				return false
			}
			if lost(was, at, next, seen) {
				all = append(all, at)
			}
		}
		return r.Number > was.Revision.Number+2 && looked < missedMost
	})
	slices.Reverse(all)
	return all
}

// lost reports whether a revision has something that the next has not, and what is served has not so. Seen is what a later one has.
func lost(was, at, next *revisions.Snapshot, seen map[revisions.Key]bool) (is bool) {
	next.Since(at, func(gone, there *revisions.Item) bool {
		if there != nil || gone.Resource == nil || !gone.Resource.Type.FullState || seen[gone.Key()] {
			return true
		}
		k := gone.Key()
		seen[k] = true
		_, before := was.Holds()[k.Group]
		_, now := next.Holds()[k.Group]
		old := was.Get(k)
		is = is || !before && !now && (old == nil || old.Resource.Version != gone.Resource.Version || old.Resource.Sum != gone.Resource.Sum)
		return true
	})
	return is
}
