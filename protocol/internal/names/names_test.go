package names

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("name-%05d", i))
	}
	return names
}

func entryOf(name string) Entry { return Entry{Name: name, Told: Absent} }

// The set agrees with a sorted map for all operations: with single names, many names at once and
// existing names, and when all names are removed.
func TestNamesAgreeWithMap(t *testing.T) {
	for seed := range uint64(40) {
		d := rand.New(rand.NewPCG(seed, 1))
		var l Set
		model := map[string]int32{}
		pick := func() string { return fmt.Sprintf("n%04d", d.IntN(3000)) }
		for step := range 60 {
			switch d.IntN(4) {
			case 0: // one
				e := entryOf(pick())
				e.Matched = int32(step)
				l.Add(e)
				model[e.Name] = e.Matched
			case 1: // many, some twice: the last one counts
				var extra []Entry
				for i := range d.IntN(700) {
					e := entryOf(pick())
					e.Matched = int32(i)
					extra = append(extra, e)
					model[e.Name] = e.Matched
				}
				l.Add(extra...)
			case 2:
				n := pick()
				l.Remove(n)
				delete(model, n)
			case 3: // a share, or nearly all
				of := 1 + d.IntN(4)
				which := func(name string) bool { return of == 4 || int(name[len(name)-1])%4 < of }
				if d.IntN(3) > 0 {
					continue
				}
				l.RemoveFunc(func(e *Entry) bool { return which(e.Name) })
				maps.DeleteFunc(model, func(n string, _ int32) bool { return which(n) })
			}
			if err := l.Check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			got := map[string]int32{}
			for e := range l.Entries() {
				got[e.Name] = e.Matched
			}
			if !maps.Equal(got, model) || l.Len() != len(model) {
				t.Fatalf("seed %d, step %d: %d entries of %d", seed, step, len(got), len(model))
			}
			if n := pick(); (l.Entry(n) != nil) != (func() bool { _, ok := model[n]; return ok })() {
				t.Fatalf("seed %d, step %d: %s: wrong position", seed, step, n)
			}
		}
	}
}

// A full chunk is split in two. Names on both sides of the split are found. Names before the first
// name and after the last name are not found.
func TestNamesAtChunkBoundaries(t *testing.T) {
	all := numbered(chunkMax + 1)
	for _, order := range [][]string{all, slices.Collect(func(yield func(string) bool) {
		for _, n := range slices.Backward(all) {
			if !yield(n) {
				return
			}
		}
	})} {
		var l Set
		for i, n := range order {
			l.Add(entryOf(n))
			if want := 1 + i/chunkMax; len(l.chunks) != want {
				t.Fatalf("%d chunks of %d names, want %d", len(l.chunks), i+1, want)
			}
		}
		for _, n := range all {
			if e := l.Entry(n); e == nil || e.Name != n {
				t.Fatalf("%s is not found", n)
			}
		}
		for _, n := range []string{"", "name-00000a", "name-99999", all[0][:5]} {
			if l.Entry(n) != nil {
				t.Errorf("%q is found", n)
			}
		}
		for _, n := range all[:chunkMax/2+1] { // a chunk is emptied
			l.Remove(n)
			l.Remove(n)
		}
		if err := l.Check(); err != nil || l.Len() != chunkMax/2 {
			t.Fatal(err, l.Len())
		}
	}
}

// Of several entries with the same name the last one counts, whether they are added one by one or
// at once.
func TestNamesTwice(t *testing.T) {
	twice := func() []Entry {
		a, b := entryOf("a"), entryOf("a")
		a.Matched, b.Matched = 1, 2
		return []Entry{a, b}
	}
	var few, many Set
	for _, e := range twice() {
		few.Add(entryOf("z"))
		few.Add(e)
	}
	for _, n := range numbered(500) {
		many.Add(entryOf(n))
	}
	many.Add(twice()...)
	var merged Set
	merged.merge(twice())
	for i, l := range []*Set{&few, &many, &merged} {
		if e := l.Entry("a"); e == nil || e.Matched != 2 {
			t.Errorf("%d: %+v", i, e)
		}
		if err := l.Check(); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// SAFE-1: when most of a set is removed, its memory is released.
func TestNamesGiveMemoryBack(t *testing.T) {
	var l Set
	for _, n := range numbered(20_000) {
		l.Add(entryOf(n))
	}
	l.RemoveFunc(func(e *Entry) bool { return e.Name[len(e.Name)-2:] != "00" })
	room := 0
	for _, c := range l.chunks {
		room += cap(c)
	}
	if l.Len() != 200 || room > 4*200+chunkMax/8 {
		t.Errorf("room for %d entries of %d", room, l.Len())
	}
	l.RemoveFunc(func(*Entry) bool { return true })
	if len(l.chunks) > 0 || l.Len() != 0 {
		t.Errorf("%d chunks, %d entries", len(l.chunks), l.Len())
	}
}

// SAFE-1: if 40,000 names are added two at a time, each name is copied only a few times within
// chunks, not 20,000 times.
func TestNamesTwoAtATime(t *testing.T) {
	const n = 40_000
	all := numbered(n)
	allocated := func(n int) float64 {
		return testing.AllocsPerRun(1, func() {
			var l Set
			for i := 0; i < n; i += 2 { // in no order
				l.Add(entryOf(all[(i*7919)%n]), entryOf(all[((i+1)*7919)%n]))
			}
			if l.Len() != n && n == len(all) {
				t.Fatal(l.Len())
			}
		})
	}
	// A new chunk is allocated when another is full, and grows a few times. A copy of all names at
	// each step would need 20,000 allocations.
	if got := allocated(n); got > n/4 {
		t.Errorf("%v allocations for %d names", got, n)
	}
}

// All names of a chunk are removed at once, and the names around it are still found.
func TestNamesLoseAChunk(t *testing.T) {
	for chunk := range 4 {
		var l Set
		for _, n := range numbered(4 * chunkMax) {
			l.Add(entryOf(n))
		}
		if chunk >= len(l.chunks) {
			t.Fatalf("%d chunks", len(l.chunks))
		}
		gone := map[string]bool{}
		for _, e := range l.chunks[chunk] {
			gone[e.Name] = true
		}
		l.RemoveFunc(func(e *Entry) bool { return gone[e.Name] })
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		for _, n := range numbered(4 * chunkMax) {
			if found := l.Entry(n) != nil; found == gone[n] {
				t.Fatalf("chunk %d: %s is found: %v", chunk, n, found)
			}
		}
	}
}
