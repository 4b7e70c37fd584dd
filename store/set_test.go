package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// A set agrees with a map while it grows to a bitmap and shrinks again.
func TestSetAgreesWithMap(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		size := 1 + rng.IntN(3000)
		var s set
		m := map[uint32]bool{}
		turns, lists := 0, !s.dense
		for _, likely := range []int{90, 10, 60, 5} { // percent of additions
			for range 2000 {
				id := uint32(rng.IntN(size))
				if rng.IntN(3) == 0 {
					id %= 40
				}
				if rng.IntN(100) < likely {
					if got := s.add(id, size); got == m[id] {
						t.Fatalf("seed %d: add(%d) = %v", seed, id, got)
					}
					m[id] = true
				} else {
					if got := s.remove(id); got != m[id] {
						t.Fatalf("seed %d: remove(%d) = %v", seed, id, got)
					}
					delete(m, id)
				}
				if s.dense == lists {
					turns, lists = turns+1, !s.dense
				}
			}
			b := idBits{1 << 31}
			s.appendTo(&b)
			want := maps.Clone(m)
			want[31] = true
			if got := slices.Collect(b.all()); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Fatalf("seed %d: got %v, want %v", seed, got, slices.Sorted(maps.Keys(want)))
			}
			if int(s.n) != len(m) || len(s.words) > max(9, 4*len(m)+1, (size+31)/32) {
				t.Fatalf("seed %d: %d ids in %d words; want %d ids", seed, s.n, len(s.words), len(m))
			}
		}
		if size > 2000 && turns == 0 {
			t.Fatalf("seed %d: the set was always a list", seed)
		}
	}
	var s *set
	var b idBits
	if s.appendTo(&b); len(b) != 0 {
		t.Error("the nil set has ids")
	}
}

// A few watches in a set that was made for many take little memory.
func TestSetShrinks(t *testing.T) {
	var s set
	for id := range uint32(100) {
		s.add(id, 100)
	}
	s.add(1_000_000, 1_000_001)
	if s.dense || len(s.words) != 101 {
		t.Errorf("%d ids are in %d words", s.n, len(s.words))
	}
}

// The index drops keys without a watch, after any additions and removals. A watch keeps few keys that it
// removed.
func TestIndexDropsUnusedKeys(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		st := New()
		var watches []*Watch
		wants := map[*Watch]map[string]bool{}
		for range 2000 {
			if len(watches) == 0 || rng.IntN(30) == 0 {
				w := watchtest.Open(t, st, nil)
				watches, wants[w] = append(watches, w), map[string]bool{}
			}
			i := rng.IntN(len(watches))
			w := watches[i]
			if rng.IntN(40) == 0 {
				w.Close()
				watches = slices.Delete(watches, i, i+1)
				delete(wants, w)
				continue
			}
			var added, removed []string
			for range rng.IntN(20) {
				name := fmt.Sprint("n", rng.IntN(100))
				if rng.IntN(2) == 0 {
					removed = append(removed, name)
				} else {
					added = append(added, name)
				}
			}
			w.Interested(xds.Cluster, false, added, removed)
			for _, n := range removed {
				delete(wants[w], n)
			}
			for _, n := range added {
				wants[w][n] = true
			}
			if w.live != len(wants[w]) || len(w.keys) > 2*w.live+16 {
				t.Fatalf("seed %d: %d keys, %d of them live; want %d", seed, len(w.keys), w.live, len(wants[w]))
			}
			names := xds.Names{xds.Cluster.URL: {fmt.Sprint("n", rng.IntN(100))}}
			for w := range wants {
				got := slices.Contains(slices.Collect(w.group.index.touched([]xds.Names{names}).all()), w.id)
				if want := wants[w][names[xds.Cluster.URL][0]]; got != want {
					t.Fatalf("seed %d: %v is wanted: %v, want %v", seed, names, got, want)
				}
			}
		}
		for _, w := range watches {
			w.Close()
		}
		if len(watches) > 0 {
			if x := &watches[0].group.index; len(x.wanted) != 0 || len(x.free) != len(x.watches) {
				t.Errorf("seed %d: %d names and %d watches are left", seed, len(x.wanted), len(x.watches)-len(x.free))
			} else if slices.ContainsFunc(x.watches, func(w *Watch) bool { return w != nil }) {
				t.Errorf("seed %d: closed watches are kept", seed)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	seen := map[uint64]string{}
	for _, typ := range xds.Types() {
		for _, name := range []string{"", "*", "a", "b", typ.URL, xds.Cluster.URL} {
			k, what := key(typeKey(typ.URL), name), typ.Short+" "+name
			if other, ok := seen[k]; ok && other != what {
				t.Errorf("%s and %s have the same key", what, other)
			}
			seen[k] = what
		}
	}
}

// A sparse bitmap becomes a list.
func TestSparseBitmapBecomesList(t *testing.T) {
	var s set
	for id := range uint32(6400) {
		s.add(id, 6400)
	}
	if !s.dense {
		t.Fatal("6400 of 6400 are a list")
	}
	for id := range uint32(6390) {
		s.remove(id)
	}
	if s.dense || cap(s.words) > 64 {
		t.Errorf("%d ids are in %d words", s.n, cap(s.words))
	}
}
