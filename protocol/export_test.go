package protocol

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Check returns an error for the first invariant of the session that does not hold.
func (s *Session) Check() error {
	for i, u := range s.subs {
		if i > 0 && s.subs[i-1].typ.Rank() > u.typ.Rank() {
			return fmt.Errorf("%s comes before %s", s.subs[i-1].typ, u.typ)
		}
		for _, check := range []func() error{u.Set.Check, u.checkWant, u.checkMatching, u.checkRecord, u.checkRefusals, u.checkWithdrawing, u.checkAnswers, u.checkSaying, u.checkMuted, u.checkBeats} {
			if err := check(); err != nil {
				return fmt.Errorf("%s: %w", u.typ, err)
			}
		}
		if err := s.checkWaiting(u); err != nil {
			return fmt.Errorf("%s: %w", u.typ, err)
		}
		if s.view != nil && !u.All {
			if err := u.checkListed(s.table(u.typ)); err != nil {
				return fmt.Errorf("%s: %w", u.typ, err)
			}
			if err := s.checkParked(u); err != nil {
				return fmt.Errorf("%s: %w", u.typ, err)
			}
		}
	}
	return nil
}

// everySub returns the subscriptions of the session and of its siblings.
func (s *Session) everySub() (all []*subscription) {
	if s.siblings == nil {
		return s.subs
	}
	for _, o := range s.siblings.all {
		all = append(all, o.subs...)
	}
	return all
}

// checkParked finds parked names that would not wait if they were evaluated.
func (s *Session) checkParked(u *subscription) error {
	ends := s.waitEnds(u)
	if !u.waiting.parks() || u.waiting.seen != s.inputs(u) || !ends.IsZero() && !s.now.Before(ends) ||
		slices.ContainsFunc(s.everySub(), func(v *subscription) bool { return len(v.Noted) > 0 }) {
		return nil // it is evaluated in the next step
	}
	for n, is := range u.waiting.waits {
		e := u.Entry(n)
		if e == nil || !u.isParked(n) {
			continue
		}
		r, _ := s.owed(u, s.table(u.typ), e)
		if r == nil {
			continue
		}
		var must condition
		if s.ordered(u) {
			must = s.mustWait(u, &anyComing{}, r)
		}
		if !must.holds && !is.holds && s.variant == xds.SotW && u.typ.FullState {
			continue // a full state waits for others
		}
		if !must.holds && is.holds {
			return fmt.Errorf("%q waits, but need not wait", n)
		}
		if must != is.condition {
			return fmt.Errorf("%q waits until %v, but recorded is %v", n, must, is.condition)
		}
	}
	return nil
}

func (u *subscription) checkWant() error {
	size := 0
	for n := range u.dropped {
		size += len(n)
	}
	if size != int(u.droppedSize) {
		return fmt.Errorf("there are %d bytes of unsubscribed names, the count is %d", size, u.droppedSize)
	}
	named := int32(0)
	for e := range u.Entries() {
		if e.Named {
			named++
		}
	}
	if named != u.named {
		return fmt.Errorf("%d entries are named, the count is %d", named, u.named)
	}
	for c := range u.scopes {
		if u.Entry(c) == nil {
			return fmt.Errorf("the scope %q has no entry", c)
		}
	}
	for n := range u.dropped {
		if u.Entry(n) == nil {
			return fmt.Errorf("unsubscribed name %q has no entry", n)
		}
	}
	switch {
	case u.wildcard && u.scopes != nil:
		return errors.New("a wildcard has scopes")
	case u.implicit && u.named > 0:
		return fmt.Errorf("the wildcard is implicit, but %d names are subscribed", u.named)
	case !u.moved && len(u.flipped) > 0:
		return fmt.Errorf("the interest has not changed, but the names %q have flipped", u.flipped)
	case u.gaveUp > u.nonce:
		return fmt.Errorf("the last unsubscription was after nonce %d, but the newest nonce is %d", u.gaveUp, u.nonce)
	}
	if len(u.toggled) > 0 {
		return fmt.Errorf("toggled and not scoped: %q", u.toggled)
	}
	return nil
}

// checkAnswers checks that the stored state of each row is the result of answer.
func (u *subscription) checkAnswers() error {
	for e := range u.Entries() {
		_, _, _, is := u.answer(e, e.Name)
		_, _, _, found := u.answer(&entry{Name: e.Name, Told: e.Told}, e.Name)
		if is != found {
			return fmt.Errorf("the state of %q is %s with nonce %d, but a search finds %s", e.Name, is, e.Nonce, found)
		}
	}
	return nil
}

