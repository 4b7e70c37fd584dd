package revisions

import (
	"context"
	"iter"
	"time"
)

// Watch yields each newer revision than a snapshot (nil: any), and the newest when other groups are held, until ctx is done; of several that
// come at once the last. They are as [Repository.Serving] returns them. If the newest cannot be read, it yields the error and no
// snapshot, and tries again: what was yielded last is the last good. It yields an error
// again only if it is another one, and when all is well again the newest, also if that is the last good.
func (r *Repository) Watch(ctx context.Context, since *Snapshot) iter.Seq2[*Snapshot, error] {
	if since == nil {
		since = &Snapshot{}
	}
	r.Saw(since)
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
	if since.Revision.id == s.Revision.id && s.head.turns == since.head.turns && !since.kept {
		return nil, nil
	}
	return s, nil
}
