package endpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chancery-xds/chancery/internal/text"
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

// checked returns the canonical form of a registration, or the reason why it is invalid.
func (r *Registry) checked(c Cluster, all []Registered, ttl time.Duration) (Cluster, []Registered, error) {
	c, err := c.normal()
	if err != nil {
		return c, nil, err
	}
	if r.opts.Known != nil && !r.opts.Known(c.Group) {
		return c, nil, fmt.Errorf("group %q: %w", c.Group, ErrNoGroup)
	}
	if ttl != 0 && (ttl < MinTTL || ttl > MaxTTL) {
		return c, nil, wrong("ttl", "must be %v to %v", MinTTL, MaxTTL)
	}
	if len(all) > r.opts.PerCluster {
		return c, nil, &LimitError{"endpoints of a cluster", r.opts.PerCluster}
	}
	seen := make(map[string]int, len(all))
	out := make([]Registered, len(all))
	for i, one := range all {
		at := func(err error) error {
			if e, ok := errors.AsType[*FieldError](err); ok {
				return &FieldError{fmt.Sprintf("endpoints[%d].%s", i, e.Field), e.Message}
			}
			return err
		}
		one.Endpoint, err = one.Endpoint.normal()
		if err != nil {
			return c, nil, at(err)
		}
		if one.ID == "" {
			one.ID = one.Endpoint.at()
		}
		err = word("id", one.ID, false)
		if err != nil {
			return c, nil, at(err)
		}
		if first, twice := seen[one.ID]; twice {
			return c, nil, wrong(fmt.Sprintf("endpoints[%d].id", i), "%q is also the ID of endpoints[%d]", text.Head(one.ID, maxQuoted), first)
		}
		seen[one.ID], out[i] = i, one
	}
	return c, out, nil
}

// Put registers endpoints of a cluster, and replaces those with the same IDs. With a ttl they have a
// lease and end with it. A Put of the same endpoints renews the lease and writes nothing. A cluster that
// is put without endpoints is served without any. Errors are a [FieldError], a [LimitError],
// [ErrNoGroup], or of the engine.
func (r *Registry) Put(ctx context.Context, c Cluster, all []Registered, ttl time.Duration) (Result, error) {
	return r.put(ctx, c, all, ttl, false)
}

// Replace is Put of all endpoints of a cluster. It removes the others, after the new ones are stored.
func (r *Registry) Replace(ctx context.Context, c Cluster, all []Registered, ttl time.Duration) (Result, error) {
	return r.put(ctx, c, all, ttl, true)
}

func (r *Registry) put(ctx context.Context, c Cluster, all []Registered, ttl time.Duration, whole bool) (Result, error) {
	c, all, err := r.checked(c, all, ttl)
	if err != nil {
		return Result{}, err
	}
	id := r.leaseOf(c, all, ttl)
	if id != 0 {
		err = r.engine.Renew(ctx, id)
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
func (r *Registry) leaseOf(c Cluster, all []Registered, ttl time.Duration) (id LeaseID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, one := range all {
		e := r.set.get(Key{c, one.ID})
		if e == nil || e.lease == 0 || e.ttl != ttl || i > 0 && e.lease != id {
			return 0
		}
		id = e.lease
	}
	if id == 0 || r.set.leases[id] != len(all) {
		return 0
	}
	return id
}

// write writes the differences to the registered values.
func (r *Registry) write(ctx context.Context, c Cluster, all []Registered, ttl time.Duration, id LeaseID, whole bool) (res Result, err error) {
	if ttl == 0 {
		id = 0
	}
	changes, res, err := r.differ(c, all, ttl, id, whole)
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
func (r *Registry) differ(c Cluster, all []Registered, ttl time.Duration, id LeaseID, whole bool) (changes []Change, res Result, err error) {
	values := make([][]byte, len(all))
	for i, one := range all {
		values[i], err = encode(one.Endpoint, ttl)
		if err != nil {
			return nil, res, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.set.clusters[c]
	if at == nil || !at.claimed {
		changes = append(changes, Change{Key: Key{Cluster: c}, Value: []byte("{}")})
	}
	stays := make(map[string]bool, len(all))
	more, bytes := 0, 0
	for i, one := range all {
		stays[one.ID] = true
		e := r.set.get(Key{c, one.ID})
		if e != nil && e.lease == id && string(e.value) == string(values[i]) {
			res.Unchanged++
			continue
		}
		bytes += size(one.ID, values[i])
		if e == nil {
			more++
		} else {
			bytes -= e.bytes
		}
		res.Set++
		changes = append(changes, Change{Key{c, one.ID}, values[i], id})
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
