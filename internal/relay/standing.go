package relay

import "time"

// A standing decides whether removals of a type are passed on to clients. The zero value passes them on.
type standing struct {
	phase
	since time.Time // used only in phase doubted
}

type phase uint8

const (
	// settled: there are resources, and removals count.
	settled phase = iota
	// doubted: there are no resources, or most are removed at once. It counts after it has lasted for
	// some time.
	doubted
	// unusable: there are only unusable resources, so the type is not empty.
	unusable
	// away: the upstream is unreachable, so nothing can be confirmed. It overrides all others.
	away
)

// reach records whether the upstream is reachable. After it is back, its answers must be confirmed.
func (s *standing) reach(can bool) {
	switch {
	case !can:
		*s = standing{phase: away}
	case s.phase == away:
		*s = standing{phase: settled}
	}
}

// until is when the held removals are checked again.
func (s *standing) until(now time.Time, confirm time.Duration) time.Time {
	if s.phase == doubted {
		return s.since.Add(confirm)
	}
	return now.Add(confirm)
}

// holdsRemovals reports whether the removals of a type are held back for now. The source is locked.
func (k *kind) holdsRemovals(now time.Time, confirm time.Duration) bool {
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

// many is the number of resources of a type from which on the removal of more than half at once must be
// confirmed. A smaller type is often changed on purpose, and a wrong removal costs little.
const many = 20

// shrinks reports whether most of the shown resources are removed at once, as by a server that restarted
// and has not read all yet. The source is locked.
func (k *kind) shrinks() bool {
	if k.seen < many || 2*k.live >= k.seen { // true for nearly all changes
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

// hold records that removals of a type are held back, at least until a time.
func (k *kind) hold(until time.Time) {
	if k.due.IsZero() || until.Before(k.due) {
		k.due = until
	}
}

// heldTypes returns the types with held removals.
func (s *Source) heldTypes() (all []*kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.types {
		if !k.due.IsZero() {
			all = append(all, k)
		}
	}
	return all
}
