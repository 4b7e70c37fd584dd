package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// words returns sorted names of the given length.
func words(n, length int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%0*d", length, i))
	}
	return names
}

// bodied returns resources in order with bodies of the given sizes.
func bodied(sizes ...int) (rs []*Resource) {
	for i, n := range sizes {
		rs = append(rs, named(fmt.Sprintf("%0100d", i), strings.Repeat("x", n)))
	}
	return rs
}

func TestSplit(t *testing.T) {
	const limit = 4000
	long := named("a", "")
	long.Aliases = words(30, 100)
	for _, tt := range []struct {
		name  string
		whole *Changes
		parts int
	}{
		{"nothing", &Changes{}, 1},
		{"little of each", &Changes{Upserts: bodied(10), Removed: words(2, 10), Absent: []string{"x"}, Missing: words(2, 10)}, 1},
		{"small bodies", &Changes{Upserts: bodied(500, 500, 500, 500, 500, 500, 500)}, 2},
		{"one that is too large", &Changes{Upserts: bodied(500, 5000, 500, 3000, 3000)}, 4},
		{"nothing but large ones", &Changes{Upserts: bodied(5000, 5000, 5000)}, 3},
		{"a large one at the end", &Changes{Upserts: bodied(10, 10, 9000)}, 2},
		{"long names", &Changes{Upserts: bodied(make([]int, 100)...)}, 7},
		{"many aliases", &Changes{Upserts: []*Resource{long, long}}, 2},
		{"removals", &Changes{Removed: words(100, 94)}, 3},
		{"removals after upserts", &Changes{Upserts: bodied(3000), Removed: words(100, 94)}, 4},
		{"names without a body", &Changes{Absent: words(100, 36)}, 5},
		{"errors alone, as in SotW", &Changes{Missing: words(100, 72)}, 5},
		{"removals with errors", &Changes{Removed: words(100, 72), Missing: words(100, 72)}, 8},
		{"removals and names without a body", &Changes{Removed: []string{"a", "c", "e"}, Absent: []string{"b", "d", strings.Repeat("f", 2000)}}, 2},
		{"heartbeats", &Changes{Beats: bodied(make([]int, 100)...)}, 7},
	} {
		t.Run("DELTA-13 SAFE-4 "+tt.name, func(t *testing.T) {
			parts := tt.whole.Split(limit)
			if len(parts) != tt.parts {
				t.Errorf("%d parts, want %d", len(parts), tt.parts)
			}
			if len(parts) == 1 && parts[0] != tt.whole {
				t.Error("changes that are not split are another object, so streams cannot share it")
			}
			if again := tt.whole.Split(limit); !slices.Equal(parts, again) {
				t.Error("the parts are not shared")
			}
			split(t, tt.whole, parts, limit)
		})
	}
}

// The parts of any changes add up to the changes, in order. Only a part with a single item exceeds
// the limit.
func TestSplitRandom(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := &Changes{}
		pick := func() (names []string) {
			for range r.IntN(30) {
				names = append(names, strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(40)))
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
		if r.IntN(8) == 0 {
			for _, n := range pick() {
				c.Beats = append(c.Beats, named(n, "body"))
			}
		} else {
			for _, n := range pick() {
				c.Upserts = append(c.Upserts, named(n, strings.Repeat("x", r.IntN(300))))
			}
			gone := pick()
			c.Missing = slices.DeleteFunc(slices.Clone(gone), func(string) bool { return r.IntN(2) == 0 })
			if r.IntN(4) > 0 { // otherwise SotW, which has no removals
				for _, n := range gone {
					if r.IntN(3) > 0 {
						c.Removed = append(c.Removed, n)
					} else {
						c.Absent = append(c.Absent, n)
					}
				}
			}
		}
		limit := 1 + r.IntN(2000)
		split(t, c, c.Split(limit), limit)
		if t.Failed() {
			t.Fatalf("seed %d, limit %d", seed, limit)
		}
	}
}

// split checks the properties of the parts of any changes.
func split(t *testing.T, whole *Changes, parts []*Changes, limit int) {
	t.Helper()
	all := &Changes{}
	gone := "" // the last absent name of the parts before
	for i, p := range parts {
		all.Upserts, all.Beats = append(all.Upserts, p.Upserts...), append(all.Beats, p.Beats...)
		if len(p.Upserts)+len(p.Beats) > 0 && len(all.Removed)+len(all.Absent)+len(all.Missing) > 0 {
			t.Errorf("part %d has resources after removals", i)
		}
		all.Removed, all.Absent = append(all.Removed, p.Removed...), append(all.Absent, p.Absent...)
		all.Missing = append(all.Missing, p.Missing...)

		// All entries of an absent name are in one part, and each part has its own range of these
		// names.
		names := slices.Concat(p.Removed, p.Absent, p.Missing)
		slices.Sort(names)
		names = slices.Compact(names)
		if len(names) > 0 {
			if i > 0 && names[0] <= gone && gone != "" {
				t.Errorf("part %d has %q, which is in the range of the part before, up to %q", i, names[0], gone)
			}
			gone = names[len(names)-1]
		}

		size, items := 0, len(p.Upserts)+len(p.Beats)+len(names)
		for _, r := range p.Upserts {
			size += len(r.Body)
		}
		for _, r := range slices.Concat(p.Upserts, p.Beats) {
			size += len(r.Name) + len(r.Version)
			for _, a := range r.Aliases {
				size += len(a)
			}
		}
		for _, n := range slices.Concat(p.Removed, p.Absent, p.Absent, p.Missing) {
			size += len(n)
		}
		if size > limit && items > 1 {
			t.Errorf("part %d has %d bytes in %d items", i, size, items)
		}
		if items == 0 && len(parts) > 1 {
			t.Errorf("part %d is empty", i)
		}
	}
	if !slices.Equal(all.Upserts, whole.Upserts) || !slices.Equal(all.Beats, whole.Beats) || !slices.Equal(all.Removed, whole.Removed) ||
		!slices.Equal(all.Absent, whole.Absent) || !slices.Equal(all.Missing, whole.Missing) {
		t.Errorf("the parts together differ from the whole: %+v", parts)
	}
}

// Bytes is the total of the parts, and is computed once.
func TestChangesBytes(t *testing.T) {
	c := &Changes{Removed: []string{"x"}, Missing: []string{"x", "y"}}
	for i := range 100 {
		c.Upserts = append(c.Upserts, NewResource(Cluster, fmt.Sprintf("%03d", i), make([]byte, 1000)))
	}
	n := 0
	for _, p := range c.Split(10_000) {
		if p.Bytes() > 11_000 {
			t.Errorf("a part has %d bytes", p.Bytes())
		}
		n += p.Bytes()
	}
	if n != c.Bytes() || n < 100_000 || n > 120_000 || c.Bytes() != n {
		t.Errorf("%d bytes in parts, %d in all", n, c.Bytes())
	}
	if n := (&Changes{}).Bytes(); n != 0 {
		t.Errorf("empty changes have %d bytes", n)
	}
}
