// Package tree watches a listener with all resources that it refers to, directly or indirectly:
// routes, clusters, endpoints and others. It returns these resources as one configuration when all
// have arrived (gRFC A74, requirement CLI-9). So a change of several resources is one change: a
// route to a new cluster appears only together with the cluster and its endpoints.
//
// The package starts no goroutine and reads no clock: the client decides when a resource counts as
// absent. The package applies the changes of one response together.
package tree

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// ErrAbsent is the error of a member that does not exist.
var ErrAbsent = errors.New("does not exist")

// Options are the options of [Watch]. The zero value is ready to use.
type Options struct {
	// Refs returns the references of a resource; nil means unknown. It is called once for each version
	// of a resource. The default is xds.Stamp.Refs or, if that is nil, the references that package refs
	// finds in the message. For package refs, the message's type and those of its extensions must be
	// linked into the program.
	Refs func(*xds.Resource) []xds.Ref

	// Root is the type of the root resource. Nil: [xds.Listener].
	Root *xds.Type

	// Types are the types of resources to watch. Nil: all. References to other types are in
	// Member.Refs, but their resources are not watched.
	Types []*xds.Type
}

// A State is the state of a watched tree.
type State struct {
	// Tree is the last complete tree; nil: none yet. It does not change until the next tree is
	// complete.
	Tree *Tree

	// Waiting lists the names that the next tree waits for. Empty: Tree is up to date.
	Waiting []Waiting
}

// Reason describes why there is no newer tree, such as "CDS "b" (referenced by RDS "r") has not
// arrived". It is empty if Tree is up to date.
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
		fmt.Fprintf(&b, "%s %q", w.Type, w.Name)
		if w.From.Type != nil {
			fmt.Fprintf(&b, " (referenced by %s %q)", w.From.Type, w.From.Name)
		}
		b.WriteString(" has not arrived")
	}
	return b.String()
}

// A Waiting is a name for which no event has arrived yet.
type Waiting struct {
	xds.Ref
	From xds.Ref // a member that refers to it; without a type if the name is the root
}

// A Tree is a root with all resources that it refers to, directly or indirectly. It is immutable.
type Tree struct {
	// Members starts with the root. The others follow breadth-first: the references of the root, then
	// the references of these, and so on.
	Members []*Member

	index byRef[int32] // into Members
}

// Root returns the first member. Without a Resource it is the only member.
func (t *Tree) Root() *Member { return t.Members[0] }

// Member returns the member with a type and name, or nil.
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

// A Member is one resource of a tree, or an error instead of it. The error of a member does not affect
// the others: "For cluster-specific errors … it causes a problem for the individual cluster but does
// not affect traffic sent to any other cluster".
type Member struct {
	xds.Ref                // type and name
	Resource *xds.Resource // nil: see Err

	// Err is the reason why Resource is nil, such as [ErrAbsent]. With a Resource, it is the reason why
	// the resource may be out of date: the client refused a newer one, or the server cannot be reached.
	Err error

	// Refs are the references of the resource. The name [xds.Wildcard] means that it may refer to any
	// resource of the type. Such a reference adds no members.
	Refs []xds.Ref

	// Unknown means that the references of the resource are unknown: its type is not linked, or
	// Options.Refs returned nil. The tree may lack members for it.
	Unknown bool
}

// Complete reports whether the tree has a root and all references are known: no member is Unknown or
// refers to a wildcard. Members may have errors.
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

// A byRef is a map from type URL and name.
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
