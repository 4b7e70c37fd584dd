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

// A record is a remembered event.
type record struct {
	id      uint64
	kind    string
	client  *clientID
	stream  uint64
	typ, by *xds.Type
	version string
	text    string
	cause   *cause     // for "nack" events
	note    *api.Event // the event of a call of Note; then only id, kind and at of the record are also set
	at      int64
	took    time.Duration
	nonce   uint64
	count   int32
	removed int32
}

// A clientID is the part of a client that events show. All events of a client share it.
type clientID struct{ node, peer string }

// A ring is a ring buffer of the newest events.
type ring struct {
	mu      sync.Mutex
	records []record // the event with ID id is at (id-1) modulo size; grows up to size
	size    int
	last    uint64
	waiting []chan struct{} // one channel for each reader that has read everything
}

// add remembers an event and wakes the waiting readers.
func (r *ring) add(e *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.records); n > 0 && e.kind == "wait" { // many names may stop waiting at the same time
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

// maxBatch is the maximum number of events that a reader gets with one call.
const maxBatch = 512

// after returns the events after an ID, and the number of older events that are lost. If batch is
// true, it returns at most maxBatch events. If there is no event then, it returns a channel that the
// next event closes.
func (r *ring) after(id uint64, batch bool) (events []record, missed int, next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id > r.last { // the ID is from an earlier server process
		id = 0
	}
	if first := r.last - uint64(len(r.records)); id < first {
		missed, id = int(min(first-id, math.MaxInt32)), first
	}
	n := r.last - id
	if batch {
		n = min(n, maxBatch)
		if n == 0 {
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

// newest returns those events after an ID that keep accepts: all that are about no client, and the newest of the
// others, at most most. It also returns the number of the others that are left out, or lost, and the last ID.
func (r *ring) newest(id uint64, most int, keep func(*record) bool) (events []record, missed int, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id > r.last {
		id = 0
	}
	if first := r.last - uint64(len(r.records)); id < first {
		missed, id = int(min(first-id, math.MaxInt32)), first
	}
	for n := r.last; n > id; n-- {
		e := &r.records[(n-1)%uint64(len(r.records))]
		switch {
		case !keep(e):
		case e.node() == "":
			events = append(events, *e)
		case most > 0:
			most--
			events = append(events, *e)
		default:
			missed++
		}
	}
	slices.Reverse(events)
	return events, missed, r.last
}

// leave removes the channel of a waiting reader.
func (r *ring) leave(next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(c chan struct{}) bool { return c == next })
}

// Note adds an event that no stream reports, such as a commit ("commit"), a rejected load ("reject")
// or a refused client ("deny"). Note sets ID, and sets At if it is zero. It cuts long texts and
// lists.
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

// Events returns the remembered events after an ID, oldest first. ID 0 means all of them. An unknown
// ID, for example of an earlier server process, counts as 0. The field Missed of the first event is
// the number of lost events.
func (t *Tracker) Events(after uint64) []api.Event {
	records, missed, _ := t.ring.after(after, false)
	return t.toEvents(records, missed)
}

// Newest returns those events after an ID that keep accepts, oldest first: all that are about no client, and at most
// most others, the newest. Missed is the number of the others that are left out, or lost. The ID last is that of
// the newest event, accepted or not. Keep must be fast.
func (t *Tracker) Newest(after uint64, most int, keep func(kind, node, typ string) bool) (events []api.Event, missed int, last uint64) {
	records, missed, last := t.ring.newest(after, most, func(r *record) bool { return keep(r.kind, r.node(), r.typeName()) })
	return t.toEvents(records, 0), missed, last
}

// Await waits for events after an ID and returns the oldest ones. An error is that of the context.
func (t *Tracker) Await(ctx context.Context, after uint64) ([]api.Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		records, missed, next := t.ring.after(after, true)
		if len(records) > 0 {
			return t.toEvents(records, missed), nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			t.ring.leave(next)
			return nil, ctx.Err()
		}
	}
}

// Subscribe yields the events after an ID and all later events, until the context ends. If keep is not
// nil, Subscribe yields only events that keep accepts. A slow reader loses the oldest events. The field
// Missed of the next event is the number of all lost events, accepted or not.
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

// toEvents converts records to events.
func (t *Tracker) toEvents(records []record, missed int) []api.Event {
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

func (r *record) node() string {
	switch {
	case r.note != nil:
		return r.note.Node
	case r.client != nil:
		return r.client.node
	default:
		return ""
	}
}

func (r *record) typeName() string {
	switch {
	case r.note != nil:
		return r.note.Type
	case r.typ != nil:
		return r.typ.Short
	default:
		return ""
	}
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
	e.Type = r.typeName()
	if r.nonce != 0 {
		e.Nonce = nonceOf(r.nonce)
	}
	if r.took != 0 {
		e.Took = r.took.Round(time.Microsecond).String()
	}
	if r.by != nil {
		e.Text = "continued without an answer for " + r.by.Short + ", " + r.text + " first"
	}
	if r.cause != nil {
		e.Text, e.Resources = r.cause.text, p.resources(p.node(r.client), r.cause)
	}
	return e
}

// A bell wakes goroutines that wait for a change. Without a waiting goroutine, a change costs one atomic
// load.
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

// Changed returns a channel that is closed at the next change: a client connects, disconnects, sends
// an ACK or NACK, or changes its subscriptions, or there is a commit. To wait for a state, call
// Changed first, then check the state, then wait for the channel.
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
