package xds

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"weak"
)

// Changes is the content of a response: the difference between two sets of resources. Changes is
// immutable, and many streams may share it.
type Changes struct {
	Upserts []*Resource // new or changed, sorted by name, except with Together
	Removed []string    // sorted; delta only

	// Beats are heartbeats: resources sent without their bodies, which restarts their TTL. If Beats
	// is not empty, all other lists are empty.
	Beats []*Resource

	// Absent are names that do not exist, for clients that read a Resource without a body as "does
	// not exist". Each name is sent as such a Resource, which also has the name as an alias. The
	// names in Absent are not in Removed. Delta only.
	Absent []string

	// Missing are names that resource_errors reports as not existing.
	Missing []string

	frames [4]struct {
		once sync.Once
		body any
	}
	made  sync.Once // the first call of Table.Since fills the lists
	split sync.Once
	sized sync.Once

	// Together is set if Upserts are in the order of [Changes.HandOver]. Such changes are sent in one message.
	// Here the field takes no memory of its own.
	Together bool

	parts []*Changes
	bytes int
}

// Bytes estimates the encoded size of the changes, with the sizes that [Changes.Split] uses. The
// estimate is computed once for all streams.
func (c *Changes) Bytes() int {
	c.sized.Do(func() {
		end := c.end()
		for at := (place{}); at != end; {
			to, n := c.next(at)
			at, c.bytes = to, c.bytes+n
		}
	})
	return c.bytes
}

// end is the position after the last item.
func (c *Changes) end() place {
	return place{len(c.Upserts), len(c.Beats), len(c.Removed), len(c.Absent), len(c.Missing)}
}

// Encoded returns the encoding of the changes for a variant, with or without TTLs. The first call
// makes the encoding with encode and stores it in the changes.
func (c *Changes) Encoded(v Variant, ttl bool, encode func(*Changes) any) any {
	f := &c.frames[v]
	if ttl {
		f = &c.frames[2+v]
	}
	f.once.Do(func() { f.body = encode(c) })
	return f.body
}

// Since returns the difference from old to the table. Streams that ask for the same difference
// share one Changes, as long as one of the streams keeps it in memory. The first stream computes
// the Changes and the others wait.
func (t *Table) Since(old *Versions) *Changes {
	c := t.shared(sinceKey{old: old})
	c.made.Do(func() { c.fill(t, old) })
	return c
}

// Whole returns all resources of the table, for a client that holds old. Streams share one Changes as with
// [Table.Since].
func (t *Table) Whole(old *Versions) *Changes {
	all := t.Since(nil)
	if t.typ == nil || !t.typ.Binds || !t.movesAddress(old) {
		return all
	}
	c := t.shared(sinceKey{old, true})
	c.made.Do(func() {
		order := all.HandOver(t.replaced(old))
		c.Upserts, c.Together = order.Upserts, order.Together
	})
	return c
}

// A sinceKey is the key of changes that streams share: the difference from old, or all resources.
type sinceKey struct {
	old   *Versions
	whole bool
}

// shared returns the changes with a key, new or in use.
func (t *Table) shared(k sinceKey) *Changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.since[k].Value()
	if c == nil {
		if t.since == nil || len(t.since) > 64 {
			t.since = map[sinceKey]weak.Pointer[Changes]{}
		}
		c = &Changes{}
		t.since[k] = weak.Make(c)
	}
	return c
}

// movesAddress reports whether a resource of old has released an address and still exists.
func (t *Table) movesAddress(old *Versions) bool {
	for was, is := range t.Versions().Since(old) {
		if was != nil && is != nil && slices.ContainsFunc(was.addresses(), func(a Address) bool { return !slices.Contains(is.addresses(), a) }) {
			return true
		}
	}
	return false
}

// replaced yields the stamps of old that the table has no longer.
func (t *Table) replaced(old *Versions) iter.Seq[*Stamp] {
	return func(yield func(*Stamp) bool) {
		for was := range t.Versions().Since(old) {
			if was != nil && !yield(was) {
				return
			}
		}
	}
}

