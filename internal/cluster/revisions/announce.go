package revisions

import "context"

// An Announcer is an engine on which running programs publish a value each, so that they find each other.
// The engines of revisions/file and revisions/etcd are announcers. Announcements are not a part of the
// configuration: no revision refers to them, and a sweep ignores them.
type Announcer interface {
	// Announce stores the newest of some values under a key that only this program writes, until ctx is
	// done. Then it removes the key. If the program dies, the key is removed within 15 s, or as soon as
	// the system reports the death. A value has at most 64 KiB. An error means that the key is missing,
	// or soon will be: the caller starts again.
	Announce(ctx context.Context, key string, values <-chan []byte) error

	// Announced returns the announcements of running programs under the keys with a prefix, at most
	// `most` of them. more reports whether there are others.
	Announced(ctx context.Context, prefix string, most int) (all map[string][]byte, more bool, err error)
}
