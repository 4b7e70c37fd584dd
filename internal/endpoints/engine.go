package endpoints

import (
	"context"
	"errors"
	"time"

	"github.com/chancery-xds/chancery/internal/faults"
)

// A LeaseID identifies a lease of an engine; 0 means no lease.
type LeaseID int64

// A Change sets or removes the value of a key.
type Change struct {
	Key
	Value []byte  // nil: the key is removed. For a key without an ID only nil or non-nil counts
	Lease LeaseID // the lease of the value: when it ends, the key is removed
}

// An Engine stores registrations. [Open] makes one for a single server, in memory or in a directory.
// Package endpoints/etcd has one for several servers. Several goroutines may call its methods at once.
type Engine interface {
	// Grant returns a lease that ends after a time unless it is renewed.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// Renew restarts the time of a lease. If the lease has ended, the error is [ErrNoLease].
	Renew(ctx context.Context, id LeaseID) error
	// Revoke ends those of some leases that have no key. A lease that it cannot end expires later.
	Revoke(ctx context.Context, ids []LeaseID)

	// Write makes changes in their order: all, or some of them and an error. When it returns nil, the
	// changes are as durable as the engine is, and Watch has reported them or soon will. If the lease of
	// a change has ended, the error is [ErrNoLease].
	Write(ctx context.Context, changes []Change) error

	// Watch reports all registrations, and then each change in order, until ctx is done. Then it returns.
	// reset means that the changes replace all registrations. So it is at first, and whenever the engine
	// may have missed changes. report must not call the engine, and may reorder the slice.
	Watch(ctx context.Context, report func(changes []Change, reset bool))
}

// A Restorer is an engine whose storage may go back to an earlier state, as an etcd does that is put back to a
// backup. Then it stores again the registrations that it has lost.
type Restorer interface {
	// Restore sets the function that returns the present registrations. It is called before Watch.
	Restore(present func() []Change)
}

// A Faulty is an engine that knows why its registrations may be old, or are not stored. It continues to serve the
// registrations that it knows.
type Faulty interface {
	// Faults returns the present faults.
	Faults() []faults.Fault
}

// A Timed is an engine that knows when its leases end. An etcd does not send that.
type Timed interface {
	// Until returns when a lease ends unless it is renewed; the zero time: it has ended.
	Until(id LeaseID) time.Time
}

// ErrNoLease means that a lease has ended.
var ErrNoLease = errors.New("the lease has ended")
