package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// A Local is an engine of one server: in memory, with a journal of its changes in a directory if it has
// one. It is made by [Open].
type Local struct {
	log     *slog.Logger
	journal *journal // nil: memory only
	lock    *disk.Held

	commit     sync.Mutex // who holds it commits for all that wait; guards what follows, and writes to the disk
	tell       func([]Change, bool)
	shortening bool     // another journal is being written
	since      []Change // what it does not have yet

	mu     sync.Mutex // guards what follows; held for memory only
	queue  []*write
	values map[Key]Change
	leases leases

	bell chan struct{} // another lease may be the next that ends
}

// A write is what somebody wants written.
type write struct {
	changes []Change
	ended   bool // of a lease that has ended: it is no error if that is there again
	done    bool
	err     error
}

// Open returns an engine that keeps what is registered in a directory, which is made if it is not there; or, if dir is "",
// in memory only. What was written outlasts a loss of power then, and at a start each lease begins
// anew: who renews it has its whole time for that. One program at a time has the directory. The log is told of what of the journal
// cannot be read; nil: slog.Default().
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
	if err := l.shorten(); err != nil { // leases have other IDs now
		lock.Unlock()
		return nil, fmt.Errorf("endpoints in %s: %w", dir, err)
	}
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

// Revoke implements [Engine]. A write under such a lease is over, or finds that it has ended.
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

// Write implements [Engine]. Writes that wait at once go to the disk together.
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

// flush commits all writes that wait. The commit is locked.
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
		if w.done = true; w.ended {
			w.changes = l.still(w.changes)
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
			if w.err = errors.Join(w.err, err); w.ended { // what has ended is not served, whatever the disk says
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
	if l.tell != nil && len(changes) > 0 {
		l.tell(changes, false)
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

// still returns those changes whose keys are still those of the leases that have ended. The engine is locked.
func (l *Local) still(changes []Change) (all []Change) {
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
	return l.journal.append(changes)
}

// all returns what there is, in no order.
func (l *Local) all() []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.values))
}

// differing returns those of some changes that would change something.
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

// shorten has the journal have what there is, and nothing else. Others write meanwhile.
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
		l.journal.live = l.journal.size // it is tried again, but not at each write
	}
	return err
}

// long reports whether it is time for that.
func (l *Local) long() bool {
	l.commit.Lock()
	defer l.commit.Unlock()
	return l.journal != nil && l.journal.long()
}

// Watch implements [Engine]. Leases end while somebody watches. There may be one at a time.
func (l *Local) Watch(ctx context.Context, tell func([]Change, bool)) {
	l.commit.Lock()
	l.tell = tell
	tell(l.all(), true)
	l.commit.Unlock()
	defer func() {
		l.commit.Lock()
		defer l.commit.Unlock()
		l.tell = nil
	}()
	for ctx.Err() == nil {
		l.end()
		if l.long() {
			if err := l.shorten(); err != nil { // it is as good as it was
				l.log.Warn("cannot shorten the journal of endpoints", "file", l.journal.path, "error", err)
			}
		}
		l.mu.Lock()
		next, some := l.leases.deadline()
		l.mu.Unlock()
		wait := time.Hour
		if some {
			wait = max(time.Until(next), 0)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.bell:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// end ends the leases whose time is over.
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
	l.queue = slices.Insert(l.queue, 0, w) // who waits to put such a key again comes after that, and it is there
	l.mu.Unlock()
	l.commit.Lock()
	defer l.commit.Unlock()
	if !w.done {
		l.flush()
	}
	if w.err != nil {
		l.log.Warn("cannot write the end of leases to the journal of endpoints: after a restart these leases begin again", "error", w.err)
	}
}

// file is the name of the journal in its directory.
func file(dir string) string { return filepath.Join(dir, "journal") }
