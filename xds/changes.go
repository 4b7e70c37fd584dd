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
	parts []*Changes
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
		for i, r := range c.Beats { // which come without anything else
			n := len(r.Name) + overhead
			if size+n > limit && i > from {
				c.parts = append(c.parts, &Changes{Beats: c.Beats[from:i:i]})
				size, from = 0, i
			}
			size += n
		}
		if from > 0 && len(c.Beats) > 0 {
			c.parts = append(c.parts, &Changes{Beats: c.Beats[from:]})
		} else if from > 0 {
			c.parts = append(c.parts, &Changes{Upserts: c.Upserts[from:], Removed: c.Removed, Absent: c.Absent, Missing: c.Missing})
		}
	})
	if c.parts == nil {
		return []*Changes{c}
	}
	return c.parts
}

// overhead is about what a resource costs in a message besides name and body.
const overhead = 128
