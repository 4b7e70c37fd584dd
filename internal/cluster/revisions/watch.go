package revisions

import (
	"context"
	"iter"
	"time"
)

// Watch yields each revision that is newer than a snapshot (nil: any), until ctx is done. When the
// holds change, it yields the newest revision again. Of several changes in quick succession it may
// yield only the last. The snapshots are those of [Repository.Serving].
//
// If the newest revision cannot be read, Watch yields the error without a snapshot, and retries: the
// last snapshot remains the last good one. It yields an error again only if the text has changed.
// After errors it yields the newest snapshot, even if it has yielded that before.
func (r *Repository) Watch(ctx context.Context, since *Snapshot) iter.Seq2[*Snapshot, error] {
	if since == nil {
		since = &Snapshot{}
	}
	r.Observe(since)
	return func(yield func(*Snapshot, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		bell := r.engine.Watch(ctx, headKey)
		defer func() {
			cancel()
			for range bell { // the engine closes the channel when its watch has ended
			}
		}()
		lastError, wait := "", r.opts.Retry
		for {
			next, err := r.newer(ctx, since)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				if next == nil && lastError != "" {
					next = since
				}
				lastError, wait = "", r.opts.Retry
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
				if err.Error() != lastError {
					lastError = err.Error()
					if !yield(nil, err) {
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

// rest waits for a hint of the engine or for Refresh, for at most d. It returns false if ctx is done.
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
	if since.Revision.id == s.Revision.id && s.head.turns == since.head.turns && !since.saved {
		return nil, nil
	}
	return s, nil
}
