package revsource

import (
	"context"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Limits of the search for missed removals: about the number of revisions whose removals a store
// remembers, and the time that clients may wait.
const (
	missedMost = 64 // number of revisions
	missedTime = time.Second
)

// missed returns revisions between the served one and the next that this server must serve first, the
// oldest first. Such a revision has a resource that a later revision removes, in a form that this
// server has not served. A client that comes from another server may have this form, and keeps the
// resource as long as it needs it. So this server must not send the client an older form. Only types
// that SotW sends as a whole are concerned. Held groups do not need this.
func (s *Source) missed(ctx context.Context, next *revisions.Snapshot) (all []*revisions.Snapshot) {
	was := s.served.Load()
	if was == nil || was.Revision.Number == 0 || next.Revision.Number <= was.Revision.Number+1 {
		return nil
	}
	for _, h := range next.Holds() {
		if h.Next != nil { // during a rollout, the picked clients are counted when the next revision is served
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, missedTime)
	defer cancel()
	seen := map[revisions.Key]bool{}
	looked := 0
	_ = s.repo.History(ctx, func(r revisions.Revision) bool { // after an error, the next revision is served without the missed ones
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

// lost reports whether the revision `at` has a resource that the next revision lacks, in a form that
// the served revision `was` does not have. The map seen has the keys that later revisions have lost.
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
