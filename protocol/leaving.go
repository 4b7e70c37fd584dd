package protocol

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// silence is how long a client may leave a type unanswered before others stop
// waiting for it: what it might refer to is withdrawn, what refers to it is
// sent. A NACK is no silence.
const silence = 15 * time.Second

// A leaver is a resource that the view has no more and the client still has:
// "Stale CDS clusters and related EDS endpoints (ones no longer being
// referenced) can then be removed", then being after the types that may refer
// to them have moved on.
type leaver struct {
	*xds.Resource
	seq   uint64 // the change that dropped it
	from  uint64 // the first change that the client may not be up to because of it
	since time.Time
	moved bool // something that might refer to it has moved since
}

// linger notes what the client has of u and the view has lost. It looks at the
// names touched, or at all if any may differ.
func (s *Session) linger(u *subscription, t *xds.Table, touched []xds.Names) {
	if !s.lingering(u) {
		return
	}
	maps.DeleteFunc(u.leaving, func(name string, _ leaver) bool {
		back := t.Lookup(name) != nil
		if back {
			u.suspect(name)
		}
		return back
	})
	stay := func(name string, told *xds.Stamp) bool {
		l := leaver{seq: s.seq, from: s.seq, since: s.now}
		switch {
		case real(told):
		case told == unsure && s.variant == xds.Delta: // some version of it, which need not be known
			l.Resource, l.from = &xds.Resource{Stamp: &xds.Stamp{Name: name}}, u.acked+1
			u.leave(l)
			u.entry(name).again = false // what was owed of it is lost
			return true
		default:
			return false // not with the client: it leaves at once
		}
		last := t.Departed(name)
		if last == nil || last.Sum != told.Sum {
			l.from = u.acked + 1 // it was not told the last of it
		}
		if l.Resource = s.body(u.typ, name, func(stamp *xds.Stamp) bool { return stamp.Sum == told.Sum }); l.Resource == nil {
			if l.Resource = last; last == nil {
				return false // too long ago
			}
		}
		u.leave(l)
		return true
	}
	if u.wildcard {
		var extra []entry
		for old, is := range t.Versions().Since(u.base) {
			if is == nil && u.entry(old.Name) == nil {
				extra = append(extra, entry{name: old.Name, told: old, sent: true, gone: !stay(old.Name, old)})
			}
		}
		u.insert(extra)
	}
	look := func(e *entry) {
		if t.Lookup(e.name) != nil {
			e.gone = false
		} else if !e.gone && u.lingers(e.name) == nil {
			e.gone = !stay(e.name, e.told)
		}
	}
	if touched == nil {
		for i := range u.entries {
			look(&u.entries[i])
		}
	}
	for _, names := range touched {
		for _, n := range names[u.typ.URL] {
			if e := u.entry(n); e != nil {
				look(e)
			}
		}
	}
}

// await makes assignments linger that the client asks for after the view has
// lost them, because it was told a cluster that is lost, too: "nothing that an
// ACK depends on may wait for that ACK". A cluster that was sent and lost at once
// is answered for when its assignment comes.
func (s *Session) await(u *subscription, names []string, t *xds.Table) {
	lost := func(n string) bool {
		e := u.entry(n)
		return e != nil && e.named && !real(e.told) && t.Lookup(n) == nil && u.lingers(n) == nil
	}
	if s.only != nil || !slices.ContainsFunc(names, lost) {
		return
	}
	for _, first := range s.subs {
		if !u.typ.Is(first.typ.Warms) {
			continue
		}
		for i := range first.entries {
			e := &first.entries[i]
			if !real(e.told) || s.table(first.typ).Lookup(e.name) != nil {
				continue
			}
			c := s.body(first.typ, e.name, func(stamp *xds.Stamp) bool { return stamp.Sum == e.told.Sum })
			if c == nil {
				continue
			}
			for _, ref := range c.Refs {
				if !ref.Type.Is(u.typ) || !slices.Contains(names, ref.Name) || !lost(ref.Name) {
					continue
				}
				if r := s.body(u.typ, ref.Name, func(*xds.Stamp) bool { return true }); r != nil {
					u.leave(leaver{Resource: r, seq: s.seq, from: s.seq, since: s.now})
				}
			}
		}
	}
}

