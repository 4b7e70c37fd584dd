package protocol

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Check returns an error for the first invariant of the session that does not hold.
func (s *Session) Check() error {
	for i, u := range s.subs {
		if i > 0 && s.subs[i-1].typ.Rank() > u.typ.Rank() {
			return fmt.Errorf("%s comes before %s", s.subs[i-1].typ, u.typ)
		}
		for _, check := range []func() error{u.names.check, u.checkWant, u.checkMatching, u.checkRecord, u.checkRefusals, u.checkWithdrawing, u.checkSaying, u.checkMuted, u.checkBeats} {
			if err := check(); err != nil {
				return fmt.Errorf("%s: %w", u.typ, err)
			}
		}
		if err := s.checkWaiting(u); err != nil {
			return fmt.Errorf("%s: %w", u.typ, err)
		}
		if s.view != nil && !u.all {
			if err := u.checkListed(s.table(u.typ)); err != nil {
				return fmt.Errorf("%s: %w", u.typ, err)
			}
			if err := s.checkResting(u); err != nil {
				return fmt.Errorf("%s: %w", u.typ, err)
			}
		}
	}
	return nil
}

// checkResting finds resting names that would not wait if they were evaluated.
func (s *Session) checkResting(u *subscription) error {
	ends := s.waitEnds(u)
	if !u.waiting.rests() || u.waiting.seen != s.sight(u) || !ends.IsZero() && !s.now.Before(ends) ||
		slices.ContainsFunc(s.subs, func(v *subscription) bool { return len(v.stirred) > 0 }) {
		return nil // it is evaluated in the next step
	}
	turns, patient := s.turns, s.patient
	defer func() { s.turns, s.patient = turns, patient }()
	for n, is := range u.waiting.waits {
		e := u.entry(n)
		if e == nil || !u.waiting.resting(n) {
			continue
		}
		r, _ := s.owed(u, s.table(u.typ), e)
		if r == nil {
			continue
		}
		s.turns, s.patient = time.Time{}, false
		ready := !s.ordered(u) || s.ready(u, &anyReady{}, r)
		if ready && is.until.IsZero() && !is.patient && s.variant == xds.SotW && u.typ.FullState {
			continue // a full state waits for others
		}
		if ready {
			return fmt.Errorf("%q waits, and need not", n)
		}
		if !s.turns.Equal(is.until) || s.patient != is.patient {
			return fmt.Errorf("%q waits until %v (%v), not %v (%v)", n, s.turns, s.patient, is.until, is.patient)
		}
	}
	return nil
}

func (l *names) check() error {
	n, last := 0, ""
	for i, c := range l.chunks {
		if len(c) == 0 || len(c) > chunkMax {
			return fmt.Errorf("chunk %d has %d entries", i, len(c))
		}
		for _, e := range c {
			if n > 0 && e.name <= last {
				return fmt.Errorf("entry %q behind %q", e.name, last)
			}
			if e.told == nil {
				return fmt.Errorf("entry %q was told nothing", e.name)
			}
			n, last = n+1, e.name
		}
	}
	if n != l.len() {
		return fmt.Errorf("%d entries, count %d", n, l.count)
	}
	return nil
}

func (u *subscription) checkWant() error {
	size := 0
	for n := range u.dropped {
		size += len(n)
	}
	if size != int(u.droppedSize) {
		return fmt.Errorf("names of %d bytes were given up, counted are %d", size, u.droppedSize)
	}
	named := int32(0)
	for e := range u.entries() {
		if e.named {
			named++
		}
	}
	if named != u.named {
		return fmt.Errorf("%d entries are named, counted are %d", named, u.named)
	}
	for c := range u.scopes {
		if u.entry(c) == nil {
			return fmt.Errorf("the scope %q has no entry", c)
		}
	}
	for n := range u.dropped {
		if u.entry(n) == nil {
			return fmt.Errorf("%q was given up and has no entry", n)
		}
	}
	switch {
	case u.wildcard && u.scopes != nil:
		return errors.New("a wildcard has scopes")
	case u.implicit && u.named > 0:
		return fmt.Errorf("%d names are named, and none ever was", u.named)
	case !u.moved && u.shift != nil:
		return fmt.Errorf("the interest has not moved, but for %q and %q", u.shift.added, u.shift.removed)
	case u.gaveUp > u.nonce:
		return fmt.Errorf("something was given up after nonce %d, and the newest is %d", u.gaveUp, u.nonce)
	}
	if len(u.toggled) > 0 {
		return fmt.Errorf("toggled and not scoped: %q", u.toggled)
	}
	return nil
}

