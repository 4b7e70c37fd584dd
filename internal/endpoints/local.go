package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/faults"
)

// A Local is an engine of one server: in memory, with an optional journal in a directory. It is made by
// [Open].
type Local struct {
	log     *slog.Logger
	journal *journal // nil: memory only
	lock    *disk.Held

	commit     sync.Mutex // its holder writes to the disk, for all waiting writes; guards the fields below
	report     func([]Change, bool)
	shortening bool     // a shorter journal is being written
	since      []Change // the changes that it does not have yet

	mu     sync.Mutex // guards the fields below; held for memory only
	queue  []*write
	values map[Key]Change
	leases leases
	again  time.Time // when to try again, if the last write failed

	fault faults.Record // the last write to the disk failed

	bell   chan struct{} // another lease may be the next to end, or the fault has changed
	logged bool          // the log has the fault; used by Open, then by Watch
}

// A write is a pending call of Write.
type write struct {
	changes []Change
	ended   bool // it removes the keys of an ended lease: keys that were put again stay, without an error
	done    bool
	err     error
}

// Open returns an engine that stores registrations in a directory, which it creates if necessary; if dir
// is "", in memory only. With a directory, writes survive a loss of power. At a start each lease begins
// anew, so its owner has the whole time to renew it. One program at a time can use the directory.
// Unreadable parts of the journal are logged; a nil log is slog.Default(). A disk that can be read but not
// written, such as a full one, is a fault and not an error (SAFE-15). Writes fail until Watch can write to it.
func Open(dir string, log *slog.Logger) (*Local, error) {
	if log == nil {
		log = slog.Default()
	}
	l := &Local{log: log, values: map[Key]Change{}, bell: make(chan struct{}, 1)}
	if dir == "" {
		return l, nil
	}
	j, lock, all, err := openJournal(dir, log)
	if err != nil {
		return nil, fmt.Errorf("endpoints in %s: %w", dir, err)
	}
	l.journal, l.lock = j, lock
	now, granted := time.Now(), map[LeaseID]LeaseID{}
	for k, r := range all {
		c := Change{Key: k, Value: r.Value}
		if r.Lease != 0 {
			if granted[r.Lease] == 0 {
				granted[r.Lease] = l.leases.grant(now, r.ttl())
			}
			c.Lease = granted[r.Lease]
			l.leases.attach(c.Lease, k)
		}
		l.values[k] = c
	}
	l.wrote(l.shorten()) // the journal gets the new lease IDs
	l.logFault()
	return l, nil
}

// Close ends the use of the directory.
func (l *Local) Close() error {
	l.commit.Lock()
	defer l.commit.Unlock()
	if l.journal == nil {
		return nil
	}
	l.lock.Unlock()
	return l.journal.close()
}

// Grant implements [Engine].
func (l *Local) Grant(_ context.Context, ttl time.Duration) (LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.ring()
	return l.leases.grant(time.Now(), ttl), nil
}

// Renew implements [Engine].
func (l *Local) Renew(_ context.Context, id LeaseID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leases.renew(time.Now(), id) {
		return ErrNoLease
	}
	return nil
}

// Until implements [Timed].
func (l *Local) Until(id LeaseID) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.leases.by[id]; one != nil {
		return one.until
	}
	return time.Time{}
}

// Revoke implements [Engine]. A write under such a lease has finished, or will find that the lease has
// ended.
func (l *Local) Revoke(_ context.Context, ids []LeaseID) {
	l.commit.Lock()
	defer l.commit.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.leases.revoke(id)
	}
}