func (u *subscription) checkMatching() error {
	matched, aliases := map[string]int32{}, 0
	for by, found := range u.matches {
		if e := u.Entry(by); e == nil || !u.wants(e) {
			return fmt.Errorf("%q matches resources, but is not wanted", by)
		}
		for r := range found.All() {
			matched[r.Name]++
			if _, has := slices.BinarySearch(u.aliased[r.Name], by); has == (by == u.typ.Collection(r.Name)) {
				return fmt.Errorf("%q matches %q; listed as an alias: %v", by, r.Name, has)
			} else if has {
				aliases++
			}
			if u.Entry(r.Name) == nil {
				return fmt.Errorf("%q matches %q, which has no entry", by, r.Name)
			}
		}
	}
	for name, by := range u.aliased {
		if aliases -= len(by); len(by) == 0 || !slices.IsSorted(by) {
			return fmt.Errorf("the aliases of %q are empty or not sorted: %q", name, by)
		}
	}
	if aliases != 0 {
		return fmt.Errorf("%d listed aliases match no resource", -aliases)
	}
	for e := range u.Entries() {
		if e.Matched != matched[e.Name] {
			return fmt.Errorf("%d names match %q, the count is %d", matched[e.Name], e.Name, e.Matched)
		}
	}
	return nil
}

func (u *subscription) checkRecord() error {
	if len(u.deliveries) > maxListed+1 || len(u.refusals) > maxRefusals {
		return fmt.Errorf("%d deliveries, %d refusals", len(u.deliveries), len(u.refusals))
	}
	var last uint64
	for i := range u.deliveries {
		d := &u.deliveries[i]
		dealt := d.settled() && !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == passed })
		if d.first() <= last || dealt {
			return fmt.Errorf("delivery %d after %d, settled %v", d.first(), last, dealt)
		}
		last = d.last()
		if err := d.check(); err != nil {
			return fmt.Errorf("delivery %d: %w", last, err)
		}
	}
	if u.unacked && last != u.nonce {
		return fmt.Errorf("nonce %d is unanswered, but the newest delivery is %d", u.nonce, last)
	}
	switch {
	case u.base != nil && !u.wildcard:
		return errors.New("a base table without a wildcard")
	case u.heard > u.nonce:
		return fmt.Errorf("answered nonce %d is above the newest nonce %d", u.heard, u.nonce)
	case u.elsewhere && !u.typ.FullState:
		return errors.New("elsewhere is set for a type without full state")
	case !slices.IsSortedFunc(u.brought, stampByName):
		return errors.New("the brought stamps are not sorted")
	}
	for i, st := range u.brought {
		if i > 0 && u.brought[i-1].Name == st.Name {
			return fmt.Errorf("the stamp of %q is brought twice", st.Name)
		}
	}
	for n, l := range u.leftovers {
		switch cannot := l.why == cannotRemove; {
		case !cannot && u.Entry(n) == nil:
			return fmt.Errorf("leftover %q has no entry", n)
		case cannot != stands(l.stamp) || cannot && stands(u.told(n)):
			return fmt.Errorf("leftover %q is not a resource, or the client has resource %q", n, u.told(n).Name)
		case cannot && !u.covers(n):
			return fmt.Errorf("leftover %q is unsubscribed", n)
		}
	}
	return nil
}

// check reports whether items are in order, and each item is in a message.
func (d *delivery) check() error {
	if err := checkCargo(&d.cargo); err != nil {
		return err
	}
	for i, p := range d.parts {
		if i > 0 && d.parts[i-1].nonce >= p.nonce {
			return fmt.Errorf("message %d after %d", p.nonce, d.parts[i-1].nonce)
		}
	}
	for name, it := range d.Each {
		if n := len(slices.DeleteFunc(slices.Clone(d.parts), func(p part) bool { return !p.within(name, it.Is) })); n > 1 || n == 0 && d.says(name) != nil && d.beats == nil {
			return fmt.Errorf("%d of its messages have %q", n, name)
		}
	}
	return nil
}