func (u *subscription) checkMatching() error {
	matched, aliases := map[string]int32{}, 0
	for by, found := range u.matches {
		if e := u.entry(by); e == nil || !u.wants(e) {
			return fmt.Errorf("%q finds resources and is not wanted", by)
		}
		for r := range found.All() {
			matched[r.Name]++
			if _, has := slices.BinarySearch(u.aliased[r.Name], by); has == (by == u.typ.Collection(r.Name)) {
				return fmt.Errorf("%q finds %q, listed as an alias: %v", by, r.Name, has)
			} else if has {
				aliases++
			}
			if u.entry(r.Name) == nil {
				return fmt.Errorf("%q finds %q, which has no entry", by, r.Name)
			}
		}
	}
	for name, by := range u.aliased {
		if aliases -= len(by); len(by) == 0 || !slices.IsSorted(by) {
			return fmt.Errorf("as aliases of %q are listed %q", name, by)
		}
	}
	for name := range u.lapsed {
		if u.entry(name) == nil {
			return fmt.Errorf("%q has lapsed and has no entry", name)
		}
	}
	if aliases != 0 {
		return fmt.Errorf("%d aliases are listed and find nothing", -aliases)
	}
	for e := range u.entries() {
		if e.matched != matched[e.name] {
			return fmt.Errorf("%q is found by %d names, counted are %d", e.name, matched[e.name], e.matched)
		}
	}
	return nil
}

func (u *subscription) checkRecord() error {
	if len(u.deliveries) > maxDeliveries || len(u.refusals) > maxRefusals {
		return fmt.Errorf("%d deliveries, %d refusals", len(u.deliveries), len(u.refusals))
	}
	var last uint64
	for i := range u.deliveries {
		d := &u.deliveries[i]
		dealt := d.settled() && d.joined == 0 && !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == passed })
		if d.parts[0].nonce <= last || dealt {
			return fmt.Errorf("delivery %d behind %d, settled %v", d.parts[0].nonce, last, dealt)
		}
		last = d.last()
		if err := d.check(); err != nil {
			return fmt.Errorf("delivery %d: %w", last, err)
		}
	}
	if u.unacked && last != u.nonce {
		return fmt.Errorf("nonce %d is unanswered, and the newest delivery is %d", u.nonce, last)
	}
	switch {
	case u.base != nil && !u.wildcard:
		return errors.New("told by way of a wildcard that there is not")
	case u.heard > u.nonce || u.evicted > u.nonce:
		return fmt.Errorf("nonce %d was answered, %d is listed no more, and the newest is %d", u.heard, u.evicted, u.nonce)
	case u.elsewhere && !u.typ.FullState:
		return errors.New("of a type without full state all is told anew")
	case !slices.IsSortedFunc(u.brought, stampByName):
		return errors.New("what it brought is in no order")
	}
	for i, st := range u.brought {
		if i > 0 && u.brought[i-1].Name == st.Name {
			return fmt.Errorf("it brought %q twice", st.Name)
		}
	}
	for n, st := range u.orphans {
		if !stands(st) || stands(u.told(n)) {
			return fmt.Errorf("%q cannot be told to be gone, and was told as %q", n, u.told(n).Name)
		}
	}
	return nil
}

// check reports whether items are in order, and each item is in a message.
func (d *delivery) check() error {
	if err := d.cargo.check(); err != nil {
		return err
	}
	for i, p := range d.parts {
		if i > 0 && d.parts[i-1].nonce >= p.nonce {
			return fmt.Errorf("message %d behind %d", p.nonce, d.parts[i-1].nonce)
		}
	}
	if d.joined >= d.parts[0].nonce {
		return fmt.Errorf("it has become one with %d, which is later", d.joined)
	}
	for name, it := range d.each {
		if n := len(slices.DeleteFunc(slices.Clone(d.parts), func(p part) bool { return !p.within(name, it.is) })); n > 1 || n == 0 && stands(it.is) && d.joined == 0 {
			return fmt.Errorf("%d of its messages told of %q", n, name)
		}
	}
	return nil
}

func (c *cargo) check() error {
	for i, it := range c.items {
		switch {
		case i > 0 && c.items[i-1].name >= it.name:
			return fmt.Errorf("item %q behind %q", it.name, c.items[i-1].name)
		case it.is != nil && it.was == nil:
			return fmt.Errorf("nobody knows what was told of %q before", it.name)
		case it.lapsed && (stands(it.is) || it.is == nil), it.member && !it.lapsed:
			return fmt.Errorf("item %q has lapsed, and is there", it.name)
		}
	}
	return nil
}

