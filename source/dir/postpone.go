package dir

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/xds"
)

const (
	quietTime    = 100 * time.Millisecond // without a change, before the files are loaded
	maxQuietWait = 2 * time.Second        // after the first change, even if changes continue
	bulkTime     = time.Second            // after a change, a change of other files may be a part of it
	maxBulkWait  = 10 * time.Second       // for the rest of a change of many files, even if changes continue
	quickCommits = 2                      // commits in quick succession, before Run waits for the end of the change

	missingWait    = 2 * time.Second  // without a change, while resources are missing
	maxMissingWait = 10 * time.Second // the same, even if changes continue
)

// The errors of a load that has committed nothing, because a program may not have finished a change of the files.
var (
	errUnsettled = errors.New("postponed until the files are quiet")
	errMissing   = errors.New("postponed because resources are missing")
)

// A lastChange is the last change of the files that a load has found.
type lastChange struct {
	at      time.Time     // when Run loaded it
	took    time.Duration // the duration of that load
	files   int           // number of changed files
	only    string        // the real path of the changed file, if only one has changed
	again   bool          // the same file also was the only one of the change before
	commits int           // number of consecutive commits for other files, each less than bulkTime after the one before
}

// record records a change of files.
func (c *lastChange) record(changed []string) {
	only := ""
	if len(changed) == 1 {
		only = changed[0]
	}
	c.files, c.only, c.again = len(changed), only, only != "" && only == c.only
}

// delay returns the time from an event of the files until the load, and the reason for the load; first is the time
// of the first event since the last load. A program that writes many files may pause for longer than quietTime. So
// after two commits in quick succession Run waits for the end of the change. It waits only once, because some
// programs never stop to change files.
func (s *Source) delay(w *watch.Watcher, first time.Time) (time.Duration, watch.Cause) {
	if first.Sub(s.last.at) >= bulkTime {
		s.last.commits = 0
	}
	if delay, ok := s.early(w); ok {
		return delay, watch.Early
	}
	quiet, most := quietTime, maxQuietWait
	if s.last.commits == quickCommits {
		quiet, most = bulkTime, maxBulkWait
	}
	return min(quiet, most-time.Since(first)), watch.Settled
}

// early decides after each event of the files whether to load before they are quiet. A program that renames a
// complete file to its name has finished with this file; [Source.onlyEndpoints] then checks that the change is
// complete without other files. The first file of many, as of rsync, may be loaded early, and the others wait.
// Loads take at most half of the time.
func (s *Source) early(w *watch.Watcher) (delay time.Duration, ok bool) {
	since := time.Since(s.last.at)
	delay = max(0, s.last.took-since)
	if s.opts.LoadAtOnce {
		return delay, true
	}
	path, ok := w.Replaced(isServedName)
	switch {
	case !ok || s.mayDiffer():
		return 0, false
	case path == s.last.only: // no program replaces the same file twice in one change
		return delay, true
	case s.last.files > 1 || s.last.commits == quickCommits:
		return delay, since >= bulkTime
	}
	return delay, since >= quietTime
}

// isServedName reports whether a source reads a file of this name.
func isServedName(path string) bool {
	name := filepath.Base(path)
	return name[0] != '.' && name[0] != '_' && form(path) != nil
}

// ofRun adds to an order why Run begins the load, and which file a rename has replaced.
func (s *Source) ofRun(o order, why watch.Cause, w *watch.Watcher) order {
	if why == watch.Ordered || s.opts.LoadAtOnce {
		return o
	}
	o.mayWait, o.unsettled = true, why != watch.Settled
	if why == watch.Early {
		o.replaced, _ = w.TakeReplaced(isServedName)
	}
	return o
}

// changedFiles returns the real paths of the files that differ from those before, and the paths of deleted files.
func (s *Source) changedFiles(before map[string]*file) (changed []string) {
	for _, f := range s.order {
		if before[f.path] != s.files[f.path] {
			changed = append(changed, f.real)
		}
	}
	for path := range before {
		if s.files[path] == nil {
			changed = append(changed, path)
		}
	}
	return changed
}

// loadReplaced reads one file that a rename has replaced, and loads it if it differs in endpoints only. Otherwise it
// records nothing.
func (s *Source) loadReplaced(real string) (Report, error) {
	start, sc := time.Now(), &scanner{}
	if !s.lookAtReplaced(real, sc) {
		return Report{}, errUnsettled
	}
	s.last.record([]string{real})
	return s.apply(order{}, sc, start, true)
}

