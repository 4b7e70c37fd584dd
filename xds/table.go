package xds

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"weak"
)

// Versions is an immutable set of stamps: a table without its bodies. It is
// what a client may hold, so keeping one does not keep old bodies alive. The
// nil *Versions is empty.
type Versions struct {
	stamps tree[*Stamp]
	sum    Sum
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

// All yields the stamps in no particular order.
func (v *Versions) All() iter.Seq[*Stamp] {
	return func(yield func(*Stamp) bool) {
		if v != nil {
			v.stamps.root.walk(func(_ string, s *Stamp) bool { return yield(s) })
		}
	}
}

// Since yields the stamps in which v differs from old, as (old, new) with nil
// for "absent", in no particular order. It costs the difference, not the size,
// when one was made from the other.
func (v *Versions) Since(old *Versions) iter.Seq2[*Stamp, *Stamp] {
	return func(yield func(*Stamp, *Stamp) bool) {
		var a, b *node[*Stamp]
		if old != nil {
			a = old.stamps.root
		}
		if v != nil {
			b = v.stamps.root
		}
		diff(a, b, 0, func(x, y *Stamp) bool { return x == y || x.Sum == y.Sum },
			func(_ string, x, y *Stamp, _, _ bool) bool { return yield(x, y) })
	}
}

// A Table is the immutable set of resources of one type in a view. It is safe
// for concurrent use; the zero value is empty.
type Table struct {
	versions *Versions
	bodies   tree[*Resource]
	aliases  tree[[]string] // alias → names that have it
	departed tree[*Resource]
	leaving  []string // names in departed, oldest first
	version  string   // supplied by the source; empty: the sum

	mu    sync.Mutex // guards what follows; held for memory only
	since map[*Versions]weak.Pointer[Changes]
}

var empty Table

// keepDeparted is how many removed resources a table remembers.
const keepDeparted = 16384

// With returns a table with the resources set and the names removed. A
// resource set at the content it has stays as it is, so the result is t itself
// if nothing changes.
func (t *Table) With(set []*Resource, remove ...string) *Table {
	n := &Table{versions: &Versions{}, bodies: t.bodies, aliases: t.aliases, departed: t.departed, leaving: t.leaving}
	if t.versions != nil {
		*n.versions = *t.versions
	}
	changed := false
	for _, name := range remove {
		changed = n.remove(name) || changed
	}
	for _, r := range set {
		changed = n.set(r) || changed
	}
	if !changed {
		return t
	}
	n.trim()
	return n
}

func (t *Table) set(r *Resource) bool {
	v := t.versions
	old, ok := t.bodies.get(r.Name)
	if ok {
		if old.Sum == r.Sum && old.Version == r.Version && slices.Equal(old.Refs, r.Refs) {
			return false
		}
		t.alias(old, false)
		v.sum, v.len = v.sum.minus(old.Sum), v.len-1
	}
	v.stamps, v.sum, v.len = v.stamps.with(r.Name, r.Stamp), v.sum.plus(r.Sum), v.len+1
	t.bodies = t.bodies.with(r.Name, r)
	t.departed = t.departed.without(r.Name)
	t.alias(r, true)
	return true
}

func (t *Table) remove(name string) bool {
	old, ok := t.bodies.get(name)
	if !ok {
		return false
	}
	v := t.versions
	v.stamps, v.sum, v.len = v.stamps.without(name), v.sum.minus(old.Sum), v.len-1
	t.bodies = t.bodies.without(name)
	t.alias(old, false)
	t.departed = t.departed.with(name, old)
	t.leaving = append(slices.Clip(t.leaving), name)
	return true
}

func (t *Table) alias(r *Resource, add bool) {
	for _, a := range r.Aliases {
		names, _ := t.aliases.get(a)
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == r.Name })
		if add {
			names = append(names, r.Name)
		}
		if len(names) == 0 {
			t.aliases = t.aliases.without(a)
		} else {
			t.aliases = t.aliases.with(a, names)
		}
	}
}

func (t *Table) trim() {
	if d := len(t.leaving) - keepDeparted; d > 0 {
		for _, name := range t.leaving[:d] {
			t.departed = t.departed.without(name)
		}
		t.leaving = slices.Clone(t.leaving[d:])
	}
}

// Forget returns the table without its memory of departed resources.
func (t *Table) Forget() *Table {
	if len(t.leaving) == 0 {
		return t
	}
	return &Table{versions: t.versions, bodies: t.bodies, aliases: t.aliases, version: t.version}
}

