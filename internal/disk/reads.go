package disk

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// ReadTime is how long a caller of [Reads.Do] waits for a read, if [Reads] has no other time.
const ReadTime = time.Second

// Reads runs reads that are needed to answer a request and may hang, such as those of a file system. One read
// runs at a time. Its callers wait for it at most until it has lasted Wait, and then use the result of the
// read before. So a read that hangs costs one goroutine, and delays only the requests that come within Wait.
type Reads struct {
	Wait time.Duration // zero: [ReadTime]

	mu    sync.Mutex    // not held during I/O
	began time.Time     // of the last read
	done  chan struct{} // closed at the end of the running read; nil: no read is running
	late  bool          // a caller knows that the running read hangs
}

// Do runs read in a goroutine, unless a read is running, or the last one began less than least ago. It returns at
// the end of the running read. If that read hangs, or ctx ends, Do returns earlier, and running is true. The
// result first is true for one caller of each read that hangs, for a warning.
func (r *Reads) Do(ctx context.Context, now time.Time, least time.Duration, read func()) (running, first bool) {
	r.mu.Lock()
	since := now.Sub(r.began)
	if r.done == nil {
		if !r.began.IsZero() && since >= 0 && since < least {
			r.mu.Unlock()
			return false, false
		}
		r.began, r.done, r.late, since = now, make(chan struct{}), false, 0
		go r.run(read, r.done)
	}
	done := r.done
	r.mu.Unlock()
	t := time.NewTimer(cmp.Or(r.Wait, ReadTime) - since) // fires at once if the time is over
	defer t.Stop()
	select {
	case <-done:
		return false, false
	case <-ctx.Done():
		return true, false
	case <-t.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done != done {
		return false, false
	}
	first, r.late = !r.late, true
	return true, first
}

func (r *Reads) run(read func(), done chan struct{}) {
	defer func() {
		r.mu.Lock()
		r.done = nil
		r.mu.Unlock()
		close(done)
	}()
	read()
}
