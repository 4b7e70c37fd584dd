package file

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/internal/filelock"
	"github.com/chancery-xds/chancery/revisions"
)

// announces names the lock of who has announced a key: whose program has died can be locked by others.
func announces(key string) string { return "there-" + strings.ReplaceAll(key, "/", "_") }

// Announce implements [revisions.Announcer]: the file is there as long as its program has a lock.
func (e *Engine) Announce(ctx context.Context, key string, values <-chan []byte) error {
	path, err := e.path(key)
	if err != nil {
		return err
	}
	unlock, err := e.lockFile(announces(key))
	if errors.Is(err, filelock.ErrBusy) {
		return fmt.Errorf("%s: %w", key, revisions.ErrBusy)
	}
	if err != nil {
		return e.failed(key, err)
	}
	defer func() {
		e.forget(key, path)
		unlock()
	}()
	for {
		select {
		case v := <-values:
			if err := e.replace(path, v); err != nil {
				return e.failed(key, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// forget removes a key, and its lock, which whoever calls it has: no other program ever has the key.
func (e *Engine) forget(key, path string) {
	_ = e.disk.Remove(path) // who looks next tries again
	_ = e.disk.Remove(e.lockPath(announces(key)))
}

// Announced implements [revisions.Announcer]. It removes what is of programs that have died.
func (e *Engine) Announced(ctx context.Context, prefix string, most int) (all map[string][]byte, more bool, err error) {
	all = map[string][]byte{}
	for key, err := range e.List(ctx, prefix) {
		if err != nil {
			return nil, false, err
		}
		if unlock, err := e.lockFile(announces(key)); err == nil {
			if path, err := e.path(key); err == nil {
				e.forget(key, path)
			}
			unlock()
			continue
		}
		if len(all) == most {
			return all, true, nil
		}
		if b, err := e.Get(ctx, key); err == nil { // else it has just gone
			all[key] = b
		}
	}
	return all, false, nil
}
