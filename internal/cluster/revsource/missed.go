package revsource

import (
	"context"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Limits of the search for removals: about as far back as a store remembers them, and no longer than
// clients may wait.
const (
	missedMost = 64 // revisions
	missedTime = time.Second
)

// missed returns the revisions between the served one and the next, the oldest first, that must be served
// on the way. Those are revisions with a resource that is removed later and is not served in this form. A
// client of another server may have that resource, and keeps receiving it as long as it may need it. So
// this server must not send it an older form. This concerns only types that SotW sends as a whole; held
// groups have their own course.
func (s *Source) missed(ctx context.Context, next *revisions.Snapshot) (all []*revisions.Snapshot) {
	was := s.served.Load()
	if was == nil || was.Revision.Number == 0 || next.Revision.Number <= was.Revision.Number+1 {
		return nil
	}
	for _, h := range next.Holds() {
		if h.Next != nil { // the picked clients are counted when the whole revision is served
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, missedTime)
	defer cancel()
	seen := map[revisions.Key]bool{}
	looked := 0
	_ = s.repo.History(ctx, func(r revisions.Revision) bool { // after an error the next revision is served all the same
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

// lost reports whether a revision has a resource that the next one lacks and that is not served in this
// form. seen are the keys of later revisions.
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
