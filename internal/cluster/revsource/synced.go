package revsource

import (
	"context"
	"errors"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

const (
	syncWait = time.Second // minimum time between two writes of a server
	syncPoll = 10 * time.Second
)

// keepSynced calls sync until ctx is done: when the value of a key may have changed, when changed sends, and
// every syncPoll. The argument of sync reports whether changed has sent since the last call. It calls warn
// with the first of several errors in a row, except for conflicts.
func keepSynced(ctx context.Context, e revisions.Engine, key string, changed <-chan struct{}, sync func(changed bool) error, warn func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	rings := e.Watch(ctx, key)
	defer func() {
		cancel()
		for range rings { // the engine closes the channel when its watch has ended
		}
	}()
	warned, has := false, false
	for {
		select {
		case <-changed:
			has = true
		default:
		}
		switch err := sync(has); {
		case err == nil:
			warned = false
		case ctx.Err() == nil && !errors.Is(err, revisions.ErrConflict) && !warned:
			warned = true
			warn(err)
		}
		has = false
		pause := time.NewTimer(syncWait)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
		poll := time.NewTimer(syncPoll)
		select {
		case <-changed:
			has = true
		case <-rings:
		case <-poll.C:
		case <-ctx.Done():
		}
		poll.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