func (u *subscription) checkRefusals() error {
	if !slices.IsSortedFunc(u.refusals, func(a, b refusal) int { return int(a.nonce) - int(b.nonce) }) {
		return errors.New("refusals in no order")
	}
	for i := range u.refusals {
		r := &u.refusals[i]
		if err := r.check(); err != nil {
			return fmt.Errorf("refusal %d: %w", r.nonce, err)
		}
		n := 0
		for range r.members {
			n++
		}
		if n == 0 || n != r.left {
			return fmt.Errorf("refusal %d has %d names, counted are %d", r.nonce, n, r.left)
		}
		for _, name := range r.lapsed {
			if it := r.find(name); it == nil || !it.lapsed {
				return fmt.Errorf("refusal %d lists %q as lapsed", r.nonce, name)
			}
		}
	}
	return nil
}

func (u *subscription) checkWithdrawing() error {
	for name, l := range u.leaving {
		switch {
		case u.entry(name) == nil:
			return fmt.Errorf("%q is leaving and has no entry", name)
		case l.stamp == nil:
			return fmt.Errorf("of %q nobody knows what leaves", name)
		case l.body != nil && l.body.Name != name:
			return fmt.Errorf("as %q leaves %q", name, l.body.Name)
		case !l.due.IsZero() && (l.since.IsZero() || !l.due.After(l.since)):
			return fmt.Errorf("%q may leave before it was lost", name)
		}
	}
	return nil
}

func (s *Session) checkWaiting(u *subscription) error {
	if len(u.stirred) > 0 && !u.heeded {
		return fmt.Errorf("%q have moved, which nobody heeds", u.stirred)
	}
	w := u.waiting
	switch {
	case w == nil:
		return nil
	case u.typ.After == nil:
		return errors.New("something waits for no type")
	case w.rest && len(w.waits) == 0:
		return errors.New("nothing rests")
	case len(w.roused) > 0 && !w.rest:
		return errors.New("some are roused, and none rests")
	}
	for n := range w.roused {
		if _, waits := w.waits[n]; !waits {
			return fmt.Errorf("%q is roused and does not wait", n)
		}
	}
	var ends, patient earliest
	for n, one := range w.waits {
		if one.since.IsZero() || one.since.After(s.now) {
			return fmt.Errorf("%q waits since %v", n, one.since)
		}
		if ends.more(one.until); one.patient {
			patient.more(one.since)
		}
	}
	if !w.ends.at.IsZero() && w.ends != ends || !w.patient.at.IsZero() && w.patient != patient {
		return fmt.Errorf("waits end at %v, counted are %v; the patient since %v, counted are %v", ends, w.ends, patient, w.patient)
	}
	if s.view == nil || !w.rests() || w.seen != s.sight(u) {
		return nil // it is evaluated in the next step
	}
	for _, t := range []*xds.Type{u.typ.After, u.typ.After.Warms} {
		if t != nil && s.sub(t) != nil && !s.sub(t).heeded {
			return fmt.Errorf("%d wait for %s, which nobody heeds", len(w.waits), t)
		}
	}
	return nil
}

func (u *subscription) checkSaying() error {
	listed := map[string]bool{}
	for _, n := range u.dirty {
		listed[n] = true
	}
	for e := range u.entries() {
		if e.dirty && !listed[e.name] {
			return fmt.Errorf("%q is dirty and not listed", e.name)
		}
	}
	switch {
	case u.anew && !u.wildcard:
		return errors.New("all that the wildcard covers is told anew, and there is none")
	case u.stated != "" && !u.typ.FullState:
		return fmt.Errorf("the version %q is of a type without full state", u.stated)
	}
	return nil
}

func (u *subscription) checkMuted() error {
	if u.mute == nil {
		return nil
	}
	if !slices.IsSortedFunc(u.mute.list, func(a, b muting) int { return a.until.Compare(b.until) }) {
		return errors.New("mutings in no order")
	}
	for n, until := range u.mute.until {
		if !slices.Contains(u.mute.list, muting{n, until}) {
			return fmt.Errorf("%q is muted, and nobody will end that", n)
		}
	}
	return nil
}

func (u *subscription) checkBeats() error {
	if (len(u.beats) == 0) != u.beatAt.IsZero() {
		return fmt.Errorf("%d heartbeats, the next at %v", len(u.beats), u.beatAt)
	}
	return nil
}

// checkListed checks that each name which differs from the view is dirty or leaving.
func (u *subscription) checkListed(t *xds.Table) error {
	for e := range u.entries() {
		if !e.dirty && !u.waiting.resting(e.name) && u.leaving[e.name] == nil && u.outdated(t, e.name, e.told) {
			return fmt.Errorf("%q differs from the view and is not dirty", e.name)
		}
	}
	return nil
}
