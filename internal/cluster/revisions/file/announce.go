package file

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// announces is the name of the lock that an announcing program holds. If another program can acquire
// the lock, the announcing program has died.
func announces(key string) string { return "there-" + strings.ReplaceAll(key, "/", "_") }

// Announce implements [revisions.Announcer]: the program holds a lock as long as the file exists. If the directory was
// replaced, for example by a backup, it locks and writes the new files (SAFE-17).
func (e *Engine) Announce(ctx context.Context, key string, values <-chan []byte) error {
	path, err := e.path(key)
	if err != nil {
		return err
	}
	unlock, err := e.hold(ctx, key, announces(key), writeTime)
	if err != nil {
		return err
	}
	defer func() {
		e.forget(context.WithoutCancel(ctx), key, path)
		unlock()
	}()
	check := time.NewTicker(e.poll)
	defer check.Stop()
	var value []byte
	written := false
	for {
		select {
		case value = <-values:
			written = true
		case <-check.C:
			again, err := e.hold(ctx, key, announces(key), readTime)
			if err != nil { // ErrBusy: this program still holds the lock
				continue
			}
			unlock()
			unlock = again
		case <-ctx.Done():
			return nil
		}
		if !written {
			continue
		}
		err := e.write(ctx, key, func(context.Context) error { return e.failed(key, e.replace(path, value)) })
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// forget removes a key and its lock, which the caller holds. No other program uses this key.
func (e *Engine) forget(ctx context.Context, key, path string) {
	_, _ = within(ctx, e, key, readTime, func(context.Context) (struct{}, error) {
		_ = e.disk.Remove(path) // if it fails, the next call of Announced tries again
		return struct{}{}, e.disk.Remove(e.lockPath(announces(key)))
	})
}

// Announced implements [revisions.Announcer]. It removes the keys of programs that have died.
func (e *Engine) Announced(ctx context.Context, prefix string, most int) (all map[string][]byte, more bool, err error) {
	all = map[string][]byte{}
	for key, err := range e.List(ctx, prefix) {
		if err != nil {
			return nil, false, err
		}
		unlock, err := e.hold(ctx, key, announces(key), readTime)
		if err == nil {
			if path, err := e.path(key); err == nil {
				e.forget(ctx, key, path)
			}
			unlock()
			continue
		}
		if errors.Is(err, revisions.ErrUnavailable) {
			return nil, false, err
		}
		if len(all) == most {
			return all, true, nil
		}
		if b, err := e.Get(ctx, key); err == nil { // after an error: the program has just removed its file
			all[key] = b
		}
	}
	return all, false, nil
}
