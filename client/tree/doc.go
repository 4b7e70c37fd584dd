// Package tree watches a listener with all that it refers to: routes, clusters, endpoints and
// what else there is, as one configuration that is told only when it is complete (gRFC A74,
// requirement CLI-9). A change of several resources is so taken as a whole: a route that names a new
// cluster is not told before the cluster and its endpoints have come.
//
// It has no goroutine and reads no clock: how long a resource may take before it is absent is the
// client's business. What one response of the server changes is taken at once.
package tree

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// ErrAbsent is the error of a member that does not exist.
var ErrAbsent = errors.New("does not exist")

// Options of [Watch]. The zero value is ready to use.
type Options struct {
	// Refs says what a resource refers to; nil: it is not known. It is called once for each
	// version. If it is not set, xds.Stamp.Refs counts or, where that is nil, what package refs
	// finds in the message: for this its type must be linked into the program, and those of the
	// extensions that are in it.
	Refs func(*xds.Resource) []xds.Ref

	// Root is the type of the root. Nil: [xds.Listener].
	Root *xds.Type

	// Types are those whose resources are members. Nil: all. What refers to others is told with
	// its references, and these are not watched.
	Types []*xds.Type
}

// A State is how a tree stands.
type State struct {
	// Tree is the last that was complete; nil: there was none yet. It is told as it was until the
	// next one is complete.
	Tree *Tree

	// Waiting says for what the next one waits. Empty: Tree is how things stand.
	Waiting []Waiting
}

// Reason says why there is no newer tree: "CDS "b" has not come, to which RDS "r" refers". It is
// empty if Tree is how things stand.
func (s *State) Reason() string {
	var b strings.Builder
	for i, w := range s.Waiting {
		const most = 3
		if i == most {
			fmt.Fprintf(&b, ", and %d more", len(s.Waiting)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %q has not come", w.Type, w.Name)
		if w.From.Type != nil {
			fmt.Fprintf(&b, ", to which %s %q refers", w.From.Type, w.From.Name)
		}
	}
	return b.String()
}

// A Waiting is a name of which nothing is known yet.
type Waiting struct {
	xds.Ref
	From xds.Ref // a member that refers to it; no type: it is the root
}

// A Tree is a root and all that it refers to, directly or not. It is immutable.
type Tree struct {
	// Members are the root, and then the others in the order in which they are first referred to:
	// what the root refers to, then what that refers to, and so on.
	Members []*Member

	index byRef[int32] // into Members
}

// Root is the first member. If it does not exist, or cannot be had, it has no Resource, and is alone.
func (t *Tree) Root() *Member { return t.Members[0] }

// Member returns the one of a type and name; nil: the tree has none.
func (t *Tree) Member(of *xds.Type, name string) *Member {
	if of == nil {
		return nil
	}
	if at, is := t.index.get(xds.Ref{Type: of, Name: name}); is {
		return t.Members[at]
	}
	return nil
}

func (t *Tree) has(r xds.Ref) bool {
	_, is := t.index.get(r)
	return is
}

// A Member is one resource of a tree, or the error in its place. An error of one stops no other:
// "For cluster-specific errors … it causes a problem for the individual cluster but does not
// affect traffic sent to any other cluster".
type Member struct {
	xds.Ref                // type and name
	Resource *xds.Resource // nil: there is none to use, and Err says why

	// Err says why there is no resource, [ErrAbsent] for one; or, with a resource, why that may be
	// out of date: the server's newest was refused, or cannot be had.
	Err error

	// Refs is what the resource refers to. A name that is [xds.Wildcard] says that it may refer
	// to any resource of the type: which ones is not known, and none is a member for it.
	Refs []xds.Ref

	// Unknown says that it is not known at all what the resource refers to: its type is not
	// linked, or Options.Refs returned nil. The tree ends here, and may lack something.
	Unknown bool
}

// Complete reports whether there is a root, and all members are known whose names are: no member is
// Unknown or refers to a wildcard. Errors of other members are known.
func (t *Tree) Complete() bool {
	if t.Root().Resource == nil {
		return false
	}
	for _, m := range t.Members {
		if m.Unknown {
			return false
		}
		for _, r := range m.Refs {
			if r.Name == xds.Wildcard {
				return false
			}
		}
	}
	return true
}

// A byRef is a map by type and name: first by the type's URL, of which there are few.
type byRef[V any] map[string]map[string]V

func (m byRef[V]) get(r xds.Ref) (v V, is bool) {
	v, is = m[r.Type.URL][r.Name]
	return v, is
}

func (m byRef[V]) set(r xds.Ref, v V) {
	of := m[r.Type.URL]
	if of == nil {
		of = map[string]V{}
		m[r.Type.URL] = of
	}
	of[r.Name] = v
}
