package endpoints

import (
	"context"
	"time"
)

// newLease marks a change that needs a lease not yet granted. A lease is granted only when there is
// something to put and room for it. So a client cannot accumulate leases.
const newLease LeaseID = -1

// grant grants one lease for the changes marked newLease, and sets it in them; 0: there are none.
func (r *Registry) grant(ctx context.Context, changes []Change, ttl time.Duration) (id LeaseID, err error) {
	for i := range changes {
		if changes[i].Lease != newLease {
			continue
		}
		if id == 0 {
			id, err = r.engine.Grant(ctx, ttl)
			if err != nil {
				return 0, err
			}
		}
		changes[i].Lease = id
	}
	return id, nil
}

// commit writes changes, and revokes leases that have become empty. So there are not many more leases
// than endpoints. granted is a lease that no other writer uses; 0: none. The lease of a session is kept.
func (r *Registry) commit(ctx context.Context, changes []Change, granted LeaseID) error {
	r.mu.Lock()
	for _, c := range changes {
		r.writing[c.Key]++
	}
	r.mu.Unlock()
	err := r.engine.Write(ctx, changes)
	r.mu.Lock()
	for _, c := range changes {
		r.writing[c.Key]--
		if r.writing[c.Key] == 0 {
			delete(r.writing, c.Key)
		}
	}
	var free []LeaseID
	for _, id := range append(r.left, granted) { // granted may be empty: it was not written, or other writers have replaced all its keys
		if id != 0 && !r.held[id] && r.set.leases[id] == 0 {
			free = append(free, id)
		}
	}
	r.left = nil
	r.mu.Unlock()
	if len(free) > 0 {
		r.engine.Revoke(context.WithoutCancel(ctx), free)
	}
	return err
}

// leaseMayBeEmpty records that a key under write has left a lease that may now be empty. For a key that another
// server writes, that server decides. The registry is locked.
func (r *Registry) leaseMayBeEmpty(k Key, id LeaseID) {
	if id != 0 && r.set.leases[id] == 0 && r.writing[k] > 0 {
		r.left = append(r.left, id)
	}
}
