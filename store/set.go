package store

import (
	"iter"
	"math/bits"
	"slices"
)

// A set is a set of watch ids. A small set is a list. A larger set is a bitmap of all watches of
// the group, if the bitmap is smaller than the list. The nil set is empty.
type set struct {
	words []uint32 // ids in no order, or the bitmap if dense
	n     uint32   // number of ids
	dense bool
}

// add adds an id below size and reports whether it is new.
func (s *set) add(id uint32, size int) bool {
	if s.has(id) {
		return false
	}
	s.n++
	if s.dense {
		(*idBits)(&s.words).add(id)
		s.shrink()
		return true
	}
	s.words = append(s.words, id)
	if s.n > 8 && int(s.n) > size/32 { // the list is longer than the bitmap
		b := make(idBits, 0, (size+31)/32)
		for _, id := range s.words {
			b.add(id)
		}
		s.words, s.dense = b, true
	}
	return true
}

// remove removes an id and reports whether the set had it.
func (s *set) remove(id uint32) bool {
	if !s.has(id) {
		return false
	}
	s.n--
	if !s.dense {
		i, last := slices.Index(s.words, id), len(s.words)-1
		s.words[i] = s.words[last]
		s.words = s.words[:last]
		return true
	}
	s.words[id/32] &^= 1 << (id % 32)
	s.shrink()
	return true
}

// shrink converts a sparse bitmap to a list. Its threshold is far below that of add, so that a set does not
// convert back and forth.
func (s *set) shrink() {
	if int(s.n)*4 < len(s.words) {
		s.words, s.dense = slices.AppendSeq(make([]uint32, 0, s.n), idBits(s.words).all()), false
	}
}

func (s *set) has(id uint32) bool {
	if s.dense {
		return int(id/32) < len(s.words) && s.words[id/32]&(1<<(id%32)) != 0
	}
	return slices.Contains(s.words, id)
}

// appendTo adds the ids of the set to b.
func (s *set) appendTo(b *idBits) {
	switch {
	case s == nil:
	case s.dense:
		b.grow(len(s.words))
		for i, word := range s.words {
			(*b)[i] |= word
		}
	default:
		for _, id := range s.words {
			b.add(id)
		}
	}
}

// idBits is a bitmap of ids.
type idBits []uint32

func (b *idBits) grow(words int) {
	*b = append(*b, make([]uint32, max(words-len(*b), 0))...)
}

func (b *idBits) add(id uint32) {
	b.grow(int(id/32) + 1)
	(*b)[id/32] |= 1 << (id % 32)
}

// all yields the ids, sorted.
func (b idBits) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i, word := range b {
			for ; word != 0; word &= word - 1 {
				if !yield(uint32(i*32 + bits.TrailingZeros32(word))) {
					return
				}
			}
		}
	}
}