// fill sets c to the difference from old to t.
func (c *Changes) fill(t *Table, old *Versions) {
	for was, is := range t.Versions().Since(old) {
		if is == nil {
			c.Removed = append(c.Removed, was.Name)
		} else {
			c.Upserts = append(c.Upserts, t.Lookup(is.Name))
		}
	}
	slices.Sort(c.Removed)
	slices.SortFunc(c.Upserts, func(a, b *Resource) int { return cmp.Compare(a.Name, b.Name) })
	if t.typ != nil && t.typ.Binds {
		order := c.HandOver(t.replaced(old))
		c.Upserts, c.Together = order.Upserts, order.Together
	}
}

// Split cuts the changes into parts of about limit bytes. A part has at least one item, even if
// that item is larger than the limit. Upserts come before removals, and each list stays sorted, so
// the parts cover separate ranges of names. Changes that are sent together stay one part. The parts of shared changes are shared too: all callers
// must use the same limit.
func (c *Changes) Split(limit int) []*Changes {
	if parts := c.several(limit); parts != nil {
		return parts
	}
	return []*Changes{c} // one part: this slice stays on the caller's stack
}

// several returns the parts, or nil if one part is enough.
func (c *Changes) several(limit int) []*Changes {
	c.split.Do(func() { c.parts = c.cut(limit) })
	return c.parts
}

// cut makes the parts. It returns nil if one part is enough.
func (c *Changes) cut(limit int) (parts []*Changes) {
	if c.Together {
		return nil
	}
	var from, at place
	end := c.end()
	for size := 0; at != end; {
		to, n := c.next(at)
		if size+n > limit && at != from {
			parts = append(parts, c.between(from, at))
			from, size = at, 0
		}
		at, size = to, size+n
	}
	if parts == nil {
		return nil
	}
	return append(parts, c.between(from, end))
}

// A place is a position in changes: the number of items before it in each list.
type place struct{ upserts, beats, removed, absent, missing int }

// between returns the part between two positions.
func (c *Changes) between(from, to place) *Changes {
	return &Changes{
		Upserts: c.Upserts[from.upserts:to.upserts:to.upserts],
		Beats:   c.Beats[from.beats:to.beats:to.beats],
		Removed: c.Removed[from.removed:to.removed:to.removed],
		Absent:  c.Absent[from.absent:to.absent:to.absent],
		Missing: c.Missing[from.missing:to.missing:to.missing],
	}
}

// next returns the position after the next item, and the approximate size of the item in a message.
// All entries about one name that does not exist are one item, so that a client gets the absence
// and its reason together.
func (c *Changes) next(p place) (place, int) {
	switch {
	case p.upserts < len(c.Upserts):
		r := c.Upserts[p.upserts]
		p.upserts++
		return p, r.header() + len(r.Body)
	case p.beats < len(c.Beats):
		p.beats++
		return p, c.Beats[p.beats-1].header()
	}
	removed, absent, missing := c.Removed[p.removed:], c.Absent[p.absent:], c.Missing[p.missing:]
	name := first(removed, absent, missing)
	size := 0
	if begins(removed, name) {
		p.removed++
		size += len(name) + listed
	}
	if begins(absent, name) {
		p.absent++
		size += 2*len(name) + overhead
	}
	if begins(missing, name) {
		p.missing++
		size += len(name) + overhead
	}
	return p, size
}

// first returns the smallest first name of sorted lists. At least one list must not be empty.
func first(lists ...[]string) (name string) {
	found := false
	for _, l := range lists {
		if len(l) > 0 && (!found || l[0] < name) {
			name, found = l[0], true
		}
	}
	return name
}

func begins(list []string, name string) bool { return len(list) > 0 && list[0] == name }

// header returns the approximate size of a resource in a message, without its body.
func (r *Resource) header() int {
	n := len(r.Name) + len(r.Version) + overhead
	for _, a := range r.Aliases {
		n += len(a) + listed
	}
	return n
}

const (
	overhead = 128 // estimate of the fields that are not counted, of a resource or an error
	listed   = 6   // the tag and length of a string in a list
)
