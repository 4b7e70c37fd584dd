package protocoltest

import (
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// An operator makes sessions send resources again, and ends streams. Its dice are its own, so other choices of a
// world do not depend on it.
type operator struct{ dice }

// newOperator returns the operator of a world, or nil: a quarter of the worlds has one.
func newOperator(seed uint64) *operator {
	d := newDice(seed, 7)
	if d.IntN(4) > 0 {
		return nil
	}
	return &operator{d}
}

// act does something to a random client, at one step of sixteen.
func (o *operator) act(w *world) {
	if o == nil || o.IntN(16) > 0 {
		return
	}
	n := w.lanes[o.IntN(len(w.lanes))]
	if o.IntN(8) == 0 {
		n.disconnect()
		return
	}
	k := w.content.kinds[o.IntN(len(w.content.kinds))]
	name := ""
	if o.IntN(3) > 0 {
		name = k.names[o.IntN(len(k.names))]
	}
	n.resend(k.typ(), name)
}

// disconnect ends the stream of a client. The client gets all that the session sent before.
func (n *lane) disconnect() {
	for n.deliverDown() {
	}
	n.connect()
}

// resend makes the session send resources of a type again; "" means all names.
func (n *lane) resend(t *xds.Type, name string) {
	n.wake()
	n.logf("%d resends %s %q", n.id, t, name)
	n.still = time.Time{}
	n.session.Resend(t, name)
	n.ledger.resend(t, name)
	n.check()
	if n.eager {
		n.respond()
	}
}
