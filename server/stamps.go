package server

import (
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A stampList is an immutable list of stamps, sorted by name. The list consists of pieces. Lists
// share equal pieces, so a list with a few different stamps costs only the changed pieces.
type stampList [][]*xds.Stamp

// piece is the size of a piece after a cut. A piece has at most twice as many stamps.
const piece = 128

// piecesOf returns a list, which may share memory with sts.
func piecesOf(sts []*xds.Stamp) stampList {
	if len(sts) <= 2*piece {
		if len(sts) == 0 {
			return nil
		}
		return stampList{sts}
	}
	var l stampList
	for p := range slices.Chunk(sts, piece) {
		l = append(l, slices.Clone(p)) // so that each piece can be freed by itself
	}
	return l
}

func (l stampList) len() (n int) {
	for _, p := range l {
		n += len(p)
	}
	return n
}

// all yields the stamps in order.
func (l stampList) all(yield func(*xds.Stamp) bool) {
	for _, p := range l {
		for _, st := range p {
			if !yield(st) {
				return
			}
		}
	}
}

// flat returns all stamps in one slice, which the caller must not change.
func (l stampList) flat() []*xds.Stamp {
	if len(l) == 1 {
		return l[0]
	}
	return slices.Concat(l...)
}

// equal reports whether two lists have the same stamps, even if their pieces differ.
func (l stampList) equal(o stampList) bool {
	var a, b []*xds.Stamp
	for {
		if len(a) == 0 && len(l) > 0 {
			a, l = l[0], l[1:]
		}
		if len(b) == 0 && len(o) > 0 {
			b, o = o[0], o[1:]
		}
		n := min(len(a), len(b))
		if n == 0 {
			return len(a) == len(b)
		}
		if &a[0] != &b[0] && !slices.Equal(a[:n], b[:n]) {
			return false
		}
		a, b = a[n:], b[n:]
	}
}

// with returns the list with newer stamps in place of the stamps with the same names. The argument
// newer must be sorted.
func (l stampList) with(newer []*xds.Stamp) stampList {
	if len(l) == 0 {
		return piecesOf(newer)
	}
	out := make(stampList, 0, len(l)+1)
	for i, p := range l {
		n := len(newer)
		if i+1 < len(l) {
			n, _ = find(newer, l[i+1][0].Name)
		}
		if n == 0 {
			out = append(out, p)
			continue
		}
		out = append(out, piecesOf(override(p, newer[:n]))...)
		newer = newer[n:]
	}
	return out
}

// like returns a list of sorted stamps. It shares equal pieces with l, and no memory with sts.
func (l stampList) like(sts []*xds.Stamp) (out stampList) {
	for i := range max(len(l), 1) {
		n := len(sts)
		if i+1 < len(l) {
			n, _ = find(sts, l[i+1][0].Name)
		}
		if len(l) > 0 && slices.Equal(sts[:n], l[i]) {
			out = append(out, l[i])
		} else {
			out = append(out, piecesOf(slices.Clone(sts[:n]))...)
		}
		sts = sts[n:]
	}
	return out
}

// find returns the position of a name in sorted stamps, or where it would be inserted.
func find(sts []*xds.Stamp, name string) (int, bool) {
	return slices.BinarySearchFunc(sts, name, func(st *xds.Stamp, name string) int { return strings.Compare(st.Name, name) })
}

// override returns old with newer stamps in place of the stamps with the same names. Both lists
// must be sorted.
func override(old, newer []*xds.Stamp) []*xds.Stamp {
	size := len(old) + len(newer)
	for _, st := range newer {
		if _, ok := find(old, st.Name); ok {
			size--
		}
	}
	out := make([]*xds.Stamp, 0, size)
	for _, st := range newer {
		i, ok := find(old, st.Name)
		out = append(append(out, old[:i]...), st)
		if ok {
			i++
		}
		old = old[i:]
	}
	return append(out, old...)
}

// distinct sorts stamps by name, and removes stamps with equal content.
func distinct(sts []*xds.Stamp) []*xds.Stamp {
	slices.SortStableFunc(sts, func(a, b *xds.Stamp) int { return strings.Compare(a.Name, b.Name) })
	out := sts[:0]
	for _, st := range sts {
		i := len(out)
		for i > 0 && out[i-1].Name == st.Name && out[i-1].Sum != st.Sum {
			i--
		}
		if i == 0 || out[i-1].Name != st.Name {
			out = append(out, st)
		}
	}
	clear(sts[len(out):])
	return out
}
