package protocol

import (
	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// This file keeps the states of the rows: the answer of the client to the last response with each name.
// names.State has the table of the transitions.

// answerOf returns the answer to the last response with a name: in flight, held or refused. The entry e
// is that of the name.
func (u *subscription) answerOf(e *entry, name string) names.State {
	if e != nil && e.State != names.Untold {
		return e.State
	}
	_, _, _, state := u.answer(name, u.toldBy(e, name))
	return state
}

// answer works answerOf out from the deliveries and refusals. If the state is in flight, d and p are
// the response and the message. The nonce refusedIn belongs to the newest refusal of the name; 0: no
// refusal, or a refusal of an earlier stream.
//
// SotW does not report that a resource without full state is removed, so no answer to that is
// expected. A full state has all names again. So the refusal of a full state also refuses the names
// of an earlier response.
func (u *subscription) answer(name string, told *xds.Stamp) (d *delivery, p *part, refusedIn uint64, state names.State) {
	d, p = u.unanswered(name)
	if d != nil && d.untold && !stands(told) {
		d = nil
	}
	state = names.Held
	for i := range u.refusals {
		if r := &u.refusals[i]; r.has(name) || d != nil && d.parts[0].world && d.last() < r.nonce {
			refusedIn, state = r.nonce, names.Refused
		}
	}
	if d != nil && d.last() >= refusedIn {
		state = names.InFlight
	}
	return d, p, refusedIn, state
}

// add adds rows. The state of a row begins as the state that its name had without a row.
func (u *subscription) add(extra ...entry) {
	for i := range extra {
		u.restate(&extra[i])
	}
	u.Set.Add(extra...)
}

// addTouched adds rows and touches them.
func (u *subscription) addTouched(extra []entry) {
	for i := range extra {
		u.Touch(&extra[i])
	}
	u.add(extra...)
}

// restate sets the state of a row again, if its name was told.
func (u *subscription) restate(e *entry) {
	if e != nil {
		_, _, _, state := u.answer(e.Name, e.Told)
		e.Settle(state)
	}
}

// restateAll sets the states of all rows again.
func (u *subscription) restateAll() {
	for e := range u.Entries() {
		u.restate(e)
	}
}

// rowSent records that a response with a name is sent, or the removal of a resource that no response reports.
func (u *subscription) rowSent(e *entry, unreported bool) {
	e.Sent()
	if unreported {
		u.restate(e)
	}
}

// rowsUnsent records that names count as told without a response.
func (u *subscription) rowsUnsent(items []item) {
	for i := range items {
		u.restate(u.Entry(items[i].Name))
	}
}

// rowsAnswered records that the client has answered a message. The answer to a full state is about all names.
func (u *subscription) rowsAnswered(d *delivery, p *part) {
	switch {
	case u.Set.Len() == 0:
		return
	case p.world:
		u.restateAll()
		return
	case d.beats == nil && d.To == nil && p.fate == accepted && d.last() == u.nonce && len(u.refusals) == 0: // the usual case: no other record has these names
		for i := range d.Items {
			it := &d.Items[i]
			if e := u.Entry(it.Name); e != nil && it.Is != nil && p.within(it.Name, it.Is) {
				e.Acked()
			}
		}
		return
	}
	for name, it := range d.Each {
		if p.within(name, it.Is) {
			u.restate(u.Entry(name))
		}
	}
	for _, r := range d.beats {
		u.restate(u.Entry(r.Name))
	}
}

// rowsForgotten records that the session has forgotten a response without its answer.
func (u *subscription) rowsForgotten(c *cargo) {
	for name := range c.Each {
		u.restate(u.Entry(name))
	}
}
