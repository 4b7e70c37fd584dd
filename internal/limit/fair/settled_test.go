package fair

import (
	"math/rand/v2"
	"testing"
)

// "Streams never admitted give way before clients that answer, also behind one address." (SAFE-14)
func TestNewItemsGiveWayFirst(t *testing.T) {
	enter := func(t *testing.T, s *Shares[int], owner string, of any, item int) *Place[int] {
		t.Helper()
		p, evicted := s.Enter(owner, of, item)
		if p == nil || evicted.OK {
			t.Fatalf("%d: %v, %v evicted", item, p, evicted)
		}
		return p
	}
	t.Run("SAFE-14 an address with many settled items keeps them while another floods", func(t *testing.T) {
		s := &Shares[int]{Max: 10}
		for i := range 6 {
			s.Settle(enter(t, s, "nat", i, i))
		}
		for i := range 4 {
			enter(t, s, "flood", "one", 10+i)
		}
		if p, evicted := s.Enter("flood", "one", 14); p != nil || evicted.OK {
			t.Error("a flood evicts", evicted)
		}
		if p, evicted := s.Enter("nat", "another", 7); p == nil || evicted != (Evicted[int]{13, true}) {
			t.Error("a new item of the address:", p, evicted)
		}
	})
	t.Run("SAFE-14 behind one address the largest connection gives way", func(t *testing.T) {
		s := &Shares[int]{Max: 10}
		s.Settle(enter(t, s, "nat", "good", 0))
		for i := range 9 {
			enter(t, s, "nat", "flood", 10+i)
		}
		if p, evicted := s.Enter("nat", "flood", 19); p != nil || evicted.OK {
			t.Error("a flood evicts", evicted)
		}
		if p, evicted := s.Enter("nat", "new", 1); p == nil || evicted != (Evicted[int]{18, true}) {
			t.Error("a new connection:", p, evicted)
		}
	})
	t.Run("SAFE-14 with Rotate a flood replaces itself, oldest first", func(t *testing.T) {
		s := &Shares[int]{Max: 8, Rotate: true}
		for i := range 4 {
			s.Settle(enter(t, s, "nat", nil, i))
		}
		for i := range 4 {
			enter(t, s, "nat", nil, 10+i)
		}
		for i := range 4 {
			if p, evicted := s.Enter("nat", nil, 20+i); p == nil || evicted != (Evicted[int]{10 + i, true}) {
				t.Error("of its own owner:", p, evicted)
			}
		}
		if p, evicted := s.Enter("other", nil, 30); p == nil || evicted != (Evicted[int]{20, true}) {
			t.Error("of the owner with most:", p, evicted)
		}
		if p, evicted := s.Enter("other", nil, 31); p == nil || evicted != (Evicted[int]{21, true}) {
			t.Error("of the owner with one more:", p, evicted)
		}
		if p, evicted := s.Enter("other", nil, 32); p == nil || evicted != (Evicted[int]{30, true}) {
			t.Error("if no owner has more:", p, evicted)
		}
	})
	t.Run("SAFE-14 with Rotate a new item does not replace settled ones of its owner", func(t *testing.T) {
		s := &Shares[int]{Max: 8, Rotate: true}
		for i := range 8 {
			s.Settle(enter(t, s, "nat", nil, i))
		}
		if p, evicted := s.Enter("nat", nil, 8); p != nil || evicted.OK {
			t.Error(p, evicted)
		}
		if p, evicted := s.Enter("other", nil, 9); p == nil || evicted != (Evicted[int]{7, true}) {
			t.Error("of another owner:", p, evicted)
		}
	})
	t.Run("SAFE-14 without new items a settled item of the largest owner gives way", func(t *testing.T) {
		s := &Shares[int]{Max: 8}
		for i := range 8 {
			p := enter(t, s, "greedy", i/4, i)
			s.Settle(p)
			s.Settle(p)
		}
		p, evicted := s.Enter("other", nil, 20)
		if p == nil || evicted != (Evicted[int]{7, true}) && evicted != (Evicted[int]{3, true}) {
			t.Error(p, evicted)
		}
		if p, evicted := s.Enter("third", nil, 21); p == nil || !evicted.OK || evicted.Item == 20 {
			t.Error("one new item protects the settled ones:", p, evicted)
		}
		if p, evicted := s.Enter("fourth", nil, 22); p != nil || evicted.OK {
			t.Error("more than an eighth are new, and a settled item gives way:", p, evicted)
		}
	})
	t.Run("SAFE-14 an evicted item cannot settle", func(t *testing.T) {
		s := &Shares[int]{Max: 1}
		p := enter(t, s, "a", nil, 1)
		s.Leave(p)
		s.Settle(p)
		if s.Len() != 0 || p.Owner() != "a" {
			t.Error(s.Len(), p.Owner())
		}
	})
}

// The numbers of owners and groups are right after any steps.
func TestSettledQuick(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := &Shares[int]{Max: 1 + r.IntN(20)}
		in := map[*Place[int]]bool{}
		byItem := map[int]*Place[int]{}
		pick := func() *Place[int] {
			for p := range in {
				return p
			}
			return nil
		}
		for i := range 500 {
			switch p := pick(); {
			case p != nil && r.IntN(4) == 0:
				s.Leave(p)
				delete(in, p)
			case p != nil && r.IntN(3) == 0:
				s.Settle(p)
			default:
				name, of := string(rune('a'+r.IntN(4))), r.IntN(3)
				room := s.Room(name, of)
				p, evicted := s.Enter(name, of, i)
				if room != (p != nil) {
					t.Fatalf("seed %d: room %v, place %v", seed, room, p)
				}
				if evicted.OK {
					delete(in, byItem[evicted.Item])
				}
				if p != nil {
					in[p], byItem[i] = true, p
				}
			}
			all := 0
			for range s.All() {
				all++
			}
			if s.Len() != len(in) || all != len(in) || len(in) > s.Max {
				t.Fatalf("seed %d: %d items, %d listed, want %d of %d", seed, s.Len(), all, len(in), s.Max)
			}
			for _, tier := range []*tier[int]{&s.fresh, &s.settled} {
				n := 0
				for _, o := range tier.owners {
					m := 0
					for _, g := range o.groups {
						m += g.places.Len()
					}
					if m != o.n || m == 0 || tier.most.First().n < o.n {
						t.Fatalf("seed %d: an owner with %d items counts %d", seed, m, o.n)
					}
					n += m
				}
				if n != tier.n {
					t.Fatalf("seed %d: %d items count %d", seed, n, tier.n)
				}
			}
		}
	}
}
