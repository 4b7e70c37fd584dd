package file

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	internaldisk "github.com/chancery-xds/chancery/internal/disk"
)

// A network disk may stop answering, and the system cannot cancel a call. So a caller waits at most
// for these times, or until its context is done. Then it abandons the call, which ends when the disk
// recovers.
const (
	readTime  = 4 * time.Second
	writeTime = 30 * time.Second // a busy disk may take long to sync
	maxCalls  = 64               // maximum number of concurrent calls of the disk, including abandoned ones: each occupies a thread of the system
)

// within returns the result of f, or an error when ctx is done or the time `most` has passed. It then
// ends the context of f, so that f does not begin further calls.
func within[T any](ctx context.Context, e *Engine, key string, most time.Duration, f func(context.Context) (T, error)) (v T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, errSilent)
	defer cancel()
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	select {
	case e.calls <- struct{}{}:
		go func() {
			defer func() { <-e.calls }()
			v, err := f(ctx)
			done <- result{v, err}
		}()
	case <-ctx.Done():
		return v, late(ctx, key)
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return v, late(ctx, key)
	}
}

var errSilent = fmt.Errorf("%w: the disk of the store does not answer", revisions.ErrUnavailable)

// late returns the error of a call that took too long.
func late(ctx context.Context, key string) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

func (e *Engine) write(ctx context.Context, key string, f func(context.Context) error) error {
	_, err := within(ctx, e, key, writeTime, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// hold locks a file within a time. If the system grants the lock too late, hold releases it.
func (e *Engine) hold(ctx context.Context, key, name string, most time.Duration) (unlock func(), err error) {
	var got func()       // set before over is
	var over atomic.Bool // the lock is held, or the caller has stopped waiting; the second of these events releases the lock
	unlock, err = within(ctx, e, key, most, func(context.Context) (func(), error) {
		unlock, err := e.disk.Lock(e.lockPath(name))
		if errors.Is(err, internaldisk.ErrBusy) {
			return nil, fmt.Errorf("%s: %w", key, revisions.ErrBusy)
		}
		if err != nil {
			return nil, e.failed(key, err)
		}
		got = unlock
		if over.Swap(true) {
			unlock()
		}
		return unlock, nil
	})
	if err != nil && over.Swap(true) {
		got()
	}
	return unlock, err
}
