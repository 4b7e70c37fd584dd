package revisions

import "context"

// An Announcer is an engine where programs say that they are there, so that others find them: those of revisions/file and
// revisions/etcd are. It is no part of what is kept: no revision refers to it, and no sweep looks at it.
type Announcer interface {
	// Announce has the newest of some values stored under a key, which is that of one program only, until ctx is done, and
	// removes it then. If the program dies, it is gone within 15 s, or when the system says that it has died. Values may have
	// 64 KiB. An error says that it is not there, or soon will not be: who wants it there begins anew.
	Announce(ctx context.Context, key string, values <-chan []byte) error

	// Announced returns what programs that are there have under the keys with a prefix: most of them at most, more says
	// that there are others.
	Announced(ctx context.Context, prefix string, most int) (all map[string][]byte, more bool, err error)
}
