// Package diff says in what two sets of resources differ, field by field. It knows messages by
// their descriptors, and shows no secret: messages are compared as they are, and shown redacted.
// It reads no file and serves nothing.
package diff

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// A Resource is one of a side.
type Resource struct {
	Type  *xds.Type
	Name  string
	Group string // "": sides are not compared by group
	Place string // where it stands; "": nobody knows

	Version string // that of the bytes with their secrets; "": nobody knows

	shown  proto.Message
	sum    [sha256.Size]byte // of what it is, with its secrets
	hidden bool              // it has secrets, or what nobody can look into, and sum tells
	size   int               // of its encoded message
	body   []byte            // that message, of a listener: its parts say what is drained
}

// A Side is what is compared: resources by group, type and name.
type Side struct {
	types    *envoy.Types
	finder   *secrets.Finder
	all      map[key]Resource
	redacted bool // it comes from who shows no secrets
	versions bool // it does, and the versions of resources tell whether these differ

	states []protoreflect.Name // of a dump: where in an entry the resource may be
}

type key struct{ group, url, name string }

// NewSide returns an empty side. A redacted one comes from who shows no secrets, so that these are not
// compared.
func NewSide(types *envoy.Types, redacted bool) *Side {
	return &Side{types: types, finder: secrets.NewFinder(types), all: map[key]Resource{}, redacted: redacted}
}

// ByVersion says that secrets are not in the messages of the side, and the versions of its resources tell whether they differ.
func (s *Side) ByVersion() { s.versions = true }

// Add adds a resource, with its encoded message. Of two of the same group, type and name the first
// counts.
func (s *Side) Add(r Resource, body []byte) {
	k := key{r.Group, r.Type.URL, r.Name}
	if _, had := s.all[k]; had {
		return
	}
	var whole bool
	r.shown, whole = s.finder.Shown(r.Type.URL, body)
	r.hidden, r.sum, r.size = !whole, sha256.Sum256(body), len(body)
	if r.Type.Is(xds.Listener) {
		r.body = body
	}
	s.all[k] = r
}

// Len is how many resources there are.
func (s *Side) Len() int { return len(s.all) }

// A Kind says how a resource differs.
type Kind string

// Kinds of differences.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// A Difference is that of one resource.
type Difference struct {
	Kind   Kind    `json:"kind"`
	Type   string  `json:"type"`
	Name   string  `json:"name"`
	Group  string  `json:"group,omitempty"`
	Place  string  `json:"place,omitempty"` // of the new one, or of the one that is removed
	Fields []Field `json:"fields,omitempty"`

	Drains *Draining `json:"drains,omitempty"` // nil: no connections, were a to become b
	Bytes  int       `json:"bytes,omitempty"`  // of the new one, encoded

	typ *xds.Type
}

// URL is that of the type.
func (d Difference) URL() string { return d.typ.URL }

// A Field is one that differs.
type Field struct {
	Path string `json:"path"`
	From string `json:"from"` // "": not set
	To   string `json:"to"`
}

// Sides returns how b differs from a, in push order.
func Sides(a, b *Side) (all []Difference) {
	for k, is := range b.all {
		was, had := a.all[k]
		if !had {
			all = append(all, difference(Added, is))
			continue
		}
		versions := (a.versions || b.versions) && was.hidden && is.hidden && was.Version != "" && is.Version != ""
		if was.sum == is.sum && !versions || versions && was.Version == is.Version {
			continue
		}
		d := difference(Changed, is)
		x, y := was.shown, is.shown
		if (a.redacted || b.redacted) && is.Type.Is(xds.Endpoint) && x != nil && y != nil {
			x, y = asDumped(x), asDumped(y)
		}
		if d.Fields = fields(b.types, x, y); len(d.Fields) == 0 {
			if !was.hidden && !is.hidden || !versions && (a.redacted || b.redacted) {
				continue // it is encoded in another way, or nobody can say
			}
			d.Fields = []Field{{Path: "(secrets, or what cannot be shown)", From: secrets.Redacted, To: secrets.Redacted}}
		}
		d.Drains = drains(b.types, Changed, was, is, a.redacted || b.redacted)
		all = append(all, d)
	}
	for k, was := range a.all {
		if _, has := b.all[k]; !has {
			d := difference(Removed, was)
			d.Drains, d.Bytes = drains(b.types, Removed, was, was, true), 0
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(x.typ.Rank(), y.typ.Rank()), strings.Compare(x.typ.URL, y.typ.URL), strings.Compare(x.Group, y.Group), strings.Compare(x.Name, y.Name))
	})
	return all
}

func difference(k Kind, r Resource) Difference {
	return Difference{Kind: k, Type: r.Type.String(), Name: r.Name, Group: r.Group, Place: r.Place, Bytes: r.size, typ: r.Type}
}
