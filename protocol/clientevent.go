package protocol

import (
	"errors"
	"fmt"
	"iter"

	"github.com/chancery-xds/chancery/xds"
)

// ClientEventKind says what became of a name.
type ClientEventKind uint8

const (
	// Updated: the resource is new, or differs from before, or is good again.
	Updated ClientEventKind = iota + 1
	// Removed: what was held is gone: the server removed it, or its TTL has ended
	// ([ErrExpired]).
	Removed
	// Absent: there is nothing of that name, and was not: the server says so, or has sent
	// nothing in time ([ErrSilent]). Or what was refused is gone, or is not found any more by
	// who was told so; Resource is the first that the name finds all the same.
	Absent
	// TimedOut: the server has sent nothing in time ([ErrSilent]), which says nothing about
	// the resource; with [ClientOptions.Transient] only.
	TimedOut
	// Refused: the client cannot use what the server sent. What was held stays in use,
	// except with [ClientOptions.DropOnError]. Each name that finds it is told once, and is told
	// what becomes of it, whatever else it finds: Updated, Removed or Absent of the same Name.
	Refused
	// Errored: the server reports an error of the resource ([ReportedError]), or that it is
	// gone though it stays in use ([ErrGone]).
	Errored
)

var clientKinds = [...]string{"", "updated", "removed", "absent", "timed out", "refused", "errored"}

func (k ClientEventKind) String() string { return clientKinds[k] }

// A ClientEvent tells one step of one name. Each change of what is held, and of what is known
// of a name that holds nothing, is told once, in order. What nobody asks for any more is not
// told.
type ClientEvent struct {
	Kind ClientEventKind
	Type *xds.Type

	// Name is the resource's, in its canonical form ([xds.CanonicalName]); where there is
	// none, the name that was asked for.
	Name string

	// Asked are the names subscribed to that find the resource: its own, "*", with delta its
	// aliases and its collection. It must not be changed. A name may find several: if one is
	// removed, others may be left ([Client.Found]).
	Asked []string

	Resource *xds.Resource // in use after the step; Removed: the one that is gone
	Err      error         // why; nil if Updated, or Removed by the server
}

var (
	// ErrExpired is why a resource was removed by its TTL.
	ErrExpired = errors.New("its TTL has ended")
	// ErrSilent is wrapped by the error of what did not come in time.
	ErrSilent = errors.New("the server has sent nothing of it")
	// ErrGone is why a resource that the server removed may be out of date
	// ([ClientOptions.Retain], and gRFC A88).
	ErrGone = errors.New("the server says that it does not exist")
)

// A ReportedError is what a server says of a resource instead of sending it ("resource_errors").
type ReportedError struct{ xds.Status }

// Error implements error.
func (e *ReportedError) Error() string {
	return fmt.Sprintf("the server reports code %d: %s", e.Code, e.Message)
}

// Events yields what happened since it was last called, in order.
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

// tellOf tells of a step of a name. A resource is told to all who find it.
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
