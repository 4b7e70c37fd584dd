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

// Twins are two sessions of one stream with the same inputs. One gets hints about changes, the other none. A
// hint may only save work, so both must send the same and have the same deadlines.
type twins struct {
	Session                // gets hints
	other          Session // gets none
	memory, others *Memory // what each of them sent to the client, on all its streams
}

func newTwins(open func(told *Memory) Session, a, b *Memory) *twins {
	return &twins{open(a), open(b), a, b}
}

// differ ends the world with a failure.
func differ(format string, args ...any) {
	panic(broken{fmt.Errorf("a hint may only save work: "+format, args...)})
}

func (t *twins) Advance(now time.Time) {
	t.Session.Advance(now)
	t.other.Advance(now)
}

func (t *twins) Change(view xds.View, touched []xds.Names) {
	t.Session.Change(view, touched)
	if len(touched) > 0 { // an empty list is not a hint: nothing changed
		touched = nil
	}
	t.other.Change(view, touched)
}

func (t *twins) Receive(req xds.Request) error {
	a, b := t.Session.Receive(req), t.other.Receive(req)
	if (a == nil) != (b == nil) {
		differ("the request returns %v with hints, and %v without", a, b)
	}
	return a
}

func (t *twins) Resend(typ *xds.Type, name string) int {
	a, b := t.Session.Resend(typ, name), t.other.Resend(typ, name)
	if a != b {
		differ("%d names are sent again with hints, and %d without", a, b)
	}
	return a
}

func (t *twins) Err() error {
	a, b := t.Session.Err(), t.other.Err()
	if (a == nil) != (b == nil) {
		differ("the stream ends with %v with hints, and with %v without", a, b)
	}
	return a
}

func (t *twins) Deadline() time.Time {
	a, b := t.Session.Deadline(), t.other.Deadline()
	if !a.Equal(b) {
		differ("the deadline is %v with hints, and %v without", a.Sub(epoch), b.Sub(epoch))
	}
	return a
}

func (t *twins) Responses() iter.Seq[*xds.Response] {
	// Both must finish before the judge sees any response.
	a, b := slices.Collect(t.Session.Responses()), slices.Collect(t.other.Responses())
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(b):
			differ("only the session with hints sends %s", (*responseText)(a[i]))
		case i >= len(a):
			differ("only the session without hints sends %s", (*responseText)(b[i]))
		case !equalResponse(a[i], b[i]):
			differ("with hints the session sends\n%s, and without\n%s", (*responseText)(a[i]), (*responseText)(b[i]))
		}
	}
	return slices.Values(a)
}

func (t *twins) Events() iter.Seq[protocol.Event] {
	a, b := slices.Collect(t.Session.Events()), slices.Collect(t.other.Events())
	for _, e := range a {
		t.memory.Note(t.Session, e)
	}
	for _, e := range b {
		t.others.Note(t.other, e)
	}
	if !equalEvents(a, b) {
		differ("the events are %+v with hints, and %+v without", a, b)
	}
	return slices.Values(a)
}

// equalEvents ignores departures. A removed resource that nothing refers to is kept for no time, and may or
// may not be reported as departed.
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

// Check asks sessions that support it to check their own invariants.
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

// Interests returns the interests of the session with hints; those of the other must be equal.
func (t *twins) Interests() iter.Seq[protocol.Interest] {
	a, b := slices.Collect(t.Session.Interests()), slices.Collect(t.other.Interests())
	if !slices.EqualFunc(a, b, equalInterest) {
		differ("the interests are %+v with hints, and %+v without", a, b)
	}
	return slices.Values(a)
}

func equalInterest(a, b protocol.Interest) bool {
	return a.Type.Is(b.Type) && a.Wildcard == b.Wildcard && sameNames(a.Added, b.Added) && sameNames(a.Removed, b.Removed)
}

func (t *twins) Release() {
	t.Session.Release()
	t.other.Release()
}

func equalResponse(a, b *xds.Response) bool {
	same := func(x, y *xds.Resource) bool { return x.Name == y.Name && x.Sum == y.Sum }
	names := slices.Equal(a.Removed, b.Removed) && slices.Equal(a.Absent, b.Absent) && slices.Equal(a.Missing, b.Missing)
	resources := slices.EqualFunc(a.Upserts, b.Upserts, same) && slices.EqualFunc(a.Beats, b.Beats, same)
	return a.Type.Is(b.Type) && a.Nonce == b.Nonce && a.Version == b.Version && a.TTL == b.TTL && names && resources
}
