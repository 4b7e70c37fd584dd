package repository

import (
	"context"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/revisions"
)

// How far back it is looked what was removed: about as far as a store remembers it, and no longer than clients may wait.
const (
	missedMost = 64 // revisions
	missedTime = time.Second
)

// missed returns revisions between the one that is served and the next, the oldest first, that are to be served on the
// way: those after which something was removed that had changed since. A client of another server may have it as it was
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
	gone := map[revisions.Key]*revisions.Item{}
	next.Since(was, func(old, is *revisions.Item) bool {
		if is == nil && old.Resource != nil && old.Resource.Type.FullState {
			_, before := was.Holds()[old.Group]
			if _, now := next.Holds()[old.Group]; !before && !now {
				gone[old.Key()] = old
			}
		}
		return true
	})
	ctx, cancel := context.WithTimeout(ctx, missedTime)
	defer cancel()
	at := next
	for range missedMost {
		if len(gone) == 0 || at.Revision.Number <= was.Revision.Number+1 {
			break
		}
		var err error
		if at, err = s.repo.Before(ctx, at); err != nil { // the next one is served all the same
			break
		}
		changed := false
		for k, old := range gone {
			if it := at.Get(k); it != nil {
				delete(gone, k)
				changed = changed || it.Resource.Version != old.Resource.Version || it.Resource.Sum != old.Resource.Sum
			}
		}
		if changed {
			all = append(all, at)
		}
	}
	slices.Reverse(all)
	return all
}
