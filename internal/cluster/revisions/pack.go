package revisions

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// A hash is the SHA-256 of a value.
type hash [sha256.Size]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// parseHash parses exactly the format of String.
func parseHash(s string) (h hash, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) || strings.ToLower(s) != s {
		return h, false
	}
	return hash(b), true
}

// A place is a byte range in a pack. The zero value means no place.
type place struct {
	pack      hash
	offset, n uint32
}

func (p place) encode() []byte {
	b := append(make([]byte, 0, len(p.pack)+8), p.pack[:]...)
	b = binary.BigEndian.AppendUint32(b, p.offset)
	return binary.BigEndian.AppendUint32(b, p.n)
}

func decodePlace(b []byte) (p place, ok bool) {
	if len(b) != len(p.pack)+8 {
		return p, false
	}
	n := copy(p.pack[:], b)
	p.offset, p.n = binary.BigEndian.Uint32(b[n:]), binary.BigEndian.Uint32(b[n+4:])
	return p, true
}

// in returns the bytes of the place, from the content of its pack.
func (p place) in(pack []byte) ([]byte, error) {
	if uint64(p.offset)+uint64(p.n) > uint64(len(pack)) || p.offset < uint32(packHead) {
		return nil, fmt.Errorf("%s: reference to bytes %d to %d of %d: %w", packKey(p.pack), p.offset, uint64(p.offset)+uint64(p.n), len(pack), ErrDamaged)
	}
	return pack[p.offset : p.offset+p.n : p.offset+p.n], nil
}

const (
	// packMagic is the beginning of a pack. A pack of another format has another number.
	packMagic = "chancery pack 1\n"
	// packHead is the length of packMagic and of the random bytes after it. These bytes make each
	// pack unique. So a writer never refers to a pack that a sweep deletes (sweep.go).
	packHead = len(packMagic) + 16
	// packMost is the maximum size of a pack.
	packMost = 512 << 10
)

const packPrefix = "pack/"

func packKey(h hash) string { return packPrefix + h.String() }

// A packer collects bytes into packs.
type packer struct {
	done    []packed
	open    []byte   // the pack that is being filled; nil: none
	waiting []*place // places in the open pack; settle sets their hash
}

type packed struct {
	hash hash
	data []byte
}

// put adds the result of encode to the open pack, and sets its place. The place has no hash until the
// pack is full, or settle is called. The result of encode may contain such places. So if put closes
// the pack, it calls encode again, with the hashes.
func (p *packer) put(at *place, encode func() []byte) {
	b := encode()
	if p.open != nil && len(p.open)+len(b) > packMost {
		p.settle()
		b = encode()
	}
	if p.open == nil {
		p.open = make([]byte, packHead, packHead+len(b))
		copy(p.open, packMagic)
		_, _ = rand.Read(p.open[len(packMagic):]) // never fails
	}
	*at = place{offset: uint32(len(p.open)), n: uint32(len(b))}
	p.open = append(p.open, b...)
	p.waiting = append(p.waiting, at)
}

// settle closes the open pack.
func (p *packer) settle() {
	if p.open == nil {
		return
	}
	h := hash(sha256.Sum256(p.open))
	for _, at := range p.waiting {
		at.pack = h
	}
	p.done = append(p.done, packed{h, p.open})
	p.open, p.waiting = nil, nil
}
