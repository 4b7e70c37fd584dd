package protocol

import (
	"slices"
)

// A touched part lists the changes of the rows of one type. All rooms report changes here, and call
// no other room. The session drains the lists at defined points: prepare and respond read the dirty
// names (tell clears them), recheck hands the noted names to the names that wait for them.
//
// Invariant: the name of each dirty entry is in dirty. noted is empty unless watched is set. anew is
// only set with a wildcard.
type touched struct {
	dirty []string // names of entries that may have to be sent; may include names that are gone or not dirty
	all   bool     // any entry may differ from the view
	anew  bool     // all that the wildcard covers is to be sent again
	due   bool     // a response is to be sent even if nothing differs

	watched bool     // names wait for names of this type and are parked
	noted   []string // names for which others may wait, since recheck; "" if an answer came
	epoch   uint64   // counts changes that may affect any name that waits for this type
}

// touch records that something may have to be sent for the name of an entry.
func (l *names) touch(e *entry) {
	if !e.dirty {
		e.dirty = true
		l.dirty = append(l.dirty, e.name)
	}
	l.note(e.name)
}

// addTouched adds entries and touches them.
func (l *names) addTouched(extra []entry) {
	for i := range extra {
		l.touch(&extra[i])
	}
	l.add(extra...)
}

// touchAll records that any entry may differ from the view.
func (l *touched) touchAll() { l.all = true }

// takeAll reports whether any entry may differ from the view, and clears this record.
func (l *touched) takeAll() (all bool) {
	all, l.all = l.all, false
	return all
}

// note records a change of a name for which other names may wait.
func (l *touched) note(names ...string) {
	if l.watched {
		l.noted = append(l.noted, names...)
	}
}

// noteContent calls note for all names of a response, and for the empty name, because the answer
// itself may end waits.
func (l *touched) noteContent(c *cargo) {
	if !l.watched {
		return
	}
	l.note("")
	for name := range c.each {
		l.note(name)
	}
}

// noteAll records a change that may affect any name that waits for this type.
func (l *touched) noteAll() { l.epoch++ }

// watch records that names wait for this type and are parked.
func (l *touched) watch() { l.watched = true }

// takeNoted returns the noted names, and ends watch.
func (l *touched) takeNoted() (noted []string) {
	noted = l.noted
	l.watched, l.noted = false, nil
	return noted
}

// renew sets whether all that the wildcard covers is sent again.
func (l *touched) renew(anew bool) { l.anew = anew }

// owe sets whether a response is due even if nothing differs.
func (l *touched) owe(due bool) { l.due = due }

// sift sorts the dirty names, and keeps those for which stays returns true. It calls stays with the
// entry of each name; nil: the entry is gone or not dirty. Add or remove no entry in stays.
func (l *names) sift(stays func(name string, e *entry) bool) {
	slices.Sort(l.dirty)
	dirty := l.dirty[:0]
	for _, n := range slices.Compact(l.dirty) { // an entry may have been removed and added again
		e := l.entry(n)
		if e != nil && !e.dirty {
			e = nil
		}
		if stays(n, e) {
			dirty = append(dirty, n)
		} else if e != nil {
			e.dirty = false
		}
	}
	l.relist(dirty)
}

// relist replaces the list of dirty names by a shorter one in the same memory.
func (l *touched) relist(dirty []string) {
	clear(l.dirty[len(dirty):])
	l.dirty = dirty
	if len(dirty) == 0 {
		l.dirty = nil
	}
}

// untouch removes names from the dirty names.
func (l *names) untouch(which func(name string) bool) {
	dirty := l.dirty[:0]
	for _, n := range l.dirty {
		if !which(n) {
			dirty = append(dirty, n)
		} else if e := l.entry(n); e != nil {
			e.dirty = false
		}
	}
	l.relist(dirty)
}

// untouchAll clears the dirty names and returns them.
func (l *names) untouchAll() (dirty []string) {
	dirty, l.dirty = l.dirty, nil
	for _, n := range dirty {
		if e := l.entry(n); e != nil {
			e.dirty = false
		}
	}
	return dirty
}
