package endpoints

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A LimitError means that a registration exceeds a limit of the registry.
type LimitError struct {
	What string
	Most int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("too many %s: at most %d are allowed", e.What, e.Most)
}

// ErrNoGroup means that a group does not exist.
var ErrNoGroup = errors.New("unknown group")

// ErrNone means that a cluster or an endpoint is not registered.
var ErrNone = errors.New("not registered")

// Result counts the effects of a registration.
type Result struct{ Set, Unchanged, Removed int }

// Put registers endpoints of a cluster, and replaces those with the same IDs. With a ttl they have a
// lease and end with it. A Put of the same endpoints renews the lease and writes nothing. A cluster that
// is put without endpoints is served without any. Errors are a [FieldError], a [LimitError],
// [ErrNoGroup], or of the engine.
func (r *Registry) Put(ctx context.Context, c Cluster, all []Registered, ttl time.Duration) (Result, error) {
	return r.put(ctx, c, all, ttl, false)
}

// Replace is Put of all endpoints of a cluster. It removes the others, after the new ones are stored. If some members
// are bad, the error is [BadMembers], and the result counts: the others are registered, and bad ones keep their last
// content. If it is unclear which registration a bad member means, nothing is removed.
func (r *Registry) Replace(ctx context.Context, c Cluster, all []Registered, ttl time.Duration) (Result, error) {
	return r.put(ctx, c, all, ttl, true)
}

func (r *Registry) put(ctx context.Context, c Cluster, all []Registered, ttl time.Duration, whole bool) (Result, error) {
	c, list, refused, err := r.list(c, all, ttl, whole)
	if err != nil {
		return Result{}, err
	}
	res, err := r.renewOrWrite(ctx, c, list, ttl, whole)
	if err == nil && len(refused) > 0 {
		err = refused
	}
	return res, err
}

// renewOrWrite renews the lease of a list, and writes what differs under it or under a new lease.
func (r *Registry) renewOrWrite(ctx context.Context, c Cluster, all []member, ttl time.Duration, whole bool) (Result, error) {
	id := r.leaseOf(c, all, ttl)
	if id != 0 {
		err := r.engine.Renew(ctx, id)
		if err == nil {
			var res Result
			res, err = r.write(ctx, c, all, ttl, id, whole)
			if !errors.Is(err, ErrNoLease) {
				return res, err
			}
		} else if !errors.Is(err, ErrNoLease) {
			return Result{}, err
		}
	}
	return r.write(ctx, c, all, ttl, newLease, whole)
}

// leaseOf returns the lease of exactly these endpoints; 0: there is none.
func (r *Registry) leaseOf(c Cluster, all []member, ttl time.Duration) (id LeaseID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, one := range all {
		if one.value == nil {
			continue
		}
		e := r.set.get(Key{c, one.id})
		if e == nil || e.lease == 0 || e.ttl != ttl || n > 0 && e.lease != id {
			return 0
		}
		id = e.lease
		n++
	}
	if id == 0 || r.set.leases[id] != n {
		return 0
	}
	return id
}

// write writes the differences to the registered values.
func (r *Registry) write(ctx context.Context, c Cluster, all []member, ttl time.Duration, id LeaseID, whole bool) (res Result, err error) {
	if ttl == 0 {
		id = 0
	}
	changes, res, err := r.differ(c, all, id, whole)
	if err != nil || len(changes) == 0 {
		return res, err
	}
	granted, err := r.grant(ctx, changes, ttl)
	if err != nil {
		return Result{}, err
	}
	return res, r.commit(ctx, changes, granted)
}

// differ returns the changes to write.
func (r *Registry) differ(c Cluster, all []member, id LeaseID, whole bool) (changes []Change, res Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.set.clusters[c]
	if at == nil || !at.claimed {
		changes = append(changes, Change{Key: Key{Cluster: c}, Value: []byte("{}")})
	}
	stays := make(map[string]bool, len(all))
	more, bytes := 0, 0
	for _, one := range all {
		stays[one.id] = true
		e := r.set.get(Key{c, one.id})
		if one.value == nil || e != nil && e.lease == id && string(e.value) == string(one.value) {
			res.Unchanged++
			continue
		}
		bytes += size(one.id, one.value)
		if e == nil {
			more++
		} else {
			bytes -= e.bytes
		}
		res.Set++
		changes = append(changes, Change{Key{c, one.id}, one.value, id})
	}
	if whole && at != nil {
		for _, e := range at.entries {
			if !stays[e.id] {
				res.Removed++
				bytes -= e.bytes
				changes = append(changes, Change{Key: Key{c, e.id}})
			}
		}
	}
	clusters := 0
	if at == nil {
		clusters = 1
	}
	if more > 0 {
		more -= res.Removed
	}
	return changes, res, r.fits(at, clusters, more, more, bytes)
}

// fits returns an error if a limit does not allow the given numbers of new clusters, of additional
// endpoints of one cluster and of all, and of additional bytes. The registry is locked.
func (r *Registry) fits(at *cluster, clusters, more, all, bytes int) error {
	has := 0
	if at != nil {
		has = len(at.entries)
	}
	switch {
	case clusters > 0 && len(r.set.clusters)+clusters > r.opts.MaxClusters:
		return &LimitError{"clusters", r.opts.MaxClusters}
	case more > 0 && has+more > r.opts.PerCluster:
		return &LimitError{"endpoints of a cluster", r.opts.PerCluster}
	case all > 0 && r.set.len+all > r.opts.MaxEndpoints:
		return &LimitError{"endpoints", r.opts.MaxEndpoints}
	case bytes > 0 && r.set.bytes+bytes > r.opts.MaxBytes:
		return &LimitError{"bytes of endpoints", r.opts.MaxBytes}
	}
	return nil
}

// Remove removes endpoints of a cluster by their IDs; without IDs, all. The cluster is still served,
// without them. If none is registered, the error is [ErrNone].
func (r *Registry) Remove(ctx context.Context, c Cluster, ids ...string) (Result, error) {
	return r.remove(ctx, c, false, ids)
}

// Release removes all registrations of a cluster. The assignment of a file or a revision counts again. If
// there is none, clients keep their endpoints: the protocol cannot withdraw an assignment.
func (r *Registry) Release(ctx context.Context, c Cluster) (Result, error) {
	return r.remove(ctx, c, true, nil)
}

func (r *Registry) remove(ctx context.Context, c Cluster, release bool, ids []string) (Result, error) {
	c, err := c.normal()
	if err != nil {
		return Result{}, err
	}
	var changes []Change
	r.mu.Lock()
	at := r.set.clusters[c]
	if at != nil && len(ids) == 0 {
		for _, e := range at.entries {
			changes = append(changes, Change{Key: Key{c, e.id}})
		}
	}
	for _, id := range ids {
		if r.set.get(Key{c, id}) != nil {
			changes = append(changes, Change{Key: Key{c, id}})
		}
	}
	res := Result{Removed: len(changes)}
	if release && at != nil && at.claimed {
		changes = append(changes, Change{Key: Key{Cluster: c}})
	} else if at != nil && !at.claimed && len(changes) > 0 {
		changes = append([]Change{{Key: Key{Cluster: c}, Value: []byte("{}")}}, changes...)
	}
	r.mu.Unlock()
	if at == nil || len(ids) > 0 && res.Removed == 0 {
		return res, ErrNone
	}
	if len(changes) == 0 {
		return res, nil
	}
	return res, r.commit(ctx, changes, 0)
}
