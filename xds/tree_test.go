package xds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// collide clears all bits of hashes outside the mask during the test, so that names meet deep in the tree
// or have equal hashes.
func collide(t testing.TB, mask uint64) {
	real := hash
	hash = func(name string) uint64 { return real(name) & mask }
	t.Cleanup(func() { hash = real })
}

// masks for names with different hashes, with long common prefixes, in lists below the last level, and all
// in one list.
var masks = []uint64{1<<64 - 1, 0xf00000000000000f, 0x3, 0}

// shape prints the whole tree: trees with the same shape are interchangeable.
func (n *node[V]) shape() string {
	if n == nil {
		return "-"
	}
	var out []string
	for _, s := range n.slots {
		if s.sub != nil {
			out = append(out, s.sub.shape())
		} else {
			out = append(out, fmt.Sprint(s.name, "=", s.value))
		}
	}
	if n.bitmap == 0 { // the order of a list does not matter
		slices.Sort(out)
	}
	return fmt.Sprintf("%04x(%s)", n.bitmap, strings.Join(out, " "))
}

func build(m map[string]int) tree[int] {
	var edits []edit[int]
	for name, v := range m {
		edits = append(edits, edit[int]{hash: hash(name), name: name, value: v})
	}
	return tree[int]{}.apply(ordered(edits))
}

// After random edits, one at a time or many at once, the tree agrees with a map. It has the shape of a tree
// that is built in one step, and earlier trees do not change.
func TestTreeAgreesWithMap(t *testing.T) {
	for _, mask := range masks {
		t.Run(fmt.Sprintf("mask %x", mask), func(t *testing.T) {
			collide(t, mask)
			for seed := range uint64(50) {
				rng := rand.New(rand.NewPCG(seed, mask))
				tr, m := tree[int]{}, map[string]int{}
				var before []string
				var trees []tree[int]
				for step := range 60 {
					trees, before = append(trees, tr), append(before, tr.root.shape())
					var edits []edit[int]
					for range 1 + rng.IntN(1+rng.IntN(20)) {
						name, v := fmt.Sprint("n", rng.IntN(40)), rng.IntN(5)
						gone := rng.IntN(2) == 0
						edits = append(edits, edit[int]{hash: hash(name), name: name, value: v, gone: gone})
						if gone {
							delete(m, name)
						} else {
							m[name] = v
						}
					}
					tr = tr.apply(ordered(edits))
					got := map[string]int{}
					tr.root.walk(func(name string, v int) bool { got[name] = v; return true })
					if !maps.Equal(got, m) {
						t.Fatalf("seed %d, step %d: got %v, want %v", seed, step, got, m)
					}
					for i := range 40 {
						name := fmt.Sprint("n", i)
						v, ok := tr.get(name)
						if want, has := m[name]; v != want || ok != has {
							t.Fatalf("seed %d, step %d: get(%s) = %d, %v; want %d, %v", seed, step, name, v, ok, want, has)
						}
					}
					if got, want := tr.root.shape(), build(m).root.shape(); got != want {
						t.Fatalf("seed %d, step %d: the shape depends on history:\n%s\n%s", seed, step, got, want)
					}
				}
				for i, tr := range trees {
					if got := tr.root.shape(); got != before[i] {
						t.Fatalf("seed %d: tree %d was changed:\n%s\n%s", seed, i, got, before[i])
					}
				}
			}
		})
	}
}

func TestTreeUnchanged(t *testing.T) {
	for _, mask := range masks {
		collide(t, mask)
		m := map[string]int{}
		for i := range 50 {
			m[fmt.Sprint("n", i)] = i
		}
		tr := build(m)
		for i := range 50 {
			if got := tr.without(fmt.Sprint("absent", i)); got != tr {
				t.Fatalf("mask %x: removing what is absent makes another tree", mask)
			}
		}
		for i := range 50 {
			tr = tr.without(fmt.Sprint("n", i))
		}
		if tr.root != nil {
			t.Fatalf("mask %x: an empty tree has the root %s", mask, tr.root.shape())
		}
	}
}

func TestTreeDiff(t *testing.T) {
	for _, mask := range masks {
		t.Run(fmt.Sprintf("mask %x", mask), func(t *testing.T) {
			collide(t, mask)
			for seed := range uint64(300) {
				rng := rand.New(rand.NewPCG(seed, mask))
				a, b := map[string]int{}, map[string]int{}
				for range rng.IntN(40) {
					a[fmt.Sprint("n", rng.IntN(40))] = 1 + rng.IntN(3)
				}
				for range rng.IntN(40) {
					b[fmt.Sprint("n", rng.IntN(40))] = 1 + rng.IntN(3)
				}
				x, y := build(a), build(b)
				if seed%2 == 0 { // y is made from x, so that they share structure
					var edits []edit[int]
					for name := range a {
						edits = append(edits, edit[int]{hash: hash(name), name: name, gone: true})
					}
					for name, v := range b {
						edits = append(edits, edit[int]{hash: hash(name), name: name, value: v})
					}
					y = x.apply(ordered(edits))
				}
				var got, want []string
				diff(x.root, y.root, 0, func(v, w int) bool { return v == w }, func(v, w int) bool {
					got = append(got, fmt.Sprint(v, "→", w))
					return true
				})
				for i := range 40 {
					name := fmt.Sprint("n", i)
					if a[name] != b[name] {
						want = append(want, fmt.Sprint(a[name], "→", b[name]))
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: got %v, want %v", seed, got, want)
				}
				for stop := range want {
					n := 0
					diff(x.root, y.root, 0, func(v, w int) bool { return v == w }, func(int, int) bool { n++; return n <= stop })
					if n != stop+1 {
						t.Fatalf("seed %d: f was called %d times after it stopped at %d", seed, n, stop+1)
					}
				}
			}
		})
	}
}

// The cost of a comparison depends on the difference: a tree of 10,000 names and its copy with one edit
// differ in one path.
func TestTreeSharing(t *testing.T) {
	m := map[string]int{}
	for i := range 10_000 {
		m[fmt.Sprint("n", i)] = i
	}
	a := build(m)
	b := a.with("n77", -1)
	compared := 0
	diff(a.root, b.root, 0, func(v, w int) bool { compared++; return v == w }, func(int, int) bool { return true })
	if compared > 16*maxDepth {
		t.Errorf("%d values were compared for one edit in 10,000", compared)
	}
}

func (t tree[V]) with(name string, v V) tree[V] {
	return t.apply([]edit[V]{{hash: hash(name), name: name, value: v}})
}