// lingering reports whether resources of u stay for a while when they are lost.
func (s *Session) lingering(u *subscription) bool {
	// On a stream of its own a type without full state has no removals in SotW.
	told := s.variant == xds.Delta || u.typ.FullState
	return len(u.typ.ReferredBy()) > 0 && (s.only == nil || told && s.opts.Grace > 0)
}

func (u *subscription) leave(l leaver) {
	if u.leaving == nil {
		u.leaving = map[string]leaver{}
	}
	u.leaving[l.Name] = l
}

// unknown reports whether a name lingers whose body is not known: there is
// nothing to tell of it but that it is lost.
func (u *subscription) unknown(name string) bool {
	l := u.lingers(name)
	return l != nil && l.Sum == (xds.Sum{})
}

// lingers returns the resource of a name that is about to leave, or nil.
func (u *subscription) lingers(name string) *xds.Resource { return u.leaving[name].Resource }

func (u *subscription) leavingStamps() iter.Seq[*xds.Stamp] {
	return func(yield func(*xds.Stamp) bool) {
		for _, l := range u.leaving {
			if !yield(l.Stamp) {
				return
			}
		}
	}
}

// forgetLeaving drops what is no longer subscribed.
func (u *subscription) forgetLeaving() {
	maps.DeleteFunc(u.leaving, func(name string, _ leaver) bool { return !u.covers(name) })
}

// depart withdraws what nothing can refer to any more.
func (s *Session) depart() (progress bool) {
	for _, u := range s.subs {
		if len(u.leaving) == 0 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(u.leaving)) {
			l := u.leaving[name]
			if !s.released(u.typ, l) {
				l.moved = l.moved || s.behind(u.typ, l)
				u.leaving[name] = l
				continue
			}
			if l.moved && s.only == nil && u.walked() && s.now.Before(l.since.Add(silence)) {
				continue
			}
			delete(u.leaving, name)
			u.vanished(s.table(u.typ), name)
			if e := u.entry(name); e != nil {
				e.gone = true
				u.mark(e)
			}
			s.event(Event{Kind: Departed, Type: u.typ, Name: name, Version: l.Version})
			progress = true
		}
	}
	return progress
}

// walked reports whether the client walks from routes to clusters by name, as
// gRPC does: it acknowledges the routes first, then asks for the new cluster,
// and drops the old one by itself when it has it.
func (u *subscription) walked() bool { return u.typ.FullState && !u.wildcard }

// released reports whether every type that may refer to l has moved on: ACKed
// at or after the change that dropped it, or kept silent for too long. A stream
// of one type hears nothing of the others: "eventual consistency" has to do.
func (s *Session) released(t *xds.Type, l leaver) bool {
	if s.only != nil {
		return !s.now.Before(l.since.Add(s.opts.Grace))
	}
	for _, by := range t.ReferredBy() {
		u := s.sub(by)
		switch {
		case u == nil:
			if s.unopened() {
				return false
			}
		case u.acked >= l.seq:
		case u.refuses() || !u.open || s.now.Before(u.until(l.since)):
			return false
		default:
			s.event(Event{Kind: Waived, Type: t, By: by, Name: l.Name})
		}
	}
	return true
}

// behind reports whether a type that may refer to l is not up to its loss.
func (s *Session) behind(t *xds.Type, l leaver) bool {
	return slices.ContainsFunc(t.ReferredBy(), func(by *xds.Type) bool {
		u := s.sub(by)
		return u != nil && u.acked < l.seq
	})
}

// unopened reports whether a client that resumes may still open types: it has
// what it had of them, and refers to what it had.
func (s *Session) unopened() bool { return s.resumes && s.now.Before(s.began.Add(s.opts.Grace)) }

// until is when the wait for an answer that began at since ends: the client
// has then answered nothing for as long as silence, before and since.
func (u *subscription) until(since time.Time) time.Time {
	if u.silent.After(since) {
		since = u.silent
	}
	return since.Add(silence)
}

// refuses reports whether the client has refused what it was sent last. "Held-
// back names are not settled": nothing is withdrawn behind a NACK.
func (u *subscription) refuses() bool { return len(u.spurned)+len(u.refused) > 0 }

// reached is the change up to which a client is that holds what u shows now.
func (u *subscription) reached(seq uint64) uint64 {
	for _, l := range u.leaving {
		seq = min(seq, l.from-1)
	}
	return seq
}
