// Package file is an engine of package revisions in a directory, for one machine. Several programs may
// use the directory at once. Stored values survive a loss of power.
//
//	engine, err := file.Open("/var/lib/chancery/store", nil)
//	repo := revisions.Open(engine, revisions.Options{})
//
// Each key is a file. The locks are those of flock(2). On a network file system whose machines do not
// share locks, only one machine may use the directory. On a system without flock, only one program may
// use it.
package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	internaldisk "github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// An Engine keeps values in a directory. [Open] makes one; it needs no Close. Several goroutines may
// use it at once.
type Engine struct {
	dir   string
	locks string // the directory of the locks
	disk  disk
	log   *slog.Logger
	poll  time.Duration
	swap  chan struct{} // one slot, taken during a swap; it excludes other swaps of this process, even on systems without file locks
	calls chan struct{} // one slot for each call of the disk that is running
}

// Open returns the engine in a directory. It creates the directory, which only this user can read;
// the parent must exist. It logs once if the system cannot report file changes; a nil log is
// slog.Default().
func Open(dir string, log *slog.Logger) (*Engine, error) {
	if log == nil {
		log = slog.Default()
	}
	dir = filepath.Clean(dir) // clean, as the paths below it are
	e := &Engine{dir: dir, locks: filepath.Join(dir, tmp), disk: system{}, log: log, poll: 2 * time.Second}
	return e, e.prepare()
}

// Found reports whether a directory contains a store. If not, free reports whether a store can be
// created there, because the directory is empty or missing.
func Found(dir string) (is, free bool, err error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, true, nil
	}
	for _, f := range all {
		// tmp exists before the first revision, but a copy of the store may lack it, or the head.
		if f.Name() == tmp || f.Name() == "head" || f.Name() == "revision" && revisionsIn(filepath.Join(dir, f.Name())) {
			return true, false, nil
		}
	}
	return false, len(all) == 0 || len(all) == 1 && all[0].Name() == "lost+found", err // an empty volume
}

// revisionsIn reports whether a directory contains a revision.
func revisionsIn(dir string) bool {
	all, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(all, func(f os.DirEntry) bool { return revisionName.MatchString(f.Name()) })
}

var revisionName = regexp.MustCompile(`^[0-9]{16}-[0-9a-f]{64}$`)

// tmp contains the lock files, and files that are being written.
const tmp = ".tmp"

func (e *Engine) prepare() error {
	e.swap, e.calls = make(chan struct{}, 1), make(chan struct{}, maxCalls)
	for _, dir := range []string{e.dir, filepath.Join(e.dir, tmp)} {
		if err := e.mkdir(dir); err != nil {
			return e.failed(dir, err)
		}
	}
	e.setAside()
	return e.clean()
}

// mkdir creates a directory, unless it exists. The directory survives a loss of power.
func (e *Engine) mkdir(dir string) error {
	if err := e.disk.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return e.disk.SyncDir(filepath.Dir(dir))
}

// clean removes the files that killed programs have left.
func (e *Engine) clean() error {
	all, err := e.disk.List(filepath.Join(e.dir, tmp))
	if err != nil {
		return e.failed(tmp, err)
	}
	for _, f := range all {
		info, err := f.Info()
		if err == nil && strings.HasPrefix(f.Name(), "new-") && time.Since(info.ModTime()) > time.Hour {
			_ = e.disk.Remove(filepath.Join(e.dir, tmp, f.Name())) // on an error the next start tries again
		}
	}
	return nil
}

