package xds

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// A Sum is a 128-bit hash of content. Sums of resources add up to the sum of
// their table, in any order.
type Sum struct{ hi, lo uint64 }

func (s Sum) plus(o Sum) Sum {
	lo, carry := bits.Add64(s.lo, o.lo, 0)
	hi, _ := bits.Add64(s.hi, o.hi, carry)
	return Sum{hi, lo}
}

func (s Sum) minus(o Sum) Sum {
	lo, borrow := bits.Sub64(s.lo, o.lo, 0)
	hi, _ := bits.Sub64(s.hi, o.hi, borrow)
	return Sum{hi, lo}
}

// String returns 16 hexadecimal digits.
func (s Sum) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], s.hi)
	return hex.EncodeToString(b[:])
}

// A Stamp is a resource without its body: what a client may hold, and what that
// refers to. It is immutable.
type Stamp struct {
	Name    string
	Version string // told to delta clients; by default the hash of the content
	Sum     Sum    // of name, body, aliases and TTL: decides whether two differ

	// Refs are the resources this one refers to. They are no part of Version and
	// Sum. Nil means "not known", and then ordering assumes the worst; a resource
	// known to refer to nothing has an empty, non-nil list.
	Refs []Ref
}

// A Ref says that a resource refers to another, by its name or an alias. A Ref
// whose Name is [Wildcard] says that it may refer to any resource of the type:
// to which ones is not known.
type Ref struct {
	Type *Type
	Name string
}

// MayRefer reports whether the resource may refer to one of type t that is
// called name, or has one of the aliases.
func (s *Stamp) MayRefer(t *Type, name string, aliases ...string) bool {
	if s.Refs == nil {
		return true
	}
	for _, r := range s.Refs {
		if r.Type.Is(t) && (r.Name == name || r.Name == Wildcard || slices.Contains(aliases, r.Name)) {
			return true
		}
	}
	return false
}

// A Resource is an encoded, immutable configuration object. Make it by [NewResource], or of
// a message by wire.NewResource: the zero value has no name and no type, and whatever takes
// resources returns the error of its [Resource.Check].
//
// Who makes it may set its other fields, and calls [Resource.Seal] then. From when it was
// given away nothing may be changed, and everybody may read it.
type Resource struct {
	*Stamp
	Type    *Type         // what it is; it can be a resource of no other type
	Body    []byte        // the encoded message, exactly as stored
	Aliases []string      // other names that find it (delta)
	TTL     time.Duration // zero: never expires

	// OnDemand marks a resource that is found by name and part of no wildcard.
	OnDemand bool

	sealed uint32 // mark when Seal was called; 0: it was not

	frames [2]atomic.Pointer[[]byte]
}

// NewResource returns a resource of a type whose version is the hash of its content. Body is
// the encoded message, which nobody looks into: wire.NewResource makes it of a message, and
// checks its type. The caller must not change body afterwards. To set more, see
// [Resource.Seal]. A nil type and an empty name are errors where the resource is set.
func NewResource(t *Type, name string, body []byte) *Resource {
	r := &Resource{Stamp: &Stamp{Name: name}, Type: t, Body: body}
	r.Seal("")
	return r
}

// Copy returns the same resource with a stamp of its own: who sets Refs there changes nothing for who reads r.
func (r *Resource) Copy() *Resource {
	stamp := *r.Stamp
	return &Resource{Stamp: &stamp, Type: r.Type, Body: r.Body, Aliases: r.Aliases, TTL: r.TTL, OnDemand: r.OnDemand, sealed: r.sealed}
}

// Seal computes the sum after Body, Aliases or TTL were set, and the version
// unless the source supplies one. It must be called before the resource is
// shared. The type is no part of the sum: a table has one type.
func (r *Resource) Seal(version string) {
	if r.Stamp == nil {
		r.Stamp = &Stamp{}
	}
	h := sha256.New()
	field := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	field([]byte(r.Name))
	field(r.Body)
	if len(r.Aliases) > 0 || r.TTL != 0 {
		var ttl [8]byte
		binary.BigEndian.PutUint64(ttl[:], uint64(r.TTL))
		field(ttl[:])
		for _, a := range r.Aliases {
			field([]byte(a))
		}
	}
	sum := h.Sum(nil)
	s := Sum{binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:])}
	if version == "" {
		version = s.String()
	}
	r.Stamp = &Stamp{Name: r.Name, Version: version, Sum: s, Refs: r.Refs}
	r.sealed = r.mark()
}

// Changed reports whether Aliases, TTL, or the length of Body were changed after [Resource.Seal].
// What differs only in these would then be taken for what is there. A resource that was never
// sealed by Seal has not changed.
func (r *Resource) Changed() bool { return r != nil && r.sealed != 0 && r.sealed != r.mark() }

// mark differs, as good as always, if a field does that is part of the sum. It does not look into
// the body, and is never 0.
func (r *Resource) mark() uint32 {
	const prime = 16777619 // FNV-1a
	h := uint32(2166136261)
	number := func(n uint64) { h = ((h^uint32(n))*prime ^ uint32(n>>32)) * prime }
	number(uint64(len(r.Body)))
	number(uint64(r.TTL))
	for _, a := range r.Aliases {
		number(uint64(len(a)))
		for i := range len(a) {
			h = (h ^ uint32(a[i])) * prime
		}
	}
	return h | 1
}

// Frame returns the resource's encoding in a response of the variant, made by
// encode on first use and kept with the resource.
func (r *Resource) Frame(v Variant, encode func(*Resource) []byte) []byte {
	if p := r.frames[v].Load(); p != nil {
		return *p
	}
	b := encode(r)
	r.frames[v].Store(&b)
	return b
}
