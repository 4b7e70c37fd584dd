// Package history checks the record of a revision store, of the writers that committed to it, and of clients
// that moved between its servers. It is a pure function of the record.
package history

import (
	"fmt"
	"maps"
	"slices"
)

// A Commit is the changes of a revision. A content is a hash or another text that identifies it.
type Commit struct {
	Set     map[string]string // resource → content; never ""
	Removed []string
}

// A Client has the resources that a client was sent, in their order.
type Client struct {
	Name  string
	Delta bool // a resource that the client has must not be sent again
	Rests bool // the client was connected to the end: it must have the content of the last revision
	Seen  []Seen
}

// A Seen is a resource as the client received it.
type Seen struct {
	Resource, Content string // Content is "" for a removal
	By                string // the server that sent it
}

// A Record is the input of [Check].
type Record struct {
	Heads   []Commit       // the revisions of the store in the end, r1 first
	Told    map[int]Commit // commits that the store acknowledged to writers, by revision number
	Clients []Client
}

// A Kind is the kind of a violation.
type Kind string

// The kinds of violations.
const (
	Lost    Kind = "lost"    // an acknowledged commit is not in the store
	Unknown Kind = "unknown" // a client was sent a content that no revision has
	Older   Kind = "older"   // a client was sent a content that was replaced before one that it has seen
	Resent  Kind = "resent"  // a delta client was sent a content that it has
	Behind  Kind = "behind"  // a resting client does not have the content of the last revision

	// Lingers is counted apart, because SotW cannot avoid it: a client was sent a removed resource again. A server
	// that does not know the version of a client keeps sending a recently removed resource, because a resource of
	// the client may refer to it.
	Lingers Kind = "lingers"
)

// A Violation is a broken rule.
type Violation struct {
	Kind   Kind
	Client string // "" if a writer is affected
	Text   string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s %s", v.Kind, v.Client, v.Text) }

// A life is a period, in revisions, in which a resource has one content; to is exclusive.
type life struct {
	content  string
	from, to int
}

// A lifetime is the sequence of lives of a resource, and the indexes of the lives with a content.
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

// Check returns the violations in a record.
//
// A client may miss any number of revisions, and of several changes only the last need be sent. So its resources
// must be a subsequence of the heads: for each there is a revision with this content, and these revisions never
// go backwards. Check takes the earliest possible revision each time, which leaves the most for the rest.
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
				l.begin("", 0) // the resource did not exist
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
			wrong = append(wrong, Violation{Lost, "", fmt.Sprintf("r%d was acknowledged, but the store has another commit", n)})
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
	at := 0 // the earliest revision that the client can be at
	for i, s := range c.Seen {
		if has[s.Resource] == s.Content {
			if c.Delta && s.Content != "" {
				add(Resent, "is sent %s=%s, which it has, by %s (%d)", s.Resource, s.Content, s.By, i)
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
			add(Lingers, "is sent %s=%q by %s (%d), which was removed before r%d", s.Resource, s.Content, s.By, i, at)
		case len(l.of[s.Content]) > 0:
			add(Older, "is sent %s=%q by %s (%d), which no revision from r%d on has, although it was at that revision", s.Resource, s.Content, s.By, i, at)
		default:
			add(Unknown, "is sent %s=%q by %s (%d), which no revision has", s.Resource, s.Content, s.By, i)
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

// lingers reports whether a resource had a content before a removal that is in force at or after a revision, so
// that a server may still serve the content.
func lingers(all []life, content string, at int) bool {
	return content != "" && slices.ContainsFunc(all, func(gone life) bool {
		return gone.content == "" && gone.to > at && slices.ContainsFunc(all, func(l life) bool { return l.content == content && l.to <= gone.from })
	})
}
