package relay

import "time"

// A standing says whether it is passed on that something of a type is gone. The zero value: it is.
type standing struct {
	phase
	since time.Time // of doubted alone
}

type phase uint8

const (
	// settled: there is something, and what is gone is gone.
	settled phase = iota
	// doubted: there is nothing, or most is gone at once: it is believed when it was so for some time on end, and while it goes on.
	doubted
	// unusable: there is nothing but what cannot be used, which is not nothing.
	unusable
	// away: the upstream cannot be reached, so nobody can confirm anything. It goes before all else.
	away
)

// reach notes whether the upstream can be reached: what it says once it is back is what is to be confirmed.
func (s *standing) reach(can bool) {
	switch {
	case !can:
		*s = standing{phase: away}
	case s.phase == away:
		*s = standing{phase: settled}
	}
}

// until is when what is kept back is looked at again.
func (s *standing) until(now time.Time, confirm time.Duration) time.Time {
	if s.phase == doubted {
		return s.since.Add(confirm)
	}
	return now.Add(confirm)
}

// holds reports whether what is gone of a type is kept back for now. The source is locked.
func (k *kind) holds(now time.Time, confirm time.Duration) bool {
	s := &k.standing
	switch {
	case k.live > 0 && !k.shrinks():
		if s.phase != away {
			*s = standing{phase: settled}
		}
		return false
	case s.phase == away:
		return true
	case k.live == 0 && len(k.unusable) > 0 && k.wild():
		*s = standing{phase: unusable}
		return true
	case s.phase != doubted:
		*s = standing{doubted, now}
	}
	return now.Before(s.since.Add(confirm))
}

// many is how many resources a type must have, of which more than half are gone at once, for that to be confirmed: fewer may well
// be what somebody wants, and little is lost.
const many = 20

// shrinks reports whether most of what is shown is gone at once, as with a server that begins again and has not read all yet.
// The source is locked.
func (k *kind) shrinks() bool {
	if k.seen < many || 2*k.live >= k.seen { // which is so of nearly all changes
		return false
	}
	gone := 0
	for _, e := range k.names {
		if e.shown != nil && e.res == nil {
			gone++
		}
	}
	return 2*gone > k.seen
}

// hold notes that something of a type is kept back until a time, at least.
func (k *kind) hold(until time.Time) {
	if k.due.IsZero() || until.Before(k.due) {
		k.due = until
	}
}

// waits are the types of which something is kept back.
func (s *Source) waits() (all []*kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.types {
		if !k.due.IsZero() {
			all = append(all, k)
		}
	}
	return all
}
