package endpoints

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// hear applies the changes that the engine reports.
func (r *Registry) hear(changes []Change, reset bool) {
	if reset { // sorted, each entry is appended to its cluster and moves no others
		slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.ID, b.ID) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if reset {
		gone := map[Key]bool{}
		for _, k := range r.set.Keys() {
			gone[k] = true
		}
		for _, c := range changes {
			delete(gone, c.Key)
		}
		for k := range gone {
			r.apply(Change{Key: k})
		}
	}
	for _, c := range changes {
		r.apply(c)
	}
	if !r.begun {
		r.begun = true
		r.unlogged.set, r.unlogged.removed, r.unlogged.clusters = 0, 0, nil // loading is not a change
	}
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// apply applies a change, or records the error for the log.
func (r *Registry) apply(c Change) {
	err := r.room(c)
	changed := false
	if err == nil {
		old := r.set.get(c.Key)
		changed, err = r.set.Apply(c)
		if old != nil {
			r.leaseMayBeEmpty(c.Key, old.lease)
		}
	}
	if err != nil {
		r.unlogged.wrong(c.Key, err)
	} else if changed && c.ID != "" {
		r.unlogged.change(c)
	}
}

// room returns an error if there is no room for a change. Concurrent writes of several servers, and
// replacements, may temporarily exceed the limits of one server, up to twice their value.
func (r *Registry) room(c Change) error {
	if c.Value == nil {
		return nil
	}
	at := r.set.clusters[c.Cluster]
	if at == nil && len(r.set.clusters) >= 2*r.opts.MaxClusters {
		return &LimitError{"clusters", 2 * r.opts.MaxClusters}
	}
	if c.ID == "" {
		return nil
	}
	old := r.set.get(c.Key)
	var full error
	if at != nil && len(at.entries) >= 2*r.opts.PerCluster {
		full = &LimitError{"endpoints of a cluster", 2 * r.opts.PerCluster}
	}
	if r.set.len >= 2*r.opts.MaxEndpoints {
		full = &LimitError{"endpoints", 2 * r.opts.MaxEndpoints}
	}
	more := size(c.ID, c.Value)
	if old != nil { // an existing entry keeps its place
		full = nil
		more -= old.bytes
	}
	if more > 0 && r.set.bytes+more > 2*r.opts.MaxBytes {
		full = &LimitError{"bytes of endpoints", 2 * r.opts.MaxBytes}
	}
	return full
}

// serve puts changes into the store.
func (r *Registry) serve(ctx context.Context) {
	say := time.NewTicker(10 * time.Second)
	defer say.Stop()
	defer r.logChanges()
	for first := true; ; {
		select {
		case <-r.bell:
		case <-say.C:
			r.logChanges()
			continue
		case <-ctx.Done():
			return
		}
		n := r.Flush()
		if first {
			r.logChanges()
			close(r.loaded)
			first = false
		}
		t := time.NewTimer(r.rest(n))
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// rest is the time between two updates. Each update costs all streams, so there are fewer updates when
// many assignments change.
func (r *Registry) rest(assignments int) time.Duration {
	return max(r.opts.Every, min(time.Duration(assignments)*time.Millisecond, 5*r.opts.Every))
}

// Flush puts all changes into the store at once, and returns the number of changed assignments.
func (r *Registry) Flush() int {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	r.mu.Lock()
	all := r.set.Take()
	r.mu.Unlock()
	if len(all) == 0 {
		return 0
	}
	_, err := r.store.Update(func(tx *store.Tx) error {
		for _, a := range all {
			over := tx.Group(store.OverlayOf(a.Group))
			if a.Resource != nil {
				over.Set(a.Resource)
			} else {
				over.Delete(xds.Endpoint, a.Name)
			}
		}
		return nil
	})
	if err != nil {
		r.opts.Log.Error("registered endpoints are not served", "error", err)
	}
	return len(all)
}

// logChanges logs the changes since its last call.
func (r *Registry) logChanges() {
	r.mu.Lock()
	t := r.unlogged
	r.unlogged = tally{}
	r.mu.Unlock()
	t.log(r.opts.Log)
}
