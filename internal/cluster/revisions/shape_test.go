package revisions

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

func entryOf(name string, size int) *entry {
	it := &Item{Group: "g", Resource: xds.NewResource(xds.Cluster, name, make([]byte, size))}
	return &entry{at: it.Key().position(), item: it, raw: it.encode(nil)}
}

// same reports whether two trees have the same shape and the same entries.
func same(a, b *node) bool {
	if a.isPage() != b.isPage() || a.size != b.size || a.items != b.items || a.pages != b.pages {
		return false
	}
	if a.isPage() {
		return slices.EqualFunc(a.page, b.page, func(a, b *entry) bool { return slices.Equal(a.raw, b.raw) })
	}
	return same(a.kids[0], b.kids[0]) && same(a.kids[1], b.kids[1])
}

// Equal content makes equal trees, whatever the history, and unchanged parts are shared.
func TestEqualContentMakesEqualTrees(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	have := map[string]*entry{}
	root := build(0, nil)
	for range 60 {
		byKey := map[string]write{}
		for range 1 << rng.IntN(9) {
			name := fmt.Sprint("n", rng.IntN(1000))
			e := entryOf(name, rng.IntN(4000))
			w := write{at: e.at, key: e.item.Key(), set: e}
			if rng.IntN(2) == 0 {
				w.set = nil
			}
			byKey[name] = w
		}
		var writes []write
		for name, w := range byKey {
			if writes = append(writes, w); w.set == nil {
				delete(have, name)
			} else {
				have[name] = w.set
			}
		}
		slices.SortFunc(writes, write.compare)
		root = root.apply(0, writes)
		all := make([]*entry, 0, len(have))
		for _, e := range have {
			all = append(all, e)
		}
		slices.SortFunc(all, (*entry).compare)
		if !same(root, build(0, all)) {
			t.Fatalf("%d entries: the tree differs from one built at once", len(all))
		}
	}
}

// A tree that is read from packs equals the written one, also with nested manifests.
func TestTreeRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 30, 1000, 6000} {
		all := make([]*entry, n)
		for i := range all {
			all[i] = entryOf(fmt.Sprint("n", i), 1000)
		}
		slices.SortFunc(all, (*entry).compare)
		root := build(0, all)
		var p packer
		top, below := p.tree(root, nil)
		p.settle()
		if (root.pages > manifestMost) != (len(below) > 0) {
			t.Errorf("%d pages, %d manifests below", root.pages, len(below))
		}
		packs := map[hash][]byte{}
		for _, d := range p.done {
			if packs[d.hash] = d.data; len(d.data) > packMost || sha256.Sum256(d.data) != d.hash {
				t.Errorf("a pack of %d bytes", len(d.data))
			}
		}
		var read func(depth int, at place) *node
		read = func(depth int, at place) *node {
			b, err := at.in(packs[at.pack])
			if err != nil {
				t.Fatal(err)
			}
			children, err := decodeManifest(b, at.pack)
			if err != nil || len(children) > 2*manifestMost {
				t.Fatal(err, len(children))
			}
			nodes := make([]*node, len(children))
			for i, c := range children {
				if c.below {
					nodes[i] = read(c.depth, c.at)
					continue
				}
				b, err := c.at.in(packs[c.at.pack])
				if err == nil {
					nodes[i], _, err = decodePage(b)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got, err := assemble(depth, children, nodes)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := read(0, *top); !same(got, root) {
			t.Errorf("%d entries: the read tree differs from the written one", n)
		}
	}
}

// Random bytes are errors, and do not panic.
func FuzzDecode(f *testing.F) {
	e := entryOf("a", 10)
	f.Add(e.raw)
	f.Add(encodePage([]*entry{e, entryOf("b", 1)}))
	f.Add(encodeManifest([]child{{1, false, place{hash{1}, 2, 3}}, {1, true, place{}}}))
	f.Add([]byte(`{"format":1,"number":1,"revision":"00","oldest":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, it, pieces, finish, err := decodeItem(b); err == nil {
			if pieces != nil {
				finish(nil)
			}
			if it.check() == nil {
				_, again, _, _, err := decodeItem(it.encode(nil))
				if err != nil || again.Key() != it.Key() || !again.same(it) {
					t.Errorf("%v: %+v, %+v", err, it, again)
				}
			}
		}
		_, _, _ = decodePage(b)
		_, _ = decodeHead(b)
		_, _ = decodeRevision(revisionID{hash: sha256.Sum256(b)}, b)
		if children, err := decodeManifest(b, hash{}); err == nil {
			_, _ = assemble(0, children, make([]*node, len(children)))
		}
	})
}