var keys = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)*$`)

func (e *Engine) path(key string) (string, error) {
	if !keys.MatchString(key) {
		return "", fmt.Errorf("%q cannot be a key", key)
	}
	return filepath.Join(e.dir, filepath.FromSlash(key)), nil
}

// failed turns an error of the system into an error of a key.
func (e *Engine) failed(key string, err error) error {
	var kind error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		kind = revisions.ErrNotFound
		if e.gone() {
			return fmt.Errorf("%s: %w: the directory of the store was removed or replaced: %w", key, revisions.ErrUnavailable, err)
		}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		kind = revisions.ErrDenied
	case full(err):
		kind = revisions.ErrFull
	default:
		return fmt.Errorf("%s: %w", key, err)
	}
	return fmt.Errorf("%s: %w (%w)", key, kind, err)
}

// gone reports whether the directory that was opened is missing, for example because it was moved or its
// volume is not mounted. Then a missing file does not prove that the key has no value.
func (e *Engine) gone() bool {
	_, err := e.disk.List(filepath.Join(e.dir, tmp)) // the mount point of a missing volume is a directory, too
	return errors.Is(err, fs.ErrNotExist)
}

// Get implements [revisions.Engine].
func (e *Engine) Get(ctx context.Context, key string) ([]byte, error) {
	path, err := e.path(key)
	if err != nil {
		return nil, err
	}
	return within(ctx, e, key, readTime, func(context.Context) ([]byte, error) {
		b, err := e.disk.Read(path)
		return b, e.failed(key, err)
	})
}

// PutIfAbsent implements [revisions.Engine].
func (e *Engine) PutIfAbsent(ctx context.Context, key string, value []byte) error {
	if len(value) > revisions.MaxValue {
		return tooLarge(key, value)
	}
	path, err := e.path(key)
	if err != nil {
		return err
	}
	return e.write(ctx, key, func(context.Context) error { return e.put(key, path, value) })
}

func (e *Engine) put(key, path string, value []byte) error {
	if _, err := e.disk.Read(path); err == nil {
		// The writer of the file may not have synced the directory yet.
		return e.failed(key, e.disk.SyncDir(filepath.Dir(path)))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return e.failed(key, err)
	}
	return e.failed(key, e.replace(path, value))
}

// replace writes a file at a path, in one atomic step.
func (e *Engine) replace(path string, value []byte) error {
	next := filepath.Join(e.dir, tmp, "new-"+rand.Text())
	err := e.disk.Write(next, value)
	if err == nil {
		err = e.disk.Rename(next, path)
		if errors.Is(err, fs.ErrNotExist) { // the first key in its directory
			err = e.mkdirs(filepath.Dir(path))
			if err == nil {
				err = e.disk.Rename(next, path)
			}
		}
	}
	if err != nil {
		_ = e.disk.Remove(next)
		return err
	}
	return e.disk.SyncDir(filepath.Dir(path))
}

func (e *Engine) mkdirs(dir string) error {
	if dir == e.dir {
		return nil
	}
	if err := e.mkdirs(filepath.Dir(dir)); err != nil {
		return err
	}
	return e.mkdir(dir)
}

// CompareAndSwap implements [revisions.Engine].
func (e *Engine) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	path, err := e.path(key)
	if err != nil {
		return err
	}
	return e.write(ctx, key, func(ctx context.Context) error { return e.change(ctx, key, path, old, value) })
}

func (e *Engine) change(ctx context.Context, key, path string, old, value []byte) error {
	unlock, err := e.lock(ctx)
	if err != nil {
		return e.failed(key, err)
	}
	defer unlock()
	is, err := e.disk.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		is = nil
	case err != nil:
		return e.failed(key, err)
	case is == nil:
		is = []byte{}
	}
	if (is == nil) != (old == nil) || !bytes.Equal(is, old) {
		return fmt.Errorf("%s: %w", key, revisions.ErrConflict)
	}
	if len(value) > max(revisions.MaxValue, len(is)) { // a head that an earlier version made too large may become smaller
		return tooLarge(key, value)
	}
	err = e.replace(path, value)
	if full(err) && key == "head" && e.disk.Remove(e.reserve()) == nil {
		err = e.replace(path, value)
		e.setAside()
	}
	return e.failed(key, err)
}

// The reserve is a file that makes room for a new head on a full disk. A sweep must swap the head before it removes
// anything: otherwise an interrupted sweep leaves a head that keeps removed revisions, and a commit can refer to a
// removed pack (SAFE-15). Other values get no room, so commits on a full disk fail and do not use the reserve up.
func (e *Engine) reserve() string { return filepath.Join(e.dir, tmp, "reserve") }

// The size of the reserve in bytes. A head with hundreds of holds needs less than reserveMost.
const (
	reserveMost  = 64 << 10
	reserveLeast = 4 << 10
)

// setAside writes the reserve, unless it exists. With little space it is smaller, and without space a later call
// writes it.
func (e *Engine) setAside() {
	if b, err := e.disk.Read(e.reserve()); err == nil && len(b) >= reserveMost || e.gone() {
		return
	}
	content := make([]byte, reserveMost)
	_, _ = rand.Read(content) // a file system may store equal bytes without space
	_ = e.disk.Remove(e.reserve())
	for ; len(content) >= reserveLeast; content = content[:len(content)/2] {
		err := e.disk.Write(e.reserve(), content)
		if err == nil || errors.Is(err, fs.ErrExist) { // another program wrote it meanwhile
			return
		}
		_ = e.disk.Remove(e.reserve())
	}
}

// full reports whether an error means that the disk has no space left.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func tooLarge(key string, value []byte) error {
	return fmt.Errorf("%s: %d bytes are %w", key, len(value), revisions.ErrTooLarge)
}

// lock waits for the lock that allows only one swap at a time.
func (e *Engine) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case e.swap <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		unlock, err := e.disk.Lock(e.lockPath("swap"))
		if err == nil {
			return func() { unlock(); <-e.swap }, nil
		}
		if !errors.Is(err, internaldisk.ErrBusy) {
			<-e.swap
			return nil, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			<-e.swap
			return nil, context.Cause(ctx)
		}
	}
}

func (e *Engine) lockPath(name string) string { return filepath.Join(e.locks, "lock-"+name) }

// Delete implements [revisions.Engine].
func (e *Engine) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		path, err := e.path(key)
		if err != nil {
			return err
		}
		err = e.write(ctx, key, func(context.Context) error { return e.failed(key, e.disk.Remove(path)) })
		if err != nil && !errors.Is(err, revisions.ErrNotFound) {
			return err
		}
	}
	_ = e.write(ctx, tmp, func(context.Context) error { e.setAside(); return nil }) // the keys are removed
	return nil
}

// List implements [revisions.Engine].
func (e *Engine) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		dir := prefix[:strings.LastIndex(prefix, "/")+1]
		e.list(ctx, strings.TrimSuffix(dir, "/"), prefix, yield)
	}
}

func (e *Engine) list(ctx context.Context, dir, prefix string, yield func(string, error) bool) bool {
	all, err := within(ctx, e, dir, readTime, func(context.Context) ([]fs.DirEntry, error) {
		all, err := e.disk.List(filepath.Join(e.dir, filepath.FromSlash(dir)))
		if err == nil && dir == "" && e.gone() {
			err = fs.ErrNotExist
		}
		return all, e.failed(dir, err)
	})
	if errors.Is(err, revisions.ErrNotFound) {
		return true
	}
	if err != nil {
		yield("", err)
		return false
	}
	for _, f := range all {
		key := f.Name()
		if dir != "" {
			key = dir + "/" + key
		}
		switch {
		case dir == "" && f.Name() == tmp:
		case f.IsDir():
			if (strings.HasPrefix(key+"/", prefix) || strings.HasPrefix(prefix, key+"/")) && !e.list(ctx, key, prefix, yield) {
				return false
			}
		case strings.HasPrefix(key, prefix):
			if !yield(key, nil) {
				return false
			}
		}
	}
	return true
}

// Watch implements [revisions.Engine].
func (e *Engine) Watch(ctx context.Context, key string) <-chan struct{} {
	bell := make(chan struct{}, 1)
	go func() {
		defer close(bell)
		path, err := e.path(key)
		if err != nil {
			return
		}
		w := watch.NewWatcher(e.log, e.poll)
		using := make(chan struct{}, 1) // one slot, taken while a call uses w; Watch may abandon this call
		hear := func(ctx context.Context) (struct{}, error) {
			select {
			case using <- struct{}{}:
				e.disk.Hear(w, path)
				<-using
			case <-ctx.Done():
			}
			return struct{}{}, nil
		}
		defer func() {
			closed := make(chan struct{})
			go func() { // an abandoned call may use w until the disk recovers
				using <- struct{}{}
				w.Close()
				close(closed)
			}()
			select {
			case <-closed:
			case <-time.After(readTime):
			}
		}()
		tick := time.NewTicker(e.poll) // not all file systems report changes
		defer tick.Stop()
		for {
			_, _ = within(ctx, e, key, readTime, hear)
			select {
			case bell <- struct{}{}:
			default:
			}
			select {
			case <-w.Bell():
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return bell
}

// Lease implements [revisions.Engine]. The system releases it when the program dies.
func (e *Engine) Lease(ctx context.Context, name string) (held context.Context, release func(), err error) {
	if !keys.MatchString(name) {
		return nil, nil, fmt.Errorf("%q cannot be the name of a lease", name)
	}
	unlock, err := e.hold(ctx, "lease "+name, "lease-"+strings.ReplaceAll(name, "/", "_"), writeTime)
	if err != nil {
		return nil, nil, err
	}
	held, cancel := context.WithCancel(ctx)
	return held, sync.OnceFunc(func() { cancel(); unlock() }), nil
}
