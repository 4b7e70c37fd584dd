package endpoints

import (
	"context"
	"time"
)

// fresh is the lease of a change that is put under one that is still to be granted: none is before there is something to
// put and room for it, so that who asks for many leases has none.
const fresh LeaseID = -1

// grant returns a lease for those of some changes that need a fresh one, and has them have it; 0: none does.
func (r *Registry) grant(ctx context.Context, changes []Change, ttl time.Duration) (id LeaseID, err error) {
	for i := range changes {
		if changes[i].Lease != fresh {
			continue
		}
		if id == 0 {
			if id, err = r.engine.Grant(ctx, ttl); err != nil {
				return 0, err
			}
		}
		changes[i].Lease = id
	}
	return id, nil
}

// commit writes changes, and ends those leases that have nothing any more, so that there are not many more of them than
// endpoints. granted is one that nobody else puts under; 0: there is none. A session keeps its own.
func (r *Registry) commit(ctx context.Context, changes []Change, granted LeaseID) error {
	r.mu.Lock()
	for _, c := range changes {
		r.writing[c.Key]++
	}
	r.mu.Unlock()
	err := r.engine.Write(ctx, changes)
	r.mu.Lock()
	for _, c := range changes {
		if r.writing[c.Key]--; r.writing[c.Key] == 0 {
			delete(r.writing, c.Key)
		}
	}
	var free []LeaseID
	for _, id := range append(r.left, granted) { // a granted one if it was not written, or somebody has put all of it meanwhile
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

// leaves notes that a key has left a lease that may have nothing any more, for who writes that key just now. Who writes
// elsewhere knows himself whether he puts more under it. The registry is locked.
func (r *Registry) leaves(k Key, id LeaseID) {
	if id != 0 && r.set.leases[id] == 0 && r.writing[k] > 0 {
		r.left = append(r.left, id)
	}
}
