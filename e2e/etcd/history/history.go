// Package history judges what was recorded of a store, of those who committed to it, and of clients that
// moved between its servers. It is a function of the record alone: it starts nothing, asks nobody, and has no clock.
package history

import (
	"fmt"
	"maps"
	"slices"
)

// A Commit is a revision: what it changed. Contents are what tells them apart, such as hashes.
type Commit struct {
	Set     map[string]string // resource → content, which is not ""
	Removed []string
}

// A Client is what one client was told, in the order in which it was told.
type Client struct {
	Name  string
	Delta bool // each resource that it is told counts, also one that it has
	Rests bool // nobody disturbs it in the end: then it must have what the last revision has
	Seen  []Seen
}

// A Seen is a resource as a client was told it.
type Seen struct {
	Resource, Content string // "": it is gone
	By                string // which server told it, for who reads of it
}

// A Record is all that is judged.
type Record struct {
	Heads   []Commit       // the line of revisions that the store has in the end, r1 first
	Told    map[int]Commit // what writers were told to be committed, by number
	Clients []Client
}

// A Kind is what is wrong.
type Kind string

// What can be wrong.
const (
	Lost    Kind = "lost"    // a commit that its writer was told of is not in the line
	Unknown Kind = "unknown" // a client was told what no revision has
	Older   Kind = "older"   // a client was told what was replaced before what it had seen already
	Resent  Kind = "resent"  // a delta client was told what it had
	Behind  Kind = "behind"  // a client that rests has something else than the last revision

	// Lingers is what SotW cannot avoid, and counts apart: a client was told again what is removed. A server that does not know
	// the version which a client states goes on to tell what was removed a moment ago, for what the client may have refers to it.
	Lingers Kind = "lingers"
)

// A Violation is something that must not be.
type Violation struct {
	Kind   Kind
	Client string // "": of a writer
	Text   string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s %s", v.Kind, v.Client, v.Text) }

// A life is a content of a resource, from a revision on until before another.
type life struct {
	content  string
	from, to int
}

// A lifetime is all lives of a resource, one after the other, and which have a content.
type lifetime struct {
	all []life
	of  map[string][]int
}

func (l *lifetime) begin(content string, at int) {
	if n := len(l.all); n > 0 {
		l.all[n-1].to = at
	}
	l.of[content] = append(l.of[content], len(l.all))
	l.all = append(l.all, life{content, at, forever})
}

const forever = int(^uint(0) >> 1)

// Check returns all that is wrong with a record.
//
// A client may have missed any number of revisions, and of several changes only the last need be told. So what it was told
// must be a subsequence of the heads: there must be revisions, none before the one that
// precedes it, each of which has what it was told then. The earliest that can be is the one that leaves most for the rest.
func Check(r Record) []Violation {
	lives := map[string]*lifetime{}
	last := map[string]string{}
	for i, c := range r.Heads {
		for resource, content := range c.changes {
			if last[resource] == content {
				continue
			}
			l := lives[resource]
			if l == nil {
				l = &lifetime{of: map[string][]int{}}
				l.begin("", 0) // before the first time there was none
				lives[resource] = l
			}
			l.begin(content, i+1)
			last[resource] = content
		}
	}
	maps.DeleteFunc(last, func(_, content string) bool { return content == "" })
	var wrong []Violation
	for _, n := range slices.Sorted(maps.Keys(r.Told)) {
		if n < 1 || n > len(r.Heads) || !r.Told[n].equal(r.Heads[n-1]) {
			wrong = append(wrong, Violation{Lost, "", fmt.Sprintf("r%d was committed, and is not what the store has", n)})
		}
	}
	for i := range r.Clients {
		wrong = append(wrong, r.Clients[i].check(lives, last)...)
	}
	return wrong
}

func (c Commit) changes(yield func(resource, content string) bool) {
	for resource, content := range c.Set {
		if !yield(resource, content) {
			return
		}
	}
	for _, resource := range c.Removed {
		if !yield(resource, "") {
			return
		}
	}
}

func (c Commit) equal(o Commit) bool {
	return maps.Equal(c.Set, o.Set) && slices.Equal(slices.Sorted(slices.Values(c.Removed)), slices.Sorted(slices.Values(o.Removed)))
}

func (c *Client) check(lives map[string]*lifetime, last map[string]string) (wrong []Violation) {
	add := func(k Kind, format string, args ...any) {
		wrong = append(wrong, Violation{k, c.Name, fmt.Sprintf(format, args...)})
	}
	has := map[string]string{}
	at := 0 // the revision that it must have been told of at least
	for i, s := range c.Seen {
		if has[s.Resource] == s.Content {
			if c.Delta && s.Content != "" {
				add(Resent, "is told %s=%s, which it has, by %s (%d)", s.Resource, s.Content, s.By, i)
			}
			continue
		}
		has[s.Resource] = s.Content
		if s.Content == "" {
			delete(has, s.Resource)
		}
		l := lives[s.Resource]
		if l == nil {
			l = &lifetime{}
		}
		fits := slices.IndexFunc(l.of[s.Content], func(n int) bool { return l.all[n].to > at })
		switch {
		case fits >= 0:
			at = max(at, l.all[l.of[s.Content][fits]].from)
		case !c.Delta && lingers(l.all, s.Content, at):
			add(Lingers, "is told %s=%q by %s (%d), which was removed before r%d", s.Resource, s.Content, s.By, i, at)
		case len(l.of[s.Content]) > 0:
			add(Older, "is told %s=%q by %s (%d), which nothing has from r%d on, and it knew of that", s.Resource, s.Content, s.By, i, at)
		default:
			add(Unknown, "is told %s=%q by %s (%d), which no revision has", s.Resource, s.Content, s.By, i)
		}
	}
	if c.Rests && !maps.Equal(has, last) {
		for resource, content := range last {
			if has[resource] != content {
				add(Behind, "has %s=%q, and the last revision %q", resource, has[resource], content)
			}
		}
		for resource, content := range has {
			if _, ok := last[resource]; !ok {
				add(Behind, "has %s=%q, and the last revision has none", resource, content)
			}
		}
	}
	return wrong
}

// lingers reports whether a content is one that was there before a removal which may be what its server serves: that is not
// over at a revision. It is the last before that, or, of a server that missed some revisions, one that this had.
func lingers(all []life, content string, at int) bool {
	return content != "" && slices.ContainsFunc(all, func(gone life) bool {
		return gone.content == "" && gone.to > at && slices.ContainsFunc(all, func(l life) bool { return l.content == content && l.to <= gone.from })
	})
}
