// Package names stores what a session knows about single names of one type: an entry for each name
// (Entry, Set), and the lists of changed entries. All rooms of package protocol use it, and it
// imports none of them.
package names

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// An Entry has what a session knows about one name of a type, except the table that the wildcard
// subscription was told. Terms: see doc.go.
//
// Invariant: a name has an entry if it is subscribed or scoped, if a subscribed name matches it, or
// if it is leaving. A name also has an entry if its told state is different from the state in the
// wildcard's table.
type Entry struct {
	Name  string
	Told  *xds.Stamp // the state that the client was told last: a resource, absent or others; never nil
	Nonce uint64     // the first nonce of the newest response with the name; Earlier: of no response on this stream; 0: untold

	Matched int32 // number of subscribed names that match this resource by alias or collection
	Named   bool  // the client subscribes to the name
	Again   bool  // send the name again, changed or not
	Dirty   bool  // the name may have to be sent; it is in saying.dirty
}

// Finds records that the name matches other resources, which are sent instead.
func (e *Entry) Finds() {
	e.Again = false
	if e.Told == Absent {
		e.Told = Others
	}
}

// FindsNone records that the name matches no resource any more, and that this must be sent to the
// client.
func (e *Entry) FindsNone() { e.Told, e.Again = Absent, true }

// Repeat sets whether the name is sent again, changed or not.
func (e *Entry) Repeat(again bool) { e.Again = again }

// A Set is a set of entries in the order of their names. The set is stored in chunks, so that the
// cost to add or remove an entry does not depend on the size of the set. The zero value is empty. A
// pointer to an entry is valid until the next add or remove.
type Set struct {
	chunks [][]Entry // each has 1 to chunkMax entries
	count  int32

	touched // changes of these entries

	kept    map[string]*Kept // each name has an entry
	matched []string         // kept names that a subscribed name has matched, since TakeMatched

	last struct{ chunk, at int32 } // place of the last entry found: callers look up names in order, and each several times
}

const chunkMax = 256

// Len returns the number of entries.
func (l *Set) Len() int { return int(l.count) }

// find returns the place of a name, or the place where the name belongs (ok is false). The binary
// searches are written out for speed: find is called several times for each name that changes.
func (l *Set) find(name string) (chunk, at int, ok bool) {
	if len(l.chunks) == 0 {
		return 0, 0, false
	}
	if chunk, at := int(l.last.chunk), int(l.last.at); chunk < len(l.chunks) {
		c := l.chunks[chunk]
		for i := at; i < min(at+2, len(c)); i++ {
			if c[i].Name == name {
				l.last.at = int32(i)
				return chunk, i, true
			}
		}
	}
	lo, hi := 0, len(l.chunks) // search the last chunk that begins at or before name
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; l.chunks[mid][0].Name <= name {
			lo = mid
		} else {
			hi = mid
		}
	}
	chunk = lo
	c := l.chunks[chunk]
	for lo, hi = 0, len(c); lo < hi; {
		mid := (lo + hi) / 2
		switch order := strings.Compare(c[mid].Name, name); {
		case order == 0:
			l.last.chunk, l.last.at = int32(chunk), int32(mid)
			return chunk, mid, true
		case order < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return chunk, lo, false
}

// Entry returns the entry of a name, or nil.
func (l *Set) Entry(name string) *Entry {
	if c, i, ok := l.find(name); ok {
		return &l.chunks[c][i]
	}
	return nil
}

// Entries yields all entries in order. Add or remove no entry during the loop.
func (l *Set) Entries() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, c := range l.chunks {
			for i := range c {
				if !yield(&c[i]) {
					return
				}
			}
		}
	}
}

// Subscribed returns the names to which the client subscribes, in order.
func (l *Set) Subscribed() (names []string) {
	for e := range l.Entries() {
		if e.Named {
			names = append(names, e.Name)
		}
	}
	return names
}

// Add adds entries for names that have no entry yet, in any order. If several entries have the same
// name, the last one counts.
func (l *Set) Add(extra ...Entry) {
	if len(extra) > l.Len()/8+8 {
		l.merge(extra)
		return
	}
	for _, e := range extra {
		c, i, ok := l.find(e.Name)
		switch {
		case ok:
			l.chunks[c][i] = e
			continue
		case len(l.chunks) == 0:
			l.chunks = [][]Entry{{e}}
		default:
			l.chunks[c] = slices.Insert(l.chunks[c], i, e)
			if full := l.chunks[c]; len(full) > chunkMax {
				half := slices.Clone(full[chunkMax/2:])
				clear(full[chunkMax/2:])
				l.chunks[c] = full[:chunkMax/2]
				l.chunks = slices.Insert(l.chunks, c+1, half)
			}
		}
		l.count++
	}
}

// merge does the same as add, for many entries.
func (l *Set) merge(extra []Entry) {
	all := make([]Entry, 0, l.Len()+len(extra))
	for e := range l.Entries() {
		all = append(all, *e)
	}
	all = append(all, extra...)
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	n := 0
	for i := range all {
		if n > 0 && all[n-1].Name == all[i].Name {
			n--
		}
		all[n] = all[i]
		n++
	}
	l.fill(all[:n])
}

// fill replaces the set by sorted entries.
func (l *Set) fill(all []Entry) {
	l.chunks, l.count = nil, int32(len(all))
	if len(all) <= chunkMax && len(all) > 0 {
		l.chunks = [][]Entry{slices.Clip(all)}
		return
	}
	for c := range slices.Chunk(all, chunkMax/2) {
		l.chunks = append(l.chunks, slices.Clone(c))
	}
}

// Remove removes the entry of a name, if it has one.
func (l *Set) Remove(name string) {
	c, i, ok := l.find(name)
	if !ok {
		return
	}
	l.count--
	l.chunks[c] = slices.Delete(l.chunks[c], i, i+1)
	if len(l.chunks[c]) == 0 {
		l.chunks = slices.Delete(l.chunks, c, c+1)
	}
}

// RemoveFunc removes the entries for which `which` returns true. It calls `which` once for each
// entry, in order.
func (l *Set) RemoveFunc(which func(*Entry) bool) {
	removed := false
	for i, c := range l.chunks {
		was := len(c)
		n := 0
		for j := range c {
			if which(&c[j]) {
				continue
			}
			if n != j {
				c[n] = c[j]
			}
			n++
		}
		if n < was {
			removed = true
			clear(c[n:])
			l.count -= int32(was - n)
			l.chunks[i] = c[:n]
		}
	}
	if !removed {
		return
	}
	l.chunks = slices.DeleteFunc(l.chunks, func(c []Entry) bool { return len(c) == 0 })
	room := 0
	for _, c := range l.chunks {
		room += cap(c)
	}
	if room > 4*l.Len()+chunkMax/8 { // most of the memory is unused: release it
		all := make([]Entry, 0, l.Len())
		for e := range l.Entries() {
			all = append(all, *e)
		}
		l.fill(all)
	}
}
