package protocol

import "github.com/chancery-xds/chancery/protocol/internal/names"

// This file finds the answer of the client to the last response with each name. names.State has the states.

// answer returns the answer to the last response with a name: in flight, held or refused. The entry e is that of
// the name. If the state is in flight, d and p are the response and the message. The nonce refusedIn belongs to
// the newest refusal of the name; 0: no refusal, or a refusal of an earlier stream.
//
// SotW does not report that a resource without full state is removed, so no answer to that is
// expected. A full state has all names again. So the refusal of a full state also refuses the names
// of an earlier response.
func (u *subscription) answer(e *entry, name string) (d *delivery, p *part, refusedIn uint64, state names.State) {
	var in uint64
	if e != nil {
		in = e.Nonce
	}
	d, p = u.unanswered(name, in)
	if d != nil && d.untold && !stands(u.toldBy(e, name)) {
		d = nil
	}
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

// accepted reports whether the client has accepted the last state of a name.
func (u *subscription) accepted(name string) bool {
	_, _, _, state := u.answer(u.Entry(name), name)
	return state == held
}

// add adds rows. An unanswered response may have their names already.
func (u *subscription) add(extra ...entry) {
	for i := range extra {
		e := &extra[i]
		if e.Told != absent {
			e.Had(e.Told)
		}
		u.trace(e)
	}
	u.Set.Add(extra...)
}

// row returns the row of a name. It adds the row if the name has none.
func (u *subscription) row(name string) *entry {
	if u.Entry(name) == nil {
		u.add(entry{Name: name, Told: u.told(name)})
	}
	return u.Entry(name)
}

// addTouched adds rows and touches them.
func (u *subscription) addTouched(extra []entry) {
	for i := range extra {
		u.Touch(&extra[i])
	}
	u.add(extra...)
}

// trace finds the newest unanswered response with the name of a row, if the client was told the name.
func (u *subscription) trace(e *entry) {
	if e == nil || e.Untold() {
		return
	}
	if d, _ := u.unanswered(e.Name, 0); d != nil {
		e.Sent(d.first())
	}
}
