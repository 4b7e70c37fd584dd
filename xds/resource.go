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

// A Sum is a 128-bit hash of content. The sum of a table is the total of the sums of its resources,
// so the order of the resources does not matter.
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

// A Stamp is a resource without its body: the name, version, content hash and references. A server
// keeps a Stamp of each resource that a client may hold, so that it need not keep old bodies. A
// Stamp is immutable.
type Stamp struct {
	Name    string
	Version string // sent to delta clients; by default the hash of the content
	Sum     Sum    // hash of name, body, aliases and TTL; two resources with equal sums are equal

	// Refs are the resources to which this one refers. Version and Sum do not cover them. Nil means that the
	// references are not known: then ordering assumes that the resource may refer to any other. A resource
	// without references has an empty, non-nil list.
	Refs []Ref

	// Addresses are the addresses that a client binds for the resource. Version and Sum do not cover them. Nil:
	// none, or not known. It is a pointer, because few types have addresses and a server keeps many stamps.
	Addresses *[]Address
}

// A Ref is a reference to another resource, by its name or an alias. A Ref with the name [Wildcard] means
// that the resource may refer to any resource of the type.
type Ref struct {
	Type *Type
	Name string
}

// MayRefer reports whether the resource may refer to the resource of type t with this name or one of
// these aliases.
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

// A Resource is an encoded, immutable configuration object. Make it with [NewResource], or with
// wire.NewResource from a message. The zero value has no name and no type, so stores and tables refuse
// it with the error of [Resource.Check].
//
// The caller that makes a resource may set its other fields, and must call [Resource.Seal] after
// that. After the resource was passed to a store, a table or a view, nothing may change it, and any
// goroutine may read it.
type Resource struct {
	*Stamp
	Type    *Type         // its resource type; a table takes only resources of its own type
	Body    []byte        // the encoded message, sent as stored
	Aliases []string      // other names under which delta clients can subscribe to it
	TTL     time.Duration // time after which a client removes the resource if no heartbeat arrives; zero: never

	// OnDemand marks a resource that a client gets only if it subscribes to the name: a wildcard
	// does not include the resource.
	OnDemand bool

	sealed uint32 // the value of mark when Seal was called; 0: not sealed

	frames [2]atomic.Pointer[[]byte]
}

// NewResource returns a resource whose version is the hash of its content. Body is the encoded
// message, which is neither decoded nor checked. wire.NewResource makes a resource from a message
// and checks its type. The caller must not change body afterwards. To set other fields, see
// [Resource.Seal]. A nil type or an empty name is an error later, when the resource is stored.
func NewResource(t *Type, name string, body []byte) *Resource {
	r := &Resource{Stamp: &Stamp{Name: name}, Type: t, Body: body}
	r.Seal("")
	return r
}

// Copy returns a copy of the resource with its own Stamp, so that setting Refs in the copy does not change r.
func (r *Resource) Copy() *Resource {
	stamp := *r.Stamp
	return &Resource{Stamp: &stamp, Type: r.Type, Body: r.Body, Aliases: r.Aliases, TTL: r.TTL, OnDemand: r.OnDemand, sealed: r.sealed}
}

// Seal computes the sum from Name, Body, Aliases and TTL, and sets the version. An empty version
// means the hash of the content. Call Seal after these fields were set and before the resource is
// shared. The type is not part of the sum, since all resources of a table have the same type.
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
	r.Stamp = &Stamp{Name: r.Name, Version: version, Sum: s, Refs: r.Refs, Addresses: r.Addresses}
	r.sealed = r.mark()
}

// Changed reports whether Aliases, TTL or the length of Body changed after [Resource.Seal]. The sum
// of such a resource is wrong: a table that already has the resource could take the new one as
// equal. Changed is false for a resource that was not sealed.
func (r *Resource) Changed() bool { return r != nil && r.sealed != 0 && r.sealed != r.mark() }

// mark is a checksum of the fields that the sum covers, without the bytes of the body. It is never 0.
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

// Frame returns the encoding of the resource in a response of the variant. The first call makes the
// encoding with encode and stores it in the resource.
func (r *Resource) Frame(v Variant, encode func(*Resource) []byte) []byte {
	if p := r.frames[v].Load(); p != nil {
		return *p
	}
	b := encode(r)
	r.frames[v].Store(&b)
	return b
}
