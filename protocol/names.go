package protocol

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// An entry is what a session knows of one name of a type, where that is more
// than "the wildcard covers it, and it was told what the wildcard was told".
//
// Invariant: a name has an entry if it is subscribed or scoped, if a subscribed
// name finds it, if it is leaving, or if what was told of it is an exception to
// what the wildcard was told.
type entry struct {
	name string
	told *xds.Stamp // what the client was last told; never nil

	matched int32 // how many subscribed names find the resource of this name
	named   bool  // the client subscribes to it
	sent    bool  // something was told of it, on this stream or an earlier one
	again   bool  // tell it again, changed or not
	dirty   bool  // it may have to be told something; listed in saying.dirty
}

// tell counts it as told what the name is, and nothing is to be told again.
func (e *entry) tell(is *xds.Stamp) { e.told, e.sent, e.again = is, true, false }

// had counts it as told earlier; if it is to be told again, it still is.
func (e *entry) had(is *xds.Stamp) { e.told, e.sent = is, true }

// finds notes that the name finds others: what there is to say is said of these.
func (e *entry) finds() {
	e.again = false
	if e.told == absent {
		e.told = others
	}
}

// findsNone notes that it finds nothing any more, which the client is to be told.
func (e *entry) findsNone() { e.told, e.again = absent, true }

// repeat says whether it is told again, changed or not.
func (e *entry) repeat(again bool) { e.again = again }

// names is a set of entries in the order of their names. It is cut into chunks,
// so that one entry more or less costs the same however many there are. The zero
// value is empty. A pointer to an entry holds until the next add or remove.
type names struct {
	chunks [][]entry // each with one entry at least, and chunkMax at most
	count  int32

	last struct{ chunk, at int32 } // found: names are asked for several times, and in order
}

const chunkMax = 256

func (l *names) len() int { return int(l.count) }

// find returns the place of a name, or where it would be. It is asked for several
// times of each name that changes: so it is written out.
func (l *names) find(name string) (chunk, at int, ok bool) {
	if len(l.chunks) == 0 {
		return 0, 0, false
	}
	if chunk, at := int(l.last.chunk), int(l.last.at); chunk < len(l.chunks) {
		c := l.chunks[chunk]
		for i := at; i < min(at+2, len(c)); i++ {
			if c[i].name == name {
				l.last.at = int32(i)
				return chunk, i, true
			}
		}
	}
	lo, hi := 0, len(l.chunks) // of the last chunk that does not begin behind name
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; l.chunks[mid][0].name <= name {
			lo = mid
		} else {
			hi = mid
		}
	}
	chunk = lo
	c := l.chunks[chunk]
	for lo, hi = 0, len(c); lo < hi; {
		mid := (lo + hi) / 2
		switch order := strings.Compare(c[mid].name, name); {
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

// entry returns the entry of a name, or nil.
func (l *names) entry(name string) *entry {
	if c, i, ok := l.find(name); ok {
		return &l.chunks[c][i]
	}
	return nil
}

// entries yields all in order. The set must not change meanwhile.
func (l *names) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, c := range l.chunks {
			for i := range c {
				if !yield(&c[i]) {
					return
				}
			}
		}
	}
}

// add adds entries whose names have none, in any order. Of entries with the same
// name the last one counts.
func (l *names) add(extra ...entry) {
	if len(extra) > l.len()/8+8 {
		l.merge(extra)
		return
	}
	for _, e := range extra {
		c, i, ok := l.find(e.name)
		switch {
		case ok:
			l.chunks[c][i] = e
			continue
		case len(l.chunks) == 0:
			l.chunks = [][]entry{{e}}
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

// merge adds many at once.
func (l *names) merge(extra []entry) {
	all := make([]entry, 0, l.len()+len(extra))
	for e := range l.entries() {
		all = append(all, *e)
	}
	all = append(all, extra...)
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	n := 0
	for i := range all {
		if n > 0 && all[n-1].name == all[i].name {
			n--
		}
		all[n] = all[i]
		n++
	}
	l.fill(all[:n])
}

// fill makes the set these entries, which are in order.
func (l *names) fill(all []entry) {
	l.chunks, l.count = nil, int32(len(all))
	if len(all) <= chunkMax && len(all) > 0 {
		l.chunks = [][]entry{slices.Clip(all)}
		return
	}
	for c := range slices.Chunk(all, chunkMax/2) {
		l.chunks = append(l.chunks, slices.Clone(c))
	}
}

// remove removes the entry of a name, if there is one.
func (l *names) remove(name string) {
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

// removeFunc removes the entries that which selects. It asks once for each, in
// order.
func (l *names) removeFunc(which func(*entry) bool) {
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
	l.chunks = slices.DeleteFunc(l.chunks, func(c []entry) bool { return len(c) == 0 })
	room := 0
	for _, c := range l.chunks {
		room += cap(c)
	}
	if room > 4*l.len()+chunkMax/8 { // most of it is gone: give the memory back
		all := make([]entry, 0, l.len())
		for e := range l.entries() {
			all = append(all, *e)
		}
		l.fill(all)
	}
}