func checkCargo(c *cargo) error {
	for i, it := range c.Items {
		switch {
		case i > 0 && c.Items[i-1].Name >= it.Name:
			return fmt.Errorf("item %q after %q", it.Name, c.Items[i-1].Name)
		case it.Is != nil && it.Was == nil:
			return fmt.Errorf("item %q has no state before", it.Name)
		case it.Lapsed && (stands(it.Is) || it.Is == nil), it.Member && !it.Lapsed:
			return fmt.Errorf("item %q has lapsed, but has a resource", it.Name)
		}
	}
	return nil
}

func (u *subscription) checkRefusals() error {
	if !slices.IsSortedFunc(u.refusals, func(a, b refusal) int { return int(a.nonce) - int(b.nonce) }) {
		return errors.New("refusals are not sorted")
	}
	for i := range u.refusals {
		r := &u.refusals[i]
		if err := checkCargo(&r.cargo); err != nil {
			return fmt.Errorf("refusal %d: %w", r.nonce, err)
		}
		n := 0
		for range r.members {
			n++
		}
		if n == 0 || n != r.left {
			return fmt.Errorf("refusal %d has %d names, the count is %d", r.nonce, n, r.left)
		}
		for _, name := range r.lapsed {
			if it := r.Find(name); it == nil || !it.Lapsed {
				return fmt.Errorf("refusal %d lists %q as lapsed, but the item is not", r.nonce, name)
			}
		}
	}
	return nil
}

func (u *subscription) checkWithdrawing() error {
	for name, l := range u.leaving {
		switch {
		case u.Entry(name) == nil:
			return fmt.Errorf("leaving name %q has no entry", name)
		case l.Stamp == nil:
			return fmt.Errorf("leaving name %q has no stamp", name)
		case l.Body != nil && l.Body.Name != name:
			return fmt.Errorf("leaving name %q has the body of %q", name, l.Body.Name)
		case !l.until.IsZero() && (l.since.IsZero() || !l.until.After(l.since)):
			return fmt.Errorf("the removal of %q is due before its loss", name)
		case u.Kept(name) != &l.Kept:
			return fmt.Errorf("leaving name %q is not kept", name)
		}
	}
	for name := range u.AllKept {
		if u.leaving[name] == nil {
			return fmt.Errorf("kept name %q is not leaving", name)
		}
	}
	if n := u.TakeMatched(); len(n) > 0 {
		return fmt.Errorf("kept names %q were matched and not looked at", n)
	}
	return nil
}

func (s *Session) checkWaiting(u *subscription) error {
	if len(u.Noted) > 0 && !u.Watched {
		return fmt.Errorf("changed names %q are not watched", u.Noted)
	}
	w := u.waiting
	switch {
	case w == nil:
		return nil
	case w.parked && len(w.waits) == 0:
		return errors.New("parked is set, but no name waits")
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
		return fmt.Errorf("waits end at %v, recorded %v; patient waits began at %v, recorded %v", ends, w.ends, patient, w.patient)
	}
	if s.view == nil || !w.parks() || w.seen != s.inputs(u) {
		return nil // it is evaluated in the next step
	}
	for _, t := range []*xds.Type{u.first(), u.first().Warms} {
		if t != nil && s.sub(t) != nil && !s.sub(t).Watched {
			return fmt.Errorf("%d names wait for %s, which is not watched", len(w.waits), t)
		}
	}
	return nil
}

func (u *subscription) checkSaying() error {
	listed := map[string]bool{}
	for _, n := range u.Dirty {
		listed[n] = true
	}
	for e := range u.Entries() {
		if e.Dirty && !listed[e.Name] {
			return fmt.Errorf("%q is dirty, but not listed", e.Name)
		}
	}
	switch {
	case u.Anew && !u.wildcard:
		return errors.New("anew is set without a wildcard")
	case u.stated != "" && !u.typ.FullState:
		return fmt.Errorf("a type without full state has the stated version %q", u.stated)
	}
	return nil
}

func (u *subscription) checkMuted() error {
	if u.mute == nil {
		return nil
	}
	if !slices.IsSortedFunc(u.mute.list, func(a, b muting) int { return a.until.Compare(b.until) }) {
		return errors.New("mutings are not sorted")
	}
	for n, until := range u.mute.until {
		if !slices.Contains(u.mute.list, muting{n, until}) {
			return fmt.Errorf("%q is muted without an end", n)
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
	for e := range u.Entries() {
		if !e.Dirty && !u.isParked(e.Name) && u.leaving[e.Name] == nil && u.outdated(t, e.Name, e.Told) {
			return fmt.Errorf("%q differs from the view, but is not dirty", e.Name)
		}
	}
	return nil
}
