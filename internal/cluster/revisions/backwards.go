package revisions

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrBackwards says that the newest revision is older than one that was read before, or of a line without that: somebody has put
// a backup, or another repository, in the place of the repository. Until it is back, or is opened anew, nothing is read of it, and nothing written: what
// is committed would be lost when it is back, and what the lost revisions said would be taken back without a word.
var ErrBackwards = errors.New("the repository has gone back")

// Saw has the repository return nothing older than a snapshot of it, which was read before it was opened ([Kept]).
func (r *Repository) Saw(s *Snapshot) { r.saw(head{at: s.Revision.id, turns: s.head.turns}) }

// saw notes a head, unless a newer one was read meanwhile.
func (r *Repository) saw(h head) {
	for {
		was := r.seen.Load()
		if was != nil && (was.at == h.at && was.turns == h.turns || was.at.number > h.at.number || was.turns > h.turns) {
			return
		}
		if r.seen.CompareAndSwap(was, &h) {
			return
		}
	}
}

// follows returns [ErrBackwards], which says why, unless the revision of a head has that of one before it among its ancestors.
func (r *Repository) follows(ctx context.Context, was *head, is head) error {
	switch {
	case was == nil || was.at.number == 0:
		return nil
	case is.at.number == 0:
		return fmt.Errorf("%w: there is no %s any more, which was %s", ErrBackwards, headKey, was.at.number)
	case is.turns < was.turns:
		return fmt.Errorf("%w: its holds have changed %d times, and had %d times", ErrBackwards, is.turns, was.turns)
	case is.at == was.at, was.at.number < is.from: // what is not kept any more nobody can judge
		return nil
	}
	rev, err := r.revision(ctx, is.at)
	if err != nil {
		return fmt.Errorf("%s is %s: %w", headKey, is.at.number, missing(err))
	}
	when := rev.Time.UTC().Format(time.RFC3339)
	if is.at.number <= was.at.number {
		return fmt.Errorf("%w: from %s to another %s, of %s", ErrBackwards, was.at.number, is.at.number, when)
	}
	then := revisionID{is.at.number - 1, rev.parent}
	if then.number > was.at.number {
		then, err = r.find(ctx, is, was.at.number)
	}
	switch {
	case errors.Is(err, ErrNotFound): // a sweep may just have removed it
		return nil
	case err != nil:
		return err
	case then != was.at:
		return fmt.Errorf("%w: to %s, of %s, which comes after another %s than that which was read", ErrBackwards, is.at.number, when, was.at.number)
	}
	return nil
}