func (l *Local) ring() {
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

// Write implements [Engine]. Concurrent writes go to the disk together.
func (l *Local) Write(_ context.Context, changes []Change) error {
	w := &write{changes: changes}
	l.mu.Lock()
	l.queue = append(l.queue, w)
	l.mu.Unlock()
	l.commit.Lock()
	defer l.commit.Unlock()
	if !w.done {
		l.flush()
	}
	return w.err
}

// flush commits all waiting writes. The caller holds commit.
func (l *Local) flush() {
	l.mu.Lock()
	all := l.queue
	l.queue = nil
	room := 0
	for _, w := range all {
		room += len(w.changes)
	}
	changes := make([]Change, 0, room)
	for _, w := range all {
		w.done = true
		if w.ended {
			w.changes = l.stillLeased(w.changes)
		} else {
			w.err = l.leased(w.changes)
		}
		if w.err == nil {
			changes = append(changes, w.changes...)
		}
	}
	l.mu.Unlock()
	if err := l.keep(changes); err != nil {
		changes = nil
		for _, w := range all {
			w.err = errors.Join(w.err, err)
			if w.ended { // an ended lease is not served, even if the disk fails
				changes = append(changes, w.changes...)
			}
		}
	}
	l.mu.Lock()
	for i, c := range changes {
		if old, ok := l.values[c.Key]; ok && old.Lease != 0 {
			l.leases.detach(old.Lease, c.Key)
		}
		if c.Value == nil {
			delete(l.values, c.Key)
			continue
		}
		if c.Lease != 0 && !l.leases.attach(c.Lease, c.Key) {
			// It has ended meanwhile, and its keys with it.
			changes[i].Value = nil
			delete(l.values, c.Key)
			continue
		}
		l.values[c.Key] = c
	}
	l.mu.Unlock()
	if l.report != nil && len(changes) > 0 {
		l.report(changes, false)
	}
	if l.shortening {
		l.since = append(l.since, changes...)
	} else if l.journal != nil && l.journal.long() {
		l.ring()
	}
}

// leased returns an error if the lease of a change has ended. The engine is locked.
func (l *Local) leased(changes []Change) error {
	for _, c := range changes {
		if c.Lease != 0 && l.leases.by[c.Lease] == nil {
			return fmt.Errorf("%v: %w", c.Key, ErrNoLease)
		}
	}
	return nil
}

// stillLeased returns the changes whose keys still have their ended lease. The engine is locked.
func (l *Local) stillLeased(changes []Change) (all []Change) {
	for _, c := range changes {
		if l.values[c.Key].Lease == c.Lease {
			all = append(all, Change{Key: c.Key})
		}
	}
	return all
}

// keep writes changes to the disk.
func (l *Local) keep(changes []Change) error {
	if l.journal == nil || len(changes) == 0 {
		return nil
	}
	if l.journal.f == nil { // not written since the start
		return errors.New(l.Faults()[0].Text)
	}
	err := l.journal.lost()
	if err == nil {
		err = l.journal.append(changes)
	}
	l.wrote(err)
	return err
}

// diskRetry is the interval between two tries to write the journal, after a failure.
const diskRetry = 5 * time.Second

// wrote records the result of a write to the disk.
func (l *Local) wrote(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault.Set("registered endpoints cannot be written to the disk, so a restart would serve older ones", err) {
		l.again = time.Now().Add(diskRetry)
		l.ring()
	}
}

// reopen makes and locks the directory again if it was removed. A file in the place of the journal is kept under
// another name, which is returned.
func (l *Local) reopen() (kept string, err error) {
	l.commit.Lock()
	defer l.commit.Unlock()
	dir := filepath.Dir(l.journal.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if !l.lock.Holds(dir) {
		lock, err := disk.Lock(dir)
		if err != nil {
			return "", err
		}
		l.lock.Unlock()
		l.lock = lock
	}
	if l.journal.f != nil && errors.Is(l.journal.lost(), errReplaced) {
		kept = l.journal.keep()
	}
	return kept, nil
}

// Faults implements [Faulty].
func (l *Local) Faults() []faults.Fault { return l.fault.Present() }

// logFault logs the beginning and the end of a fault.
func (l *Local) logFault() {
	all := l.Faults()
	switch {
	case len(all) > 0 && !l.logged:
		l.log.Error("cannot write the endpoint journal", "file", l.journal.path, "error", all[0].Text)
	case len(all) == 0 && l.logged:
		l.log.Info("the endpoint journal is written again", "file", l.journal.path)
	}
	l.logged = len(all) > 0
}

// look is the interval between two looks at the name of the journal.
const look = time.Minute

// repair replaces the journal after a failed write, or if it was lost, since the next registration may be days away. It
// does that at most a twentieth of the time, but always at the end.
func (l *Local) repair(end bool) {
	l.commit.Lock()
	if l.journal != nil && l.journal.f != nil {
		if err := l.journal.lost(); err != nil {
			l.wrote(err)
		}
	}
	l.commit.Unlock()
	began := time.Now()
	l.mu.Lock()
	due := l.Faults() != nil && (end || !began.Before(l.again))
	l.mu.Unlock()
	if !due {
		return
	}
	kept, err := l.reopen()
	if kept != "" {
		l.log.Error("another file was in the place of the endpoint journal", "file", l.journal.path, "kept", kept)
	}
	if err == nil {
		err = l.shorten()
	}
	l.wrote(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = time.Now().Add(max(diskRetry, 20*time.Since(began)))
}

// all returns all registrations, in no order.
func (l *Local) all() []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.values))
}

