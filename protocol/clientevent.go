package protocol

import (
	"errors"
	"fmt"
	"iter"

	"github.com/chancery-xds/chancery/xds"
)

// ClientEventKind is the kind of a [ClientEvent].
type ClientEventKind uint8

const (
	// Updated: the resource is new, has changed, or is good again.
	Updated ClientEventKind = iota + 1
	// Removed: the resource was dropped: the server removed it, or its TTL expired ([ErrExpired]).
	Removed
	// Absent: the name has no resource and had none. The server reported that, or sent nothing in
	// time ([ErrSilent]). Or a refused resource is gone, or no longer matches a name that got its
	// Refused event; then Resource is the first other resource that the name finds.
	Absent
	// TimedOut: the server sent nothing in time ([ErrSilent]), which does not mean that the
	// resource is missing; only with [ClientOptions.Transient].
	TimedOut
	// Refused: the client cannot use the resource that the server sent. The resource held stays in
	// use, except with [ClientOptions.DropOnError]. Each name that finds it gets this once, and
	// later Updated, Removed or Absent with the same Name, whatever else it finds.
	Refused
	// Errored: the server reports an error of the resource ([ReportedError]), or that it does not
	// exist though it stays in use ([ErrGone]).
	Errored
)

var clientKinds = [...]string{"", "updated", "removed", "absent", "timed out", "refused", "errored"}

func (k ClientEventKind) String() string { return clientKinds[k] }

// A ClientEvent is a change of one name: of its resource or, without one, of the reason for that.
// Each change is reported once, in order, but only for names that are still subscribed.
type ClientEvent struct {
	Kind ClientEventKind
	Type *xds.Type

	// Name is the name of the resource in its canonical form ([xds.CanonicalName]). Without a
	// resource, it is the subscribed name.
	Name string

	// Asked are the subscribed names that find the resource: its own, "*" and, with delta, its
	// aliases and its collection. It must not be changed. A name may find several resources; after
	// a removal others may be left ([Client.Found]).
	Asked []string

	Resource *xds.Resource // in use after the change; Removed: the one that was dropped
	Err      error         // the reason; nil if Updated, or Removed by the server
}

var (
	// ErrExpired is the reason of a removal by TTL.
	ErrExpired = errors.New("its TTL expired")
	// ErrSilent is wrapped by the error of a name that did not come in time.
	ErrSilent = errors.New("the server did not send it")
	// ErrGone is the reason why a resource in use may be out of date: the server removed it
	// ([ClientOptions.Retain], and gRFC A88).
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
func (c *Client) Events() iter.Seq[ClientEvent] {
	return func(yield func(ClientEvent) bool) {
		for len(c.events) > 0 {
			e := c.events[0]
			c.events[0] = ClientEvent{}
			c.events = c.events[1:]
			if !yield(e) {
				return
			}
		}
		c.events = nil
	}
}

// tellOf adds an event. Without a list of asked names, it is for all names that find the resource.
func (c *Client) tellOf(w *clientType, e ClientEvent) {
	e.Type = w.typ
	if e.Asked == nil {
		if e.Resource != nil {
			e.Asked = w.askers(e.Name, e.Resource)
		} else if n := w.names[e.Name]; n != nil && n.asked {
			e.Asked = []string{e.Name}
		}
	}
	if len(e.Asked) > 0 {
		c.events = append(c.events, e)
	}
}
