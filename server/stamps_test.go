package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// A stampList has the content of a map, after any sequence of changes. Earlier lists do not change.
func TestStamps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	sorted := func(m map[string]*xds.Stamp) (sts []*xds.Stamp) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			sts = append(sts, m[name])
		}
		return sts
	}
	for range 30 {
		var l stampList
		has := map[string]*xds.Stamp{}
		size := 1 + rnd.IntN(2000)
		for range 20 {
			newer := map[string]*xds.Stamp{}
			for range []int{1, 3, 500}[rnd.IntN(3)] {
				name := fmt.Sprint(rnd.IntN(size))
				newer[name] = &xds.Stamp{Name: name}
			}
			old, was := l, l.flat()
			was = slices.Clone(was)
			l = l.with(sorted(newer))
			maps.Copy(has, newer)
			want := sorted(has)
			if got := l.flat(); !slices.Equal(got, want) || l.len() != len(want) || !slices.Equal(slices.Collect(l.all), want) {
				t.Fatalf("%d stamps, not %d", len(got), len(want))
			}
			if !slices.Equal(old.flat(), was) {
				t.Fatal("the original list has changed")
			}
			for _, p := range l {
				if len(p) == 0 || len(p) > 2*piece {
					t.Fatalf("a piece of %d", len(p))
				}
			}
			if other := old.like(want); !other.equal(l) || !slices.Equal(old.flat(), was) {
				t.Fatal("the result of like has other stamps")
			}
			if other := piecesOf(want); !l.equal(other) || !other.equal(l) {
				t.Fatal("the list does not equal a list with the same stamps")
			}
			for _, other := range []stampList{nil, piecesOf(want[1:]), piecesOf(want[:len(want)-1]), l.with([]*xds.Stamp{{Name: want[0].Name}})} {
				if l.equal(other) || other.equal(l) {
					t.Fatal("the list equals a list with other stamps")
				}
			}
		}
	}
}

// SAFE-1: the cost of a list that is similar to another depends on the difference, for added and
// removed stamps.
func TestLikeCostsTheDifference(t *testing.T) {
	var sts []*xds.Stamp
	for i := range 20 * piece {
		sts = append(sts, &xds.Stamp{Name: fmt.Sprintf("%05d", i)})
	}
	l := piecesOf(sts)
	for what, sts := range map[string][]*xds.Stamp{
		"the same":      sts,
		"one more":      slices.Insert(slices.Clone(sts), 1000, &xds.Stamp{Name: "00999+"}),
		"another":       slices.Insert(slices.Clone(sts), 1000, &xds.Stamp{Name: "00999"}),
		"one less":      slices.Delete(slices.Clone(sts), 1000, 1001),
		"a piece less":  slices.Delete(slices.Clone(sts), 5*piece, 6*piece),
		"the last less": sts[:len(sts)-1],
	} {
		like, shared := l.like(sts), 0
		for _, p := range like {
			if slices.ContainsFunc(l, func(o []*xds.Stamp) bool { return &o[0] == &p[0] }) {
				shared++
			}
		}
		if !slices.Equal(like.flat(), sts) || shared < len(l)-1 {
			t.Errorf("%s: %d pieces of %d are shared", what, shared, len(l))
		}
	}
	for i := range l {
		if &l[i][0] == &sts[i*piece] {
			t.Error("a piece keeps the whole original slice alive")
		}
	}
	few := sts[:piece]
	if like := stampList(nil).like(few); &like[0][0] == &few[0] {
		t.Error("a list shares memory with its input")
	}
	if l.like(nil) != nil || !slices.Equal(stampList(nil).like(sts).flat(), sts) {
		t.Error("like fails for an empty list")
	}
}

// SAFE-1: a list is cut only above twice the size of a piece. A list of one piece is not copied, and equal pieces are
// shared.
func TestPiecesAreShared(t *testing.T) {
	var sts []*xds.Stamp
	for i := range 2*piece + 1 {
		sts = append(sts, &xds.Stamp{Name: fmt.Sprintf("%05d", i)})
	}
	if l := piecesOf(sts); len(l) != 3 || len(l[2]) != 1 {
		t.Errorf("%d pieces of %d stamps", len(l), len(sts))
	}
	one := piecesOf(sts[1:])
	if len(one) != 1 || &one.flat()[0] != &sts[1] {
		t.Errorf("%d pieces of %d stamps, or a copy", len(one), 2*piece)
	}
	if like := one.like(sts[1:]); len(like) != 1 || &like[0][0] != &one[0][0] {
		t.Error("an equal list of one piece is not shared")
	}
	two := stampList{sts[:3], sts[3:5]}
	if !slices.Equal(two.flat(), sts[:5]) {
		t.Errorf("%d stamps of two pieces", len(two.flat()))
	}
	if same := two.with(nil); !same.equal(two) || &same[0][0] != &sts[0] || &same[1][0] != &sts[3] {
		t.Error("a list without newer stamps has changed")
	}
}

// ADS-9: of stamps with one name, those with different content stay. A dropped stamp is not kept in memory.
func TestDistinctStamps(t *testing.T) {
	a1, a2, b := res("a", "1").Stamp, res("a", "2").Stamp, res("b", "1").Stamp
	in := []*xds.Stamp{b, a1, a2, res("a", "1").Stamp, a2, b}
	out := distinct(in)
	if !slices.Equal(out, []*xds.Stamp{a1, a2, b}) {
		t.Errorf("%v", out)
	}
	for _, st := range in[len(out):] {
		if st != nil {
			t.Errorf("%s is kept", st.Name)
		}
	}
}
