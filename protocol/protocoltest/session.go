// Package protocoltest plays random conversations between both halves of the protocol, with a judge that knows the
// rules.
package protocoltest

import (
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A Session is the server half of one stream, as [protocol.Session] defines it.
type Session interface {
	Advance(now time.Time)
	Receive(req xds.Request) error
	Change(view xds.View, touched []xds.Names)
	Responses() iter.Seq[*xds.Response]
	Deadline() time.Time
	Events() iter.Seq[protocol.Event]
	Interests() iter.Seq[protocol.Interest]
	Release()
	Resend(t *xds.Type, name string) int
	States() []protocol.TypeState
	NameStates(t *xds.Type) iter.Seq[protocol.NameState]
	NameState(t *xds.Type, name string) protocol.NameState
	Refused(t *xds.Type) []string
	Err() error
}

// An Open creates the session of a new stream. Its parameters are those of [protocol.NewSession].
type Open func(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) Session

// A View is a view that has undecided names, and names that it withholds from clients that refused them.
type View struct {
	xds.View
	Undecideds xds.Names
	Withhelds  xds.Names
}

// Undecided implements [xds.Undecided].
func (v View) Undecided(t *xds.Type, name string) bool {
	return slices.Contains(v.Undecideds[t.URL], name)
}

// Withheld implements [xds.Withholding].
func (v View) Withheld(t *xds.Type) []string { return v.Withhelds[t.URL] }
