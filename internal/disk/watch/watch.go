package watch

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A Watcher reports when files may have changed. Its events are hints to look at the files, and do not
// have the change. It watches directories, because a watch of a file ends when the file is replaced.
// The zero Watcher reports nothing.
//
// Begin, Enter, Touch, End and MissesChanges must be called from one goroutine; the other methods from any.
type Watcher struct {
	bell chan struct{} // has one slot
	log  *slog.Logger
	poll time.Duration
	fs   *fsnotify.Watcher // nil: the system cannot provide one
	done chan struct{}     // closed when pump has ended

	// partly has directories with only some watched names: those in the path of a symbolic
	// link.
	partly atomic.Pointer[map[string]map[string]bool]

	// The state of the running scan.
	whole         map[string]bool
	names         map[string]map[string]bool
	missesChanges bool // a directory cannot be watched

	logged bool // missesChanges was logged

	mu     sync.Mutex
	events map[string]fsnotify.Op // since Begin, by path
	lost   bool                   // there were more events
}

// maxPaths limits how many paths with events are kept. A change of one file has events of at most a few
// temporary files.
const maxPaths = 16

// NewWatcher returns a watcher of nothing yet. If it cannot watch everything, it logs that once, and
// regular polls have to find the changes.
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

// NewManual returns a watcher that has no events but those of Event.
func NewManual() *Watcher {
	return &Watcher{bell: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler), logged: true}
}

// Bell receives a value when files may have changed.
func (w *Watcher) Bell() <-chan struct{} { return w.bell }

// MissesChanges reports whether a directory could not be watched since the last Begin.
func (w *Watcher) MissesChanges() bool { return w.missesChanges }

// Close ends the watcher, and waits for its goroutine. A second call does nothing.
func (w *Watcher) Close() {
	if w.fs != nil {
		_ = w.fs.Close()
		<-w.done
	}
}

// pump turns events of fsnotify into values of Bell. It has its own goroutine because fsnotify waits
// for its readers, sometimes while it holds a lock that a scan needs.
func (w *Watcher) pump() {
	defer close(w.done)
	for {
		select {
		case ev, ok := <-w.fs.Events:
			if !ok {
				return
			}
			w.Event(ev)
		case _, ok := <-w.fs.Errors: // events were lost
			if !ok {
				return
			}
			w.Event(fsnotify.Event{})
		}
	}
}

// Event rings the bell for an event, and keeps it for Replaced. An event without a name means that events were
// lost.
func (w *Watcher) Event(ev fsnotify.Event) {
	if w.matters(ev.Name) {
		w.note(ev)
		w.Ring()
	}
}

func (w *Watcher) note(ev fsnotify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.events[ev.Name]; ev.Name == "" || !known && len(w.events) == maxPaths {
		w.lost = true
		return
	}
	if w.events == nil {
		w.events = map[string]fsnotify.Op{}
	}
	w.events[ev.Name] |= ev.Op
}

// Replaced returns the path of a file that was possibly replaced by a rename since the last Begin, if no
// other path that counts has events since then. The file must have existed at Begin: a new file has the same
// event. It returns false if the file was deleted in between, or written in place.
func (w *Watcher) Replaced(counts func(path string) bool) (path string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replaced(counts)
}

// TakeReplaced does the same as Replaced, and drops the events of the returned path: the caller reads the
// file. Only a scan, after Begin, may drop the events of other paths.
func (w *Watcher) TakeReplaced(counts func(path string) bool) (path string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path, ok = w.replaced(counts)
	delete(w.events, path)
	return path, ok
}

func (w *Watcher) replaced(counts func(path string) bool) (path string, ok bool) {
	if w.lost {
		return "", false
	}
	for at, op := range w.events {
		if !counts(at) {
			continue
		}
		if path != "" || op != fsnotify.Create {
			return "", false
		}
		path = at
	}
	return path, path != ""
}

// Ring asks the reader of Bell to look at the files again.
func (w *Watcher) Ring() {
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

// Begin starts a scan. Until End, the scan calls Enter and Touch for everything that it reads; End
// removes all other watches.
func (w *Watcher) Begin() {
	w.missesChanges = w.fs == nil
	w.whole, w.names = map[string]bool{}, map[string]map[string]bool{}
	w.mu.Lock()
	w.events, w.lost = nil, false
	w.mu.Unlock()
	select {
	case <-w.bell: // the scan finds these changes
	default:
	}
}

// Enter watches all names in a directory.
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
	// Add it even if it is watched: the name may be that of another directory now.
	if err := w.fs.Add(dir); err != nil {
		w.unheard(err)
	}
}

// End ends a scan, and removes the watches of directories that it did not use.
func (w *Watcher) End() {
	for dir := range w.whole {
		delete(w.names, dir)
	}
	partly := w.names
	if was := w.partly.Swap(&partly); was != nil && w.overlooks(*was) {
		w.Ring()
	}
	if w.fs == nil {
		return
	}
	stale := false
	for _, dir := range w.fs.WatchList() {
		if _, ok := w.names[dir]; !ok && !w.whole[dir] {
			_ = w.fs.Remove(dir) // fails if the directory is gone
			stale = true
		}
	}
	if !stale {
		return
	}
	// The old name and the new name of a renamed directory share one watch, which is removed now. Add all
	// watches again, and request a scan for the changes since.
	for dir := range w.whole {
		w.add(dir)
	}
	for dir := range w.names {
		w.add(dir)
	}
	w.Ring()
}

// overlooks reports whether Event may have ignored a change of a file after the running scan read it: the earlier scan,
// whose names partly had until now, did not use the file.
func (w *Watcher) overlooks(was map[string]map[string]bool) bool {
	for dir, names := range was {
		if w.whole[dir] {
			return true
		}
		for name := range w.names[dir] {
			if !names[name] {
				return true
			}
		}
	}
	return false
}

func (w *Watcher) unheard(err error) {
	w.missesChanges = true
	if !w.logged && !errors.Is(err, fsnotify.ErrClosed) {
		w.logged = true
		w.log.Warn("changes of files may be noticed up to 30 s late", "after", w.poll.String(), "error", err)
	}
}
