package endpoints

import (
	"context"
	"errors"
	"time"
)

// A LeaseID names a lease of an engine; 0 is none.
type LeaseID int64

// A Change is what becomes of a key.
type Change struct {
	Key
	Value []byte  // nil: it goes. Of a key without an ID it says nothing, and is not nil
	Lease LeaseID // under which it is: it goes with that
}

// An Engine keeps registrations: in memory or a directory, for one server ([Open]); in an etcd
// (package endpoints/etcd), for several; or one of your own. Its methods may be called by several
// goroutines at once.
type Engine interface {
	// Grant returns a lease that ends after a time unless it is renewed.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// Renew has a lease last for its whole time from now on. [ErrNoLease] says that it has ended.
	Renew(ctx context.Context, id LeaseID) error
	// Revoke ends those of some leases that have no key. What it cannot end now lasts its time.
	Revoke(ctx context.Context, ids []LeaseID)

	// Write makes changes in their order: all, or some of them and an error. When it returns nil they
	// outlast what the engine outlasts, and Watch has told of them, or soon does.
	// [ErrNoLease] says that the lease of one has ended.
	Write(ctx context.Context, changes []Change) error

	// Watch tells of all there is, and then of each change in its order, until ctx is done; it returns then.
	// reset says that what is told is all there is from now on: so it is at first, and whenever the engine cannot say what
	// it has missed. tell must not call the engine, and may put changes in another order.
	Watch(ctx context.Context, tell func(changes []Change, reset bool))
}

// ErrNoLease says that a lease has ended.
var ErrNoLease = errors.New("the lease has ended")
