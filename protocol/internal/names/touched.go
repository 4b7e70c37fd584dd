package names

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
	Dirty []string // names of entries that may have to be sent; may include names that are gone or not dirty
	All   bool     // any entry may differ from the view
	Anew  bool     // all that the wildcard covers is to be sent again
	Due   bool     // a response is to be sent even if nothing differs

	Watched bool     // names wait for names of this type and are parked
	Noted   []string // names for which others may wait, since recheck; "" if an answer came
	Epoch   uint64   // counts changes that may affect any name that waits for this type
}

// Touch records that something may have to be sent for the name of an entry.
func (l *Set) Touch(e *Entry) {
	if !e.Dirty {
		e.Dirty = true
		l.Dirty = append(l.Dirty, e.Name)
	}
	l.Note(e.Name)
}

// TouchAll records that any entry may differ from the view.
func (l *touched) TouchAll() { l.All = true }

// TakeAll reports whether any entry may differ from the view, and clears this record.
func (l *touched) TakeAll() (all bool) {
	all, l.All = l.All, false
	return all
}

// Note records a change of a name for which other names may wait.
func (l *touched) Note(names ...string) {
	if l.Watched {
		l.Noted = append(l.Noted, names...)
	}
}

// NoteAll records a change that may affect any name that waits for this type.
func (l *touched) NoteAll() { l.Epoch++ }

// Watch records that names wait for this type and are parked.
func (l *touched) Watch() { l.Watched = true }

// TakeNoted returns the noted names, and ends watch.
func (l *touched) TakeNoted() (noted []string) {
	noted = l.Noted
	l.Watched, l.Noted = false, nil
	return noted
}

// Renew sets whether all that the wildcard covers is sent again.
func (l *touched) Renew(anew bool) { l.Anew = anew }

// Owe sets whether a response is due even if nothing differs.
func (l *touched) Owe(due bool) { l.Due = due }

// Sift sorts the dirty names, and keeps those for which stays returns true. It calls stays with the
// entry of each name; nil: the entry is gone or not dirty. Add or remove no entry in stays.
func (l *Set) Sift(stays func(name string, e *Entry) bool) {
	slices.Sort(l.Dirty)
	dirty := l.Dirty[:0]
	for _, n := range slices.Compact(l.Dirty) { // an entry may have been removed and added again
		e := l.Entry(n)
		if e != nil && !e.Dirty {
			e = nil
		}
		if stays(n, e) {
			dirty = append(dirty, n)
		} else if e != nil {
			e.Dirty = false
		}
	}
	l.relist(dirty)
}

// relist replaces the list of dirty names by a shorter one in the same memory.
func (l *touched) relist(dirty []string) {
	clear(l.Dirty[len(dirty):])
	l.Dirty = dirty
	if len(dirty) == 0 {
		l.Dirty = nil
	}
}

// Untouch removes names from the dirty names.
func (l *Set) Untouch(which func(name string) bool) {
	dirty := l.Dirty[:0]
	for _, n := range l.Dirty {
		if !which(n) {
			dirty = append(dirty, n)
		} else if e := l.Entry(n); e != nil {
			e.Dirty = false
		}
	}
	l.relist(dirty)
}

// UntouchAll clears the dirty names and returns them.
func (l *Set) UntouchAll() (dirty []string) {
	dirty, l.Dirty = l.Dirty, nil
	for _, n := range dirty {
		if e := l.Entry(n); e != nil {
			e.Dirty = false
		}
	}
	return dirty
}
