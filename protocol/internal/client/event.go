package client

import (
	"errors"
	"fmt"
	"iter"

	"github.com/chancery-xds/chancery/xds"
)

// EventKind is the kind of a [Event].
type EventKind uint8

const (
	// Updated: the resource is new, has changed, or is good again.
	Updated EventKind = iota + 1
	// Removed: the client dropped the resource. The server removed it, or its TTL expired
	// ([ErrExpired]).
	Removed
	// Absent has two cases. First: the name has no resource and had none before. The server
	// reported that, or sent nothing in time ([ErrSilent]). Second: a refused resource is removed,
	// or no longer matches a name that got a Refused event for it. Then Resource is the first other
	// resource that the name finds.
	Absent
	// TimedOut: the server sent nothing in time ([ErrSilent]), which does not mean that the
	// resource is missing; only with [Options.Transient].
	TimedOut
	// Refused: the client cannot use the resource that the server sent. The resource held stays in
	// use, except with [Options.DropOnError]. Each name that finds the refused resource gets
	// this event once. Later the same name gets Updated, Removed or Absent for this resource, even
	// if the name also finds other resources.
	Refused
	// Errored: the server reports an error of the resource ([ReportedError]). Or the server reports
	// that the resource does not exist, and it stays in use all the same ([ErrGone]).
	Errored
)

var kinds = [...]string{"", "updated", "removed", "absent", "timed out", "refused", "errored"}

func (k EventKind) String() string { return kinds[k] }

// A Event is a change of one name: of its resource or, if it has no resource, of the reason
// for that. Each change is reported once, in order, but only for names that are still subscribed.
type Event struct {
	Kind EventKind
	Type *xds.Type

	// Name is the name of the resource in its canonical form ([xds.CanonicalName]). Without a
	// resource, Name is the subscribed name.
	Name string

	// Asked are the subscribed names that find the resource: its own name, "*" and, with delta, its
	// aliases and its collection. The caller must not change the slice. A name may find several
	// resources, so after a removal it may still find others ([Client.Found]).
	Asked []string

	Resource *xds.Resource // the resource in use after the change; Removed: the dropped resource
	Err      error         // the reason; nil for Updated, and for Removed if the server removed the resource
}

var (
	// ErrExpired is the reason of a removal after the TTL of a resource has expired.
	ErrExpired = errors.New("its TTL expired")
	// ErrSilent is the error inside the reason of an Absent or TimedOut event, if the server did
	// not send the resource in time: test with [errors.Is].
	ErrSilent = errors.New("the server did not send it")
	// ErrGone is the reason of an Errored event: the server removed the resource, but the client
	// keeps using it ([Options.Retain], and gRFC A88).
	ErrGone = errors.New("the server reports that it does not exist")
)

// A ReportedError is an error that a server reports for a resource instead of sending it
// ("resource_errors").
type ReportedError struct{ xds.Status }

// Error implements error.
func (e *ReportedError) Error() string {
	return fmt.Sprintf("the server reports code %d: %s", e.Code, e.Message)
}

// Events yields the events since the last call, in order.
func (c *Client) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for len(c.events) > 0 {
			e := c.events[0]
			c.events[0] = Event{}
			c.events = c.events[1:]
			if !yield(e) {
				return
			}
		}
		c.events = nil
	}
}

// addEvent adds an event. If the event has no list of subscribed names, all names that find the
// resource get it. An event that no subscribed name gets is dropped.
func (ts *typeState) addEvent(e Event) {
	e.Type = ts.typ
	switch {
	case e.Asked != nil:
	case e.Resource != nil:
		e.Asked = ts.subscribersOf(e.Name, e.Resource)
	case ts.has(e.Name, isSubscribed):
		e.Asked = []string{e.Name}
	}
	if len(e.Asked) > 0 {
		ts.client.events = append(ts.client.events, e)
	}
}
