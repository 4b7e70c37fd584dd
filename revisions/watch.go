package revisions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// ErrBackwards says that the newest revision is older than one that was read, or another one of
// the same number: somebody has put a backup in the place of the repository.
var ErrBackwards = errors.New("the repository has gone back")

// Watch yields each newer revision than a snapshot (nil: any), and the newest when other groups are held, until ctx is done; of several that
// come at once the last. They are as [Repository.Serving] returns them. If the newest cannot be read, it yields the error and no
// snapshot, and tries again: what was yielded last is the last good. It yields an error
// again only if it is another one, and when all is well again the newest, also if that is the last good.
func (r *Repository) Watch(ctx context.Context, since *Snapshot) iter.Seq2[*Snapshot, error] {
	if since == nil {
		since = &Snapshot{}
	}
	return func(yield func(*Snapshot, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		bell := r.engine.Watch(ctx, headKey)
		defer func() {
			cancel()
			for range bell { // the engine has let go of it when it is closed
			}
		}()
		said, wait := "", r.opts.Retry
		for {
			next, err := r.newer(ctx, since)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				if next == nil && said != "" {
					next = since
				}
				said, wait = "", r.opts.Retry
				if next != nil {
					since = next
					if !yield(next, nil) {
						return
					}
				}
				if !r.rest(ctx, bell, r.opts.Poll) {
					return
				}
			default:
				if err.Error() != said {
					if said = err.Error(); !yield(nil, err) {
						return
					}
				}
				if !r.rest(ctx, nil, wait) {
					return
				}
				wait = min(2*wait, 16*r.opts.Retry)
			}
		}
	}
}

// rest waits for a ring, or for who wants it to look, for at most d, and reports whether ctx is not done.
func (r *Repository) rest(ctx context.Context, bell <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case _, ok := <-bell:
		return ok
	case <-r.look:
		return true
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// newer returns the newest revision if it is newer than since, or nil.
func (r *Repository) newer(ctx context.Context, since *Snapshot) (*Snapshot, error) {
	s, err := r.Serving(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.After(since); err != nil {
		return nil, err
	}
	if since.Revision.id == s.Revision.id && s.head.turns == since.head.turns && !since.kept {
		return nil, nil
	}
	return s, nil
}

// After returns [ErrBackwards], which says why, if a snapshot is older than one that was read before, or another one of the same number.
func (s *Snapshot) After(before *Snapshot) error {
	switch was, is := before.Revision, s.Revision; {
	case s.head.turns < before.head.turns && is.Number > 0:
		return fmt.Errorf("%w: its holds have changed %d times, and had %d times", ErrBackwards, s.head.turns, before.head.turns)
	case was.id == is.id:
	case is.Number == 0:
		return fmt.Errorf("%w: there is no %s any more, which was %s", ErrBackwards, headKey, was.Number)
	case is.Number <= was.Number:
		return fmt.Errorf("%w: from %s to another %s, of %s", ErrBackwards, was.Number, is.Number, is.Time.UTC().Format(time.RFC3339))
	}
	return nil
}
