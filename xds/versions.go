package xds

import (
	"iter"
	"strconv"
)

// Versions is an immutable set of stamps: a table without its bodies. A stream keeps Versions as
// the state of its client, so old bodies can be freed. The nil *Versions is empty.
type Versions struct {
	stamps tree[*Stamp]
	sum    Sum
	digits string // sum in hexadecimal: the version of a SotW response
	len    int
}

// Get returns the stamp of a name, or nil.
func (v *Versions) Get(name string) *Stamp {
	if v == nil {
		return nil
	}
	s, _ := v.stamps.get(name)
	return s
}

// Len returns the number of names.
func (v *Versions) Len() int {
	if v == nil {
		return 0
	}
	return v.len
}

// Sum returns the sum of the content.
func (v *Versions) Sum() Sum {
	if v == nil {
		return Sum{}
	}
	return v.sum
}

// MatchExtra finds stamps that together with v have the content hash in version. It tries at most
// 16 of the candidates, and at most three at a time. It returns false if no combination matches.
func (v *Versions) MatchExtra(version string, some []*Stamp) (which []*Stamp, ok bool) {
	want, err := strconv.ParseUint(version, 16, 64)
	if err != nil || len(version) != len(Sum{}.String()) {
		return nil, false
	}
	some = some[:min(len(some), 16)]
	var try func(sum Sum, from, left int) bool
	try = func(sum Sum, from, left int) bool {
		if sum.hi == want {
			return true
		}
		for i := from; left > 0 && i < len(some); i++ {
			if try(sum.plus(some[i].Sum), i+1, left-1) {
				which = append(which, some[i])
				return true
			}
		}
		return false
	}
	ok = try(v.Sum(), 0, 3)
	return which, ok
}

// All yields the stamps in no particular order.
func (v *Versions) All() iter.Seq[*Stamp] {
	return func(yield func(*Stamp) bool) { v.all(yield) }
}

// all is not inlined. Only inside this package the compiler knows that walk does not keep yield. In
// other packages, each loop would allocate memory for its body.
//
//go:noinline
func (v *Versions) all(yield func(*Stamp) bool) {
	if v != nil {
		v.stamps.root.walk(func(_ string, s *Stamp) bool { return yield(s) })
	}
}

// Since yields the stamps in which v differs from old, as (old, new), in no particular order. Nil
// means absent. If v was made from old, or old from v, the cost depends on the difference, not on
// the size.
func (v *Versions) Since(old *Versions) iter.Seq2[*Stamp, *Stamp] {
	return func(yield func(*Stamp, *Stamp) bool) { v.since(old, yield) }
}

//go:noinline // see all
func (v *Versions) since(old *Versions, yield func(*Stamp, *Stamp) bool) {
	var a, b *node[*Stamp]
	if old != nil {
		a = old.stamps.root
	}
	if v != nil {
		b = v.stamps.root
	}
	diff(a, b, 0, func(x, y *Stamp) bool { return x == y || x.Sum == y.Sum }, yield)
}
