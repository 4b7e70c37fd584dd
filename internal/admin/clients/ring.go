package clients

import (
	"context"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// A record is an event as it is remembered.
type record struct {
	id      uint64
	kind    string
	client  *about
	stream  uint64
	typ, by *xds.Type
	version string
	text    string
	cause   *cause     // "nack"
	note    *api.Event // that was noted; the rest is empty
	at      int64
	took    time.Duration
	nonce   uint64
	count   int32
	removed int32
}

// An about is what events say of a client. All of a client share it.
type about struct{ node, peer string }

// A ring has the newest events.
type ring struct {
	mu      sync.Mutex
	records []record // that of an id is at id-1 modulo its size; grows up to that
	size    int
	last    uint64
	waiting []chan struct{} // of readers that have read all
}

// add remembers an event, and wakes the readers that wait for one.
func (r *ring) add(e *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.records); n > 0 && e.kind == "wait" { // of many names at once
		if was := &r.records[(r.last-1)%uint64(n)]; was.kind == e.kind && was.stream == e.stream && was.typ == e.typ && was.by == e.by && was.count < math.MaxInt32 {
			was.count++
			return
		}
	}
	r.last++
	e.id = r.last
	if len(r.records) < r.size {
		r.records = append(r.records, *e)
	} else {
		r.records[(e.id-1)%uint64(r.size)] = *e
	}
	for _, c := range r.waiting {
		close(c)
	}
	r.waiting = nil
}

// maxBatch is how many events are taken at once.
const maxBatch = 512

// after returns the events after an id, at most maxBatch if some is true, and how many there
// were of which nothing is remembered. If there are none, it returns what is closed when there is
// one, unless nobody waits for that.
func (r *ring) after(id uint64, some bool) (events []record, missed int, next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id > r.last { // of a server before this one
		id = 0
	}
	if first := r.last - uint64(len(r.records)); id < first {
		missed, id = int(min(first-id, math.MaxInt32)), first
	}
	n := r.last - id
	if some {
		if n = min(n, maxBatch); n == 0 {
			c := make(chan struct{})
			r.waiting = append(r.waiting, c)
			return nil, 0, c
		}
	}
	for i := range n {
		events = append(events, r.records[(id+i)%uint64(len(r.records))])
	}
	return events, missed, nil
}

// leave says that a reader waits no more.
func (r *ring) leave(next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(c chan struct{}) bool { return c == next })
}

// Note adds an event that no stream tells: a commit ("commit"), a load that was not taken
// ("reject"), a client that was refused ("deny"). ID and, if it is zero, At are set by Note.
// Of long texts and lists the beginning is kept.
func (t *Tracker) Note(e api.Event) {
	at := t.now()
	if e.At.IsZero() {
		e.At = time.Unix(0, at)
	}
	e.Missed = 0
	for _, s := range []*string{&e.Kind, &e.Node, &e.Peer, &e.Type, &e.Version, &e.Nonce, &e.Took} {
		*s = clip(*s, maxName)
	}
	e.Text = strings.Clone(text.Middle(e.Text, maxText))
	resources := e.Resources[:min(len(e.Resources), 10)]
	e.Resources = nil
	for _, r := range resources {
		e.Resources = append(e.Resources, api.Resource{Type: clip(r.Type, maxName), Name: clip(r.Name, maxName), Place: clip(r.Place, maxName), Reason: clip(r.Reason, maxName)})
	}
	t.ring.add(&record{kind: e.Kind, note: &e, at: at})
	t.bell.ring()
}

// Events returns the events after an id that are remembered, the oldest first; after 0 all.
// An id that was not given yet, as of a server before this one, counts as 0. The first says
// how many it Missed.
func (t *Tracker) Events(after uint64) []api.Event {
	records, missed, _ := t.ring.after(after, false)
	return t.told(records, missed)
}

// Await returns some of the events after an id, and waits until there is one. Its error is that
// of the context.
func (t *Tracker) Await(ctx context.Context, after uint64) ([]api.Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		records, missed, next := t.ring.after(after, true)
		if len(records) > 0 {
			return t.told(records, missed), nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			t.ring.leave(next)
			return nil, ctx.Err()
		}
	}
}

// Subscribe yields the events after an id and all that follow, until the context ends; with
// keep, those that it keeps. A reader that is slower than events come loses the oldest, and is
// told in Missed of the next one how many these were, whether or not it would have kept them.
func (t *Tracker) Subscribe(ctx context.Context, after uint64, keep func(api.Event) bool) iter.Seq[api.Event] {
	return func(yield func(api.Event) bool) {
		missed := 0
		for {
			events, err := t.Await(ctx, after)
			if err != nil {
				return
			}
			for _, e := range events {
				after, missed = e.ID, missed+e.Missed
				if keep != nil && !keep(e) {
					continue
				}
				e.Missed, missed = missed, 0
				if !yield(e) {
					return
				}
			}
		}
	}
}

// told returns events as they are told.
func (t *Tracker) told(records []record, missed int) []api.Event {
	events := make([]api.Event, len(records))
	p := t.places()
	for i := range records {
		events[i] = records[i].event(p)
	}
	if len(events) > 0 {
		events[0].Missed = missed
	}
	return events
}

func (r *record) event(p *places) api.Event {
	if r.note != nil {
		e := *r.note
		e.ID = r.id
		return e
	}
	e := api.Event{ID: r.id, At: time.Unix(0, r.at), Kind: r.kind, Stream: r.stream, Version: r.version, Count: int(r.count), Removed: int(r.removed), Text: r.text}
	if r.client != nil {
		e.Node, e.Peer = r.client.node, r.client.peer
	}
	if r.typ != nil {
		e.Type = r.typ.Short
	}
	if r.nonce != 0 {
		e.Nonce = nonceOf(r.nonce)
	}
	if r.took != 0 {
		e.Took = r.took.Round(time.Microsecond).String()
	}
	if r.by != nil {
		e.Text = "it went on without an answer for " + r.by.Short + ", " + r.text + " first"
	}
	if r.cause != nil {
		e.Text, e.Resources = r.cause.text, p.resources(p.node(r.client), r.cause)
	}
	return e
}

// A bell rings for those who wait until something changes. It costs nothing while nobody does.
type bell struct {
	awaited atomic.Bool
	mu      sync.Mutex
	c       chan struct{}
}

func (b *bell) ring() {
	if !b.awaited.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
	}
	b.c = nil
	b.awaited.Store(false)
}

// Changed returns a channel that is closed when a client next answers (ACK or NACK), comes or
// leaves, changes what it asks for, or something is committed. Who waits for clients to be
// in step takes it, looks, and then waits for it.
func (t *Tracker) Changed() <-chan struct{} {
	b := &t.bell
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
		b.awaited.Store(true)
	}
	return b.c
}
