package fair

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLoads(t *testing.T) {
	var l Loads[string]
	l.Max = 100
	set := func(p *Load[string], n int, want ...string) {
		t.Helper()
		if lost := l.Set(p, n); !slices.Equal(lost, want) {
			t.Errorf("SAFE-9 %v are lost, want %v", lost, want)
		}
	}
	big, small, good := l.Enter("stranger", "big"), l.Enter("stranger", "small"), l.Enter("good", "good")
	set(good, 20)
	set(big, 60)
	set(small, 10)
	set(good, 30)
	if n := l.All(); n != 100 {
		t.Errorf("%d in all", n)
	}
	set(good, 31, "big") // the largest item of the owner with most, although another item is newer
	set(big, 90)         // the item is evicted, so its size does not count
	if n := l.All(); n != 41 || !l.Lost(big) || l.Lost(small) {
		t.Errorf("%d in all", n)
	}
	set(small, 90, "small") // the owner with most may evict its own item
	set(good, 101, "good")
	if l.All() != 0 || len(l.owners) != 0 || l.most.Len() != 0 {
		t.Errorf("something is left: %+v", l)
	}
	old, young := l.Enter("a", "old"), l.Enter("a", "young")
	set(young, 40)
	set(old, 40)
	set(l.Enter("b", "b"), 30, "young") // the newest of equals
	l.Leave(old)
	l.Leave(old)
	if n := l.All(); n != 30 {
		t.Errorf("%d in all", n)
	}
	l.Max = 0
	set(l.Enter("c", "c"), 1<<40)
}

// After any sequence of calls, the remaining items fit into the limit, and evicted items do not
// count.
func TestLoadsQuick(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := Loads[int]{Max: 1000}
		there := map[int]*Load[int]{}
		has := map[int]int{}
		for i := range 300 {
			var p *Load[int]
			id := i
			switch keys := slices.Sorted(maps.Keys(there)); {
			case len(keys) == 0 || r.IntN(4) == 0:
				p = l.Enter(string(rune('a'+r.IntN(5))), id)
				there[id] = p
			default:
				id = keys[r.IntN(len(keys))]
				p = there[id]
				if r.IntN(5) == 0 {
					l.Leave(p)
					delete(there, id)
					delete(has, id)
					continue
				}
			}
			has[id] = r.IntN(400)
			for _, lost := range l.Set(p, has[id]) {
				delete(there, lost)
				delete(has, lost)
			}
			sum := 0
			for _, n := range has {
				sum += n
			}
			if l.All() != sum || sum > l.Max {
				t.Fatalf("SAFE-9 seed %d: %d in all, want %d", seed, l.All(), sum)
			}
			top := 0
			for name, o := range l.owners {
				if top = max(top, o.n); o.name != name || o.loads.Len() == 0 {
					t.Fatalf("seed %d: %q has %d", seed, name, o.loads.Len())
				}
			}
			if l.most.Len() > 0 && l.most.First().n != top {
				t.Fatalf("seed %d: the largest owner has %d, not %d", seed, top, l.most.First().n)
			}
		}
	}
}
