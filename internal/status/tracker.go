package status

import (
	"context"
	"iter"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
)

// A Tracker folds what happens on the streams of a server into what there is to know of its
// clients. It is safe for concurrent use; create it by [New].
type Tracker struct {
	opts Options
}

// New returns a tracker that knows of no client.
func New(o Options) *Tracker { return &Tracker{opts: o} }

// Opened implements [server.Observer].
func (t *Tracker) Opened(st *server.Stream) {}

// Event implements [server.Observer].
func (t *Tracker) Event(st *server.Stream, e protocol.Event) {}

// Closed implements [server.Observer].
func (t *Tracker) Closed(st *server.Stream, err error) {}

// Summary counts the clients that are connected, groups what they refuse by its cause (the
// most clients first, 100 at most), and says what looks wrong (100 at most).
func (t *Tracker) Summary() (adminapi.Counts, []adminapi.Refusal, []adminapi.Trouble) {
	return adminapi.Counts{}, nil, nil
}

// Clients lists the clients that f selects, the worst first, then by node.
func (t *Tracker) Clients(f Filter) adminapi.ClientList { return adminapi.ClientList{} }

// Client returns all clients with a node id: those that are connected at each address, and
// after them those that left lately, the last first.
func (t *Tracker) Client(node string) []adminapi.Client { return nil }

// Streams returns the open streams of a node id, to ask each ([server.Stream]). A stream may
// have ended by then.
func (t *Tracker) Streams(node string) []*server.Stream { return nil }

// Selected returns the open streams of all clients that f selects; healthy ones too.
func (t *Tracker) Selected(f Filter) []*server.Stream { return nil }

// Nodes returns the ids of connected nodes that begin with prefix, in order, at most so many.
func (t *Tracker) Nodes(prefix string, most int) []string { return nil }

// Regroup says that other groups may be for a node than before.
func (t *Tracker) Regroup() {}

// Note adds an event that no stream tells: a commit ("commit"), a load that was not taken
// ("reject"), a client that was refused ("deny"). ID and, if it is zero, At are set by Note.
func (t *Tracker) Note(e adminapi.Event) {}

// Events returns the events after an id that are remembered, the oldest first; after 0 all.
// An id that was not given yet, as of a server before this one, counts as 0. The first says
// how many it Missed.
func (t *Tracker) Events(after uint64) []adminapi.Event { return nil }

// Await is [Tracker.Events], and waits until there is one. Its error is that of the context.
func (t *Tracker) Await(ctx context.Context, after uint64) ([]adminapi.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Subscribe yields the events after an id and all that follow, until the context ends; with
// keep, those that it keeps. A reader that is slower than events come loses the oldest, and is
// told in Missed of the next one how many these were, whether or not it would have kept them.
func (t *Tracker) Subscribe(ctx context.Context, after uint64, keep func(adminapi.Event) bool) iter.Seq[adminapi.Event] {
	return func(func(adminapi.Event) bool) {}
}

// Changed returns a channel that is closed when a client next answers (ACK or NACK), comes or
// leaves, changes what it asks for, or something is committed. Who waits for clients to be
// in step takes it, looks, and then waits for it.
func (t *Tracker) Changed() <-chan struct{} { return nil }
