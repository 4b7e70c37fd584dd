package revisions

import "context"

// An Announcer is an engine in which running programs publish one value each. Programs find each
// other by these values. The engines of revisions/file and revisions/etcd are announcers.
// Announcements are not part of the configuration: no revision refers to them, and a sweep ignores
// them.
type Announcer interface {
	// Announce stores values under a key that only this program writes, until ctx is done. Each value
	// replaces the one before. At the end Announce removes the key. If the program dies, the key is
	// removed within 15 s, or as soon as the system reports the death. A value has at most 64 KiB. An
	// error means that the key is missing, or will be soon: then the caller must call Announce again.
	Announce(ctx context.Context, key string, values <-chan []byte) error

	// Announced returns the announcements of running programs under the keys with a prefix, at most
	// `most` of them. The result more reports whether there are others.
	Announced(ctx context.Context, prefix string, most int) (all map[string][]byte, more bool, err error)
}
