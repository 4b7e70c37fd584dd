package protocoltest

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// Twins are the two sessions of a stream: both hear the same, but one gets hints of
// what has changed and one gets none. "A hint may only save work": they say the same,
// and want to be woken at the same time.
type twins struct {
	Session                // gets hints
	other          Session // gets none
	memory, others *memory // what the client was told, by each of them, on all its streams
}

func newTwins(open func(told *memory) Session, a, b *memory) *twins {
	return &twins{open(a), open(b), a, b}
}

// differ ends the world.
func differ(format string, args ...any) {
	panic(broken{fmt.Errorf("a hint may only save work: "+format, args...)})
}

func (t *twins) Advance(now time.Time) {
	t.Session.Advance(now)
	t.other.Advance(now)
}

func (t *twins) Change(view xds.View, touched []xds.Names) {
	t.Session.Change(view, touched)
	if len(touched) > 0 { // else nothing has changed, which is no hint
		touched = nil
	}
	t.other.Change(view, touched)
}

func (t *twins) Receive(req xds.Request) error {
	a, b := t.Session.Receive(req), t.other.Receive(req)
	if (a == nil) != (b == nil) {
		differ("the request is answered by %v with hints, and without by %v", a, b)
	}
	return a
}

func (t *twins) Deadline() time.Time {
	a, b := t.Session.Deadline(), t.other.Deadline()
	if !a.Equal(b) {
		differ("the deadline is %v with hints, and without %v", a.Sub(epoch), b.Sub(epoch))
	}
	return a
}

func (t *twins) Responses() iter.Seq[*xds.Response] {
	// Each is asked to the end, before anybody has judged any.
	a, b := slices.Collect(t.Session.Responses()), slices.Collect(t.other.Responses())
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(b):
			differ("sent with hints only is %s", describeResponse(a[i]))
		case i >= len(a):
			differ("sent without hints only is %s", describeResponse(b[i]))
		case !equalResponse(a[i], b[i]):
			differ("sent is\n%s with hints, and without\n%s", describeResponse(a[i]), describeResponse(b[i]))
		}
	}
	return slices.Values(a)
}

func (t *twins) Events() iter.Seq[protocol.Event] {
	a, b := slices.Collect(t.Session.Events()), slices.Collect(t.other.Events())
	for _, e := range a {
		t.memory.note(t.Session, e)
	}
	for _, e := range b {
		t.others.note(t.other, e)
	}
	if !equalEvents(a, b) {
		differ("the events are %+v with hints, and without %+v", a, b)
	}
	return slices.Values(a)
}

// equalEvents leaves out which resources have departed: what nothing refers to lingers for
// no time at all, and may or may not count as one that did.
func equalEvents(a, b []protocol.Event) bool {
	rest := func(events []protocol.Event) []protocol.Event {
		for len(events) > 0 && events[0].Kind == protocol.Departed {
			events = events[1:]
		}
		return events
	}
	for a, b = rest(a), rest(b); len(a) > 0 && len(b) > 0; a, b = rest(a[1:]), rest(b[1:]) {
		if !equalEvent(&a[0], &b[0]) {
			return false
		}
	}
	return len(a) == len(b)
}

func equalEvent(a, b *protocol.Event) bool {
	if !a.Type.Is(b.Type) || a.By != b.By && !a.By.Is(b.By) || (a.World == nil) != (b.World == nil) {
		return false
	}
	typ, by, world := a.Type, a.By, a.World
	defer func() { a.Type, a.By, a.World = typ, by, world }()
	a.Type, a.By, a.World = b.Type, b.By, b.World
	return reflect.DeepEqual(a, b)
}

// Check asks a session that can for its own invariants.
func (t *twins) Check() error {
	for _, s := range []Session{t.Session, t.other} {
		if s, ok := s.(interface{ Check() error }); ok {
			if err := s.Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Interests of the one with hints; the other's are as many.
func (t *twins) Interests() iter.Seq[protocol.Interest] {
	i, ok := t.Session.(idler)
	if !ok {
		return func(func(protocol.Interest) bool) {}
	}
	a, b := slices.Collect(i.Interests()), slices.Collect(t.other.(idler).Interests())
	if !slices.EqualFunc(a, b, equalInterest) {
		differ("the interests are %+v with hints, and without %+v", a, b)
	}
	return slices.Values(a)
}

func equalInterest(a, b protocol.Interest) bool {
	return a.Type.Is(b.Type) && a.Wildcard == b.Wildcard && sameNames(a.Added, b.Added) && sameNames(a.Removed, b.Removed)
}

func (t *twins) Release() {
	for _, s := range []Session{t.Session, t.other} {
		if i, ok := s.(idler); ok {
			i.Release()
		}
	}
}

func equalResponse(a, b *xds.Response) bool {
	same := func(x, y *xds.Resource) bool { return x.Name == y.Name && x.Sum == y.Sum }
	return a.Type.Is(b.Type) && a.Nonce == b.Nonce && a.Version == b.Version && a.TTL == b.TTL && slices.Equal(a.Removed, b.Removed) &&
		slices.Equal(a.Absent, b.Absent) && slices.Equal(a.Missing, b.Missing) &&
		slices.EqualFunc(a.Upserts, b.Upserts, same) && slices.EqualFunc(a.Beats, b.Beats, same)
}
