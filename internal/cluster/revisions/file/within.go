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

// A disk of a network may not answer for as long as it is away, and the system has no way to give such a call up. So whoever
// calls does not wait for it longer than this, or than for his context. The call is left behind: it ends when the disk is back.
const (
	readTime  = 4 * time.Second
	writeTime = 30 * time.Second // a busy disk may take long to sync
	maxCalls  = 64               // of the disk at once, with those that are left behind: each has a thread of the system
)

// within returns what f returns, unless that takes longer than for a context, or a time. The context of f is done then, too:
// what it has not begun it need not begin.
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

// late returns why nobody waits any more for what is done with a key.
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

// hold locks a file within a time. A lock that comes when nobody waits for it any more is let go.
func (e *Engine) hold(ctx context.Context, key, name string, most time.Duration) (unlock func(), err error) {
	var got func()       // set before over
	var over atomic.Bool // it is locked, or nobody waits any more: whoever comes second lets it go
	unlock, err = within(ctx, e, key, most, func(context.Context) (func(), error) {
		unlock, err := e.disk.Lock(e.lockPath(name))
		if errors.Is(err, internaldisk.ErrBusy) {
			return nil, fmt.Errorf("%s: %w", key, revisions.ErrBusy)
		}
		if err != nil {
			return nil, e.failed(key, err)
		}
		if got = unlock; over.Swap(true) {
			unlock()
		}
		return unlock, nil
	})
	if err != nil && over.Swap(true) {
		got()
	}
	return unlock, err
}