// WithVersion returns the table with a version that its source supplies
// instead of the hash of the content. An empty string restores the hash.
func (t *Table) WithVersion(version string) *Table {
	if t.version == version {
		return t
	}
	return &Table{versions: t.versions, bodies: t.bodies, aliases: t.aliases, departed: t.departed, leaving: t.leaving, version: version}
}

// Version is the type's version: by default a hash that depends only on the
// content, so equal content has equal versions on every replica.
func (t *Table) Version() string {
	if t.version != "" {
		return t.version
	}
	return t.Versions().Sum().String()
}

// Hashed reports whether Version is the hash of the content, so that equal
// versions prove equal content.
func (t *Table) Hashed() bool { return t.version == "" }

// VersionWith is the version of the table together with resources that it does
// not have.
func (t *Table) VersionWith(extra iter.Seq[*Stamp]) string {
	sum, more := t.Versions().Sum(), false
	for s := range extra {
		sum, more = sum.plus(s.Sum), true
	}
	if !more {
		return t.Version()
	}
	return sum.String()
}

// Versions returns the table without its bodies.
func (t *Table) Versions() *Versions { return t.versions }

// Len returns the number of resources.
func (t *Table) Len() int { return t.versions.Len() }

// Lookup returns the resource with the name, or nil.
func (t *Table) Lookup(name string) *Resource {
	r, _ := t.bodies.get(name)
	return r
}

// Aliased returns the names of the resources that have the alias.
func (t *Table) Aliased(alias string) []string {
	names, _ := t.aliases.get(alias)
	return names
}

// Departed returns a resource that the table had lately and has no more, or
// nil. It lets a stream withdraw late what others may still refer to.
func (t *Table) Departed(name string) *Resource {
	r, _ := t.departed.get(name)
	return r
}

// All yields the resources in no particular order.
func (t *Table) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		t.bodies.root.walk(func(_ string, r *Resource) bool { return yield(r) })
	}
}

// Changes is what turns one set of resources into another: the content of a
// response. It is immutable and may be shared by many streams.
type Changes struct {
	Upserts []*Resource // by name
	Removed []string    // by name; delta only

	frames [2]struct {
		once sync.Once
		body any
	}
	split sync.Once
	parts []*Changes
}

// Encoded returns the changes' encoding in a response of the variant, made by
// encode on first use and kept with the changes.
func (c *Changes) Encoded(v Variant, encode func(*Changes) any) any {
	f := &c.frames[v]
	f.once.Do(func() { f.body = encode(c) })
	return f.body
}

// Since returns what turns old into the table. Streams that ask for the same
// get the same Changes for as long as one of them keeps it.
func (t *Table) Since(old *Versions) *Changes {
	t.mu.Lock()
	c := t.since[old].Value()
	t.mu.Unlock()
	if c != nil {
		return c
	}
	c = t.changes(old)
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.since[old].Value(); other != nil {
		return other
	}
	if t.since == nil || len(t.since) > 64 {
		t.since = map[*Versions]weak.Pointer[Changes]{}
	}
	t.since[old] = weak.Make(c)
	return c
}

func (t *Table) changes(old *Versions) *Changes {
	c := &Changes{}
	for was, is := range t.Versions().Since(old) {
		if is == nil {
			c.Removed = append(c.Removed, was.Name)
		} else {
			c.Upserts = append(c.Upserts, t.Lookup(is.Name))
		}
	}
	slices.Sort(c.Removed)
	slices.SortFunc(c.Upserts, func(a, b *Resource) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

// Split returns the changes in parts of about limit bytes at most, each with
// one resource at least; the removals are in the last. The parts of shared
// changes are shared, too; all callers must use the same limit.
func (c *Changes) Split(limit int) []*Changes {
	c.split.Do(func() {
		size, from := 0, 0
		for i, r := range c.Upserts {
			n := len(r.Body) + len(r.Name) + overhead
			if size+n > limit && i > from {
				c.parts = append(c.parts, &Changes{Upserts: c.Upserts[from:i:i]})
				size, from = 0, i
			}
			size += n
		}
		if from > 0 {
			c.parts = append(c.parts, &Changes{Upserts: c.Upserts[from:], Removed: c.Removed})
		}
	})
	if c.parts == nil {
		return []*Changes{c}
	}
	return c.parts
}

// overhead is about what a resource costs in a message besides name and body.
const overhead = 128