// differing returns those changes that would change something.
func (l *Local) differing(some map[Key]Change) (changes []Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes = make([]Change, 0, len(some))
	for key, c := range some {
		if old, has := l.values[key]; has != (c.Value != nil) || string(old.Value) != string(c.Value) {
			changes = append(changes, c)
		}
	}
	return changes
}

// shorten replaces the journal by one with the current values only. Writes go on meanwhile.
func (l *Local) shorten() error {
	l.commit.Lock()
	all := l.all()
	l.shortening = true
	l.commit.Unlock()
	size, err := l.journal.begin(all)
	l.commit.Lock()
	defer l.commit.Unlock()
	since := l.since
	l.since, l.shortening = nil, false
	if err == nil {
		err = l.journal.adopt(size, since)
	}
	if err != nil {
		l.journal.live = l.journal.size // try again later, but not at each write
	}
	return err
}

// long reports whether the journal should be shortened.
func (l *Local) long() bool {
	l.commit.Lock()
	defer l.commit.Unlock()
	return l.journal != nil && l.journal.long()
}

// Watch implements [Engine]. Leases end only during a Watch. There may be one Watch at a time.
func (l *Local) Watch(ctx context.Context, report func([]Change, bool)) {
	l.commit.Lock()
	l.report = report
	report(l.all(), true)
	l.commit.Unlock()
	defer func() {
		l.commit.Lock()
		defer l.commit.Unlock()
		l.report = nil
	}()
	for ctx.Err() == nil {
		l.end()
		if l.long() {
			if err := l.shorten(); err != nil { // the old journal is still valid
				l.log.Warn("cannot shorten the endpoint journal", "file", l.journal.path, "error", err)
			}
		}
		l.repair(false)
		l.logFault()
		wait := look
		l.mu.Lock()
		if next, some := l.leases.deadline(); some {
			wait = max(time.Until(next), 0)
		}
		if l.Faults() != nil {
			wait = min(wait, max(time.Until(l.again), 0))
		}
		l.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.bell:
		case <-ctx.Done():
		}
		t.Stop()
	}
	l.repair(true)
}

// end ends the leases whose time has passed.
func (l *Local) end() {
	l.mu.Lock()
	keys := l.leases.expire(time.Now())
	if len(keys) == 0 {
		l.mu.Unlock()
		return
	}
	w := &write{ended: true}
	for _, k := range keys {
		w.changes = append(w.changes, Change{Key: k, Lease: l.values[k].Lease})
	}
	l.queue = slices.Insert(l.queue, 0, w) // before the waiting writes: a key that is put again must stay
	l.mu.Unlock()
	l.commit.Lock()
	defer l.commit.Unlock()
	if !w.done {
		l.flush()
	}
	if w.err != nil {
		l.log.Warn("cannot write expired leases to the endpoint journal: after a restart they begin again", "error", w.err)
	}
}

// file is the name of the journal in its directory.
func file(dir string) string { return filepath.Join(dir, "journal") }
