package protocol

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Check returns the first invariant of a session that does not hold.
func (s *Session) Check() error {
	for i, u := range s.subs {
		if i > 0 && s.subs[i-1].typ.Rank() > u.typ.Rank() {
			return fmt.Errorf("%s comes before %s", s.subs[i-1].typ, u.typ)
		}
		for _, check := range []func() error{u.names.check, u.checkWant, u.checkMatching, u.checkRecord, u.checkSaying} {
			if err := check(); err != nil {
				return fmt.Errorf("%s: %w", u.typ, err)
			}
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

// checkResting finds what rests though it would be found otherwise if it was looked at.
func (s *Session) checkResting(u *subscription) error {
	ends := s.waitEnds(u)
	if !u.waiting.rests() || u.waiting.seen != s.sight(u) || !ends.IsZero() && !s.now.Before(ends) ||
		slices.ContainsFunc(s.subs, func(v *subscription) bool { return len(v.stirred) > 0 }) {
		return nil // it is about to be looked at
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
			continue // a world waits for others
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
	if n != l.count {
		return fmt.Errorf("%d entries, count %d", n, l.count)
	}
	return nil
}

func (u *subscription) checkWant() error {
	size := 0
	for n := range u.dropped {
		size += len(n)
	}
	if size != u.droppedSize {
		return fmt.Errorf("names of %d bytes were given up, counted are %d", size, u.droppedSize)
	}
	named := 0
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
	for _, by := range u.aliased {
		if aliases -= len(by); len(by) == 0 {
			return errors.New("nothing is listed as an alias")
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
		dealt := d.settled() && !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == passed })
		if d.parts[0].nonce <= last || dealt {
			return fmt.Errorf("delivery %d behind %d, settled %v", d.parts[0].nonce, last, dealt)
		}
		last = d.last()
		for j := range d.items[:max(len(d.items), 1)-1] {
			if d.items[j].name >= d.items[j+1].name {
				return fmt.Errorf("delivery %d: item %q behind %q", last, d.items[j+1].name, d.items[j].name)
			}
		}
	}
	if u.unacked && last != u.nonce {
		return fmt.Errorf("nonce %d is unanswered, and the newest delivery is %d", u.nonce, last)
	}
	if !slices.IsSortedFunc(u.refusals, func(a, b refusal) int { return int(a.nonce) - int(b.nonce) }) {
		return fmt.Errorf("refusals in no order")
	}
	for i := range u.refusals {
		n := 0
		for range u.refusals[i].members {
			n++
		}
		if n == 0 || n != u.refusals[i].left {
			return fmt.Errorf("refusal %d has %d names, counted are %d", u.refusals[i].nonce, n, u.refusals[i].left)
		}
	}
	for name := range u.leaving {
		if u.entry(name) == nil {
			return fmt.Errorf("%q is leaving and has no entry", name)
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
	return nil
}

// checkListed: what differs from the view is dirty or leaving.
func (u *subscription) checkListed(t *xds.Table) error {
	for e := range u.entries() {
		if !e.dirty && !u.waiting.resting(e.name) && u.leaving[e.name] == nil && u.outdated(t, e.name, e.told) {
			return fmt.Errorf("%q differs from the view and is not dirty", e.name)
		}
	}
	return nil
}
