package xds

import (
	"cmp"
	"slices"
	"sync"
	"weak"
)

// Changes is what turns one set of resources into another: the content of a
// response. It is immutable and may be shared by many streams.
type Changes struct {
	Upserts []*Resource // by name
	Removed []string    // by name; delta only

	// Beats are told again without their body, so that their TTL begins anew.
	// Then there is nothing else.
	Beats []*Resource

	// Absent are names that do not exist, told as a Resource with the name as
	// its alias and no body, to clients that take this for "does not exist".
	// They are no part of Removed. Delta only.
	Absent []string

	// Missing are names of which resource_errors say that they do not exist.
	Missing []string

	frames [4]struct {
		once sync.Once
		body any
	}
	made  sync.Once // by Table.Since
	split sync.Once
	sized sync.Once
	parts []*Changes
	bytes int
}

// Bytes is about how many bytes the changes take in a message, as [Changes.Split] counts them.
// It is found once, however many streams share them.
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

// end is the place behind all items.
func (c *Changes) end() place {
	return place{len(c.Upserts), len(c.Beats), len(c.Removed), len(c.Absent), len(c.Missing)}
}

// Encoded returns the changes' encoding in a response of the variant, with TTLs
// or without, made by encode on first use and kept with the changes.
func (c *Changes) Encoded(v Variant, ttl bool, encode func(*Changes) any) any {
	f := &c.frames[v]
	if ttl {
		f = &c.frames[2+v]
	}
	f.once.Do(func() { f.body = encode(c) })
	return f.body
}

// Since returns what turns old into the table. Streams that ask for the same
// get the same Changes for as long as one of them keeps it, and the first one
// computes it while the others wait.
func (t *Table) Since(old *Versions) *Changes {
	t.mu.Lock()
	c := t.since[old].Value()
	if c == nil {
		if t.since == nil || len(t.since) > 64 {
			t.since = map[*Versions]weak.Pointer[Changes]{}
		}
		c = &Changes{}
		t.since[old] = weak.Make(c)
	}
	t.mu.Unlock()
	c.made.Do(func() { c.fill(t, old) })
	return c
}

// fill makes c what turns old into t.
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
}

// Split returns the changes in parts of about limit bytes at most, each with one
// item at least: upserts first, then what does not exist. Each part has a range
// of the names of either, which is no other part's. The parts of shared changes
// are shared, too; all callers must use the same limit.
func (c *Changes) Split(limit int) []*Changes {
	if parts := c.several(limit); parts != nil {
		return parts
	}
	return []*Changes{c} // small, so that it costs its caller nothing
}

// several returns the parts, nil if there is only one.
func (c *Changes) several(limit int) []*Changes {
	c.split.Do(func() { c.parts = c.cut(limit) })
	return c.parts
}

// cut makes the parts, nil if there is only one.
func (c *Changes) cut(limit int) (parts []*Changes) {
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

// A place in changes is how many items of each list stand before it.
type place struct{ upserts, beats, removed, absent, missing int }

// between returns the part from one place to another.
func (c *Changes) between(from, to place) *Changes {
	return &Changes{
		Upserts: c.Upserts[from.upserts:to.upserts:to.upserts],
		Beats:   c.Beats[from.beats:to.beats:to.beats],
		Removed: c.Removed[from.removed:to.removed:to.removed],
		Absent:  c.Absent[from.absent:to.absent:to.absent],
		Missing: c.Missing[from.missing:to.missing:to.missing],
	}
}

// next returns the place behind the next item, and about how many bytes that
// takes in a message. All that is told of one name that does not exist is one
// item: a client learns of it and why at once.
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

// first returns the least name of sorted lists, of which one has some.
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

// told is about what a resource takes in a message besides its body.
func (r *Resource) header() int {
	n := len(r.Name) + len(r.Version) + overhead
	for _, a := range r.Aliases {
		n += len(a) + listed
	}
	return n
}

const (
	overhead = 128 // of a resource or an error in a message: about what is not counted
	listed   = 6   // of a string in a list: its tag and length
)
