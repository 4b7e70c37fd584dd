package watch

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A Watcher rings when files may have changed. Its events are hints: they say
// that it is time to look, not what there is to see. It watches directories,
// since a watch of a file ends when the file is replaced. The zero Watcher hears nothing.
//
// Begin, Enter, Touch, End and Deaf are of one goroutine; the rest is of any.
type Watcher struct {
	bell chan struct{} // one slot
	log  *slog.Logger
	poll time.Duration
	fs   *fsnotify.Watcher // nil: the system has none to give
	done chan struct{}     // closed when the pump has ended

	// Names by directory, where a directory is watched for some names only:
	// those that symbolic links lead through.
	partly atomic.Pointer[map[string]map[string]bool]

	// Of the scan that is running.
	whole map[string]bool
	names map[string]map[string]bool
	deaf  bool // a directory cannot be watched

	told bool // that there was one
}

// NewWatcher returns one that watches nothing yet. It logs once if it cannot hear of
// everything, and that polls are what is left.
func NewWatcher(log *slog.Logger, poll time.Duration) *Watcher {
	w := &Watcher{bell: make(chan struct{}, 1), log: log, poll: poll, done: make(chan struct{})}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		w.unheard(err)
		return w
	}
	w.fs = fs
	go w.pump()
	return w
}

// Bell rings when files may have changed.
func (w *Watcher) Bell() <-chan struct{} { return w.bell }

// Deaf reports whether something could not be watched since the last Begin.
func (w *Watcher) Deaf() bool { return w.deaf }

// Close ends the watch, and waits for its goroutine. It may be called again.
func (w *Watcher) Close() {
	if w.fs != nil {
		_ = w.fs.Close()
		<-w.done
	}
}

// pump turns events into rings. It has a goroutine of its own because fsnotify
// waits for its readers, at times with its lock held, while a scan may be
// waiting for that lock.
func (w *Watcher) pump() {
	defer close(w.done)
	for {
		select {
		case ev, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if !w.matters(ev.Name) {
				continue
			}
		case _, ok := <-w.fs.Errors: // events were lost
			if !ok {
				return
			}
		}
		w.ring()
	}
}

func (w *Watcher) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// matters reports whether an event at a path may be a change.
func (w *Watcher) matters(path string) bool {
	if partly := w.partly.Load(); partly != nil && path != "" {
		if names, ok := (*partly)[filepath.Dir(path)]; ok {
			return names[filepath.Base(path)]
		}
	}
	return true
}

// Begin is called before a scan: with Enter, Touch and End it keeps what is watched to what the scan comes by.
func (w *Watcher) Begin() {
	w.deaf = w.fs == nil
	w.whole, w.names = map[string]bool{}, map[string]map[string]bool{}
}

// Enter watches all of a directory.
func (w *Watcher) Enter(dir string) {
	w.whole[dir] = true
	w.add(dir)
}

// Touch watches one name.
func (w *Watcher) Touch(path string) {
	dir := filepath.Dir(path)
	if w.names[dir] == nil {
		w.names[dir] = map[string]bool{}
		w.add(dir)
	}
	w.names[dir][filepath.Base(path)] = true
}

func (w *Watcher) add(dir string) {
	if w.fs == nil {
		return
	}
	// Again, even if it is watched: another directory may have its name now.
	if err := w.fs.Add(dir); err != nil {
		w.unheard(err)
	}
}

// End forgets what no Enter and no Touch named since Begin.
func (w *Watcher) End() {
	for dir := range w.whole {
		delete(w.names, dir)
	}
	partly := w.names
	w.partly.Store(&partly)
	if w.fs == nil {
		return
	}
	stale := false
	for _, dir := range w.fs.WatchList() {
		if _, ok := w.names[dir]; !ok && !w.whole[dir] {
			_ = w.fs.Remove(dir) // it may be gone
			stale = true
		}
	}
	if !stale {
		return
	}
	// If a directory was renamed, its old name and its new one were one watch,
	// which is removed now. Watch again, and look for what was missed.
	for dir := range w.whole {
		w.add(dir)
	}
	for dir := range w.names {
		w.add(dir)
	}
	w.ring()
}

func (w *Watcher) unheard(err error) {
	w.deaf = true
	if !w.told && !errors.Is(err, fsnotify.ErrClosed) {
		w.told = true
		w.log.Warn("changes of files may be noticed up to 30 s late", "after", w.poll.String(), "error", err)
	}
}
