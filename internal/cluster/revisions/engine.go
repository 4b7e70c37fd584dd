package revisions

import (
	"context"
	"errors"
	"iter"
)

// An Engine is the key-value storage of a [Repository]: a directory (package revisions/file), an etcd
// (package revisions/etcd), or one of your own. Package revisions/enginetest tests an implementation.
// Several goroutines, and several programs on the same storage, may call its methods at once.
//
// Keys are words of a-z, 0-9, ".", "-", joined by "/". Values have at most [MaxValue] bytes. Neither
// the caller nor the engine changes a value after it was passed. An error names its key. It wraps one
// of the errors below, if one describes the failure. A method returns soon after ctx is done, even if
// the storage does not answer.
type Engine interface {
	// Get returns the last value stored under a key, by any program. A read that begins after a write has
	// returned sees that write. If the key has no value, the error is [ErrNotFound].
	Get(ctx context.Context, key string) ([]byte, error)

	// PutIfAbsent stores a value under a key that is derived from the value. So two writers of one
	// key write the same value. If the key has a value, that value stays, and PutIfAbsent returns
	// nil. After nil, the value survives a loss of power.
	PutIfAbsent(ctx context.Context, key string, value []byte) error

	// CompareAndSwap stores a value if the key has the value old; old == nil means that the key has
	// no value. [ErrConflict] means that the key has another value. After ErrConflict, ErrDenied,
	// ErrFull and ErrTooLarge nothing was stored. After any other error the value may be stored or
	// not. After nil, the value survives a loss of power.
	CompareAndSwap(ctx context.Context, key string, old, value []byte) error

	// Delete removes keys. A missing key is not an error.
	Delete(ctx context.Context, keys ...string) error

	// List returns the keys with a prefix, in any order. It ends with the first error.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Watch sends to the channel when the value of a key may have changed, until ctx is done. Then it
	// closes the channel. Some changes may cause no send, so the reader must also poll.
	Watch(ctx context.Context, key string) <-chan struct{}

	// Lease acquires a named lease, which one program at a time can hold. The context held is done when
	// the lease is lost or released. A program that dies loses its lease within a minute. If another
	// program holds the lease, the error is [ErrBusy].
	Lease(ctx context.Context, name string) (held context.Context, release func(), err error)
}

// MaxValue is the largest value of an engine, in bytes. An etcd accepts requests of 1.5 MiB by default.
const MaxValue = 1 << 20

// The kinds of failures. An engine wraps these in errors that name the key.
var (
	// ErrNotFound means that a key has no value.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that another writer changed the value since it was read.
	ErrConflict = errors.New("conflict: changed concurrently")
	// ErrBusy means that another program holds a lease.
	ErrBusy = errors.New("lease held by another program")
	// ErrDenied means that this program lacks a permission of the engine.
	ErrDenied = errors.New("permission denied")
	// ErrFull means that the engine has no space left.
	ErrFull = errors.New("no space left")
	// ErrTooLarge means that a value exceeds the size limit of the engine.
	ErrTooLarge = errors.New("too large")
	// ErrUnavailable means that the engine does not answer, or cannot answer at the moment.
	ErrUnavailable = errors.New("unavailable")

	// ErrDamaged means that a value differs from the one stored under its key, or that Chancery did not
	// write it.
	ErrDamaged = errors.New("damaged")
	// ErrNewer means that this version cannot read the format of a value.
	ErrNewer = errors.New("written by a newer version of Chancery, in a format that this one cannot read")
)
