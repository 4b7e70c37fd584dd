package revisions

import (
	"context"
	"errors"
	"iter"
)

// An Engine keeps values by key. It is all that a [Repository] needs of a place: a directory
// (package revisions/file), an etcd (package revisions/etcd), or one of your own, which
// package revisions/enginetest judges. Its methods may be called by several goroutines at
// once, and by several programs on the same place.
//
// Keys are words of a-z, 0-9, ".", "-", joined by "/". Values have at most [MaxValue] bytes, and
// who gives or gets one does not change it. An error says its key, and wraps one of this package if that fits.
// No method waits much longer than for ctx, also if the place does not answer.
type Engine interface {
	// Get returns what was stored last under a key, by whichever program: a read that began after a
	// write had returned sees it. [ErrNotFound] says that there is nothing.
	Get(ctx context.Context, key string) ([]byte, error)

	// PutIfAbsent stores a value under a key that is made of it, so that whoever puts
	// the same key puts the same value: if there is one, that stays, and is no error. When
	// it returns nil, the value outlasts a loss of power.
	PutIfAbsent(ctx context.Context, key string, value []byte) error

	// CompareAndSwap stores a value under a key that has the value old; nil: that has none.
	// [ErrConflict] says that it has another, and then nothing was stored; nor was it with ErrDenied, ErrFull and
	// ErrTooLarge. Any other error may mean that it is stored or not. When it returns nil, the value outlasts a loss of power.
	CompareAndSwap(ctx context.Context, key string, old, value []byte) error

	// Delete removes keys. One that is not there is no error.
	Delete(ctx context.Context, keys ...string) error

	// List returns the keys with a prefix, in any order. It ends with the first error.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Watch rings when a key may have another value, until ctx is done; the channel is closed
	// then. A ring is a hint, and some may be lost: who must know looks from time to time.
	Watch(ctx context.Context, key string) <-chan struct{}

	// Lease takes a name that one program at a time has. Held is done when it is lost, or
	// released; a program that dies loses it within a minute. [ErrBusy] says that another has it.
	Lease(ctx context.Context, name string) (held context.Context, release func(), err error)
}

// MaxValue is how large a value of an engine may be, in bytes. An etcd takes requests of
// 1.5 MiB unless it is told otherwise.
const MaxValue = 1 << 20

// What can be wrong with a key. An engine wraps these in errors that say the key.
var (
	// ErrNotFound says that there is nothing under a key.
	ErrNotFound = errors.New("there is nothing")
	// ErrConflict says that somebody else has changed what was to be changed.
	ErrConflict = errors.New("somebody else has changed it")
	// ErrBusy says that another program has a lease.
	ErrBusy = errors.New("another program has it")
	// ErrDenied says that the engine does not allow it to this program.
	ErrDenied = errors.New("permission denied")
	// ErrFull says that the engine has no room.
	ErrFull = errors.New("no space left")
	// ErrTooLarge says that the engine does not take so large a value.
	ErrTooLarge = errors.New("too large")
	// ErrUnavailable says that the engine does not answer, or cannot now.
	ErrUnavailable = errors.New("unavailable")

	// ErrDamaged says that a value is not what was stored under its key, or not what a
	// Chancery writes.
	ErrDamaged = errors.New("damaged")
	// ErrNewer says that a value is of a format that this version cannot read.
	ErrNewer = errors.New("written by a newer version of Chancery, in a format that this one cannot read")
)