// lookAtReplaced reads one file, and reports whether it differs in endpoints only. Otherwise it records nothing.
func (s *Source) lookAtReplaced(real string, sc *scanner) bool {
	sc.files = slices.Clone(s.order)
	at := func(f found) bool { return f.real == real }
	i := slices.IndexFunc(sc.files, at)
	info, err := os.Lstat(real)
	if i < 0 || slices.ContainsFunc(sc.files[i+1:], at) || err != nil || !info.Mode().IsRegular() {
		return false
	}
	f := &sc.files[i]
	f.Stamp = watch.StampOf(info)
	old := s.files[f.path]
	// A file that was deleted and created again during the last scan has the same event.
	if !f.ID().Known() || f.ID() == old.ID() {
		return false
	}
	now := s.readSafely(*f, old, false)
	if now == old || now.Stamp != f.Stamp || !now.onlyEndpoints(old) {
		return false
	}
	files := maps.Clone(s.files)
	files[f.path] = now
	return s.gather(sc, files)
}

// onlyEndpoints reports whether f has the resources of old, and differs in endpoints only. It has the same
// names and references, so all references that hold still do.
func (f *file) onlyEndpoints(old *file) bool {
	type key struct{ url, name string }
	before := map[key]Loaded{}
	for _, l := range old.loaded {
		before[key{l.Type.URL, l.Name}] = l
	}
	for _, f := range []*file{old, f} {
		if len(f.errs) > 0 || f.definition != nil || len(f.loaded) != len(before) {
			return false
		}
	}
	for _, l := range f.loaded {
		at := key{l.Type.URL, l.Name}
		was, ok := before[at]
		delete(before, at)
		switch {
		case !ok || !slices.Equal(l.Refs, was.Refs) || !slices.Equal(l.Aliases, was.Aliases) || l.OnDemand != was.OnDemand ||
			(l.groups == nil) != (was.groups == nil) || l.groups != nil && !slices.Equal(l.groups.names, was.groups.names):
			return false
		case !l.Type.Is(xds.Endpoint) && !l.Type.Is(xds.LbEndpoint) && (l.Sum != was.Sum || l.Version != was.Version || l.version != was.version):
			return false
		}
	}
	return true
}

// A missingWaiting is the wait of a load for resources that no file has yet. The zero value: no load waits.
type missingWaiting struct {
	since   time.Time // the first load that waits
	changed time.Time // the last change since
}

// until returns when the load is no longer postponed.
func (m missingWaiting) until() time.Time {
	if m.since.IsZero() {
		return time.Time{}
	}
	if most := m.since.Add(maxMissingWait); most.Before(m.changed.Add(missingWait)) {
		return most
	}
	return m.changed.Add(missingWait)
}

// waitsForMissing reports whether to postpone a plan because of a new reference to a resource that no file
// has: a program may still write its file.
func (s *Source) waitsForMissing(p *plan, changed bool) bool {
	missing := s.newlyMissing(p)
	if len(missing) == 0 {
		s.waiting = missingWaiting{}
		return false
	}
	began := s.waiting.since.IsZero()
	if began {
		s.waiting.since = p.now
	}
	if began || changed {
		s.waiting.changed = p.now
	}
	if !p.now.Before(s.waiting.until()) {
		s.waiting = missingWaiting{}
		return false
	}
	if began {
		s.opts.Log.Info("load delayed: resources refer to others that no file has yet", slog.Int("references", len(missing)), slog.String("first", missing[0].Error()), slog.String("in", missingWait.String()))
	}
	return true
}

// newlyMissing returns the references of a plan to missing resources, without those of the served
// configuration.
func (s *Source) newlyMissing(p *plan) []dangling {
	missing := p.missing()
	if len(missing) == 0 || s.unresolved == nil {
		return missing
	}
	type key struct{ group, from, name, to, target string }
	of := func(d dangling) key {
		return key{d.Group, d.from.Type.URL, d.from.Name, d.to.Type.URL, d.to.Name}
	}
	served := map[key]bool{}
	for _, d := range s.unresolved() {
		served[of(d)] = true
	}
	return slices.DeleteFunc(slices.Clone(missing), func(d dangling) bool { return served[of(d)] })
}
