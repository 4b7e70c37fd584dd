// Package diff compares two sets of resources field by field. It identifies messages by their
// descriptors. It compares messages with their secrets, but shows them redacted. It reads no files and
// opens no connections.
package diff

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// A Resource is a resource of one side.
type Resource struct {
	Type  *xds.Type
	Name  string
	Group string // "": compare without groups
	Place string // the source position; "": unknown

	Version string // the version of the bytes with secrets; "": unknown

	shown  proto.Message
	sum    [sha256.Size]byte // of the original bytes, with secrets
	hidden bool              // shown lacks secrets or undecodable content; sum covers them
	size   int               // of the encoded message
	body   []byte            // the encoded message of a listener, to compute its drained connections
}

// A Side is one of the two compared sets: resources by group, type and name.
type Side struct {
	types    *envoy.Types
	finder   *secrets.Finder
	all      map[key]Resource
	redacted bool // its source does not show secrets
	versions bool // versions reveal changed secrets

	states []protoreflect.Name // the fields of a dump's entry that may hold the resource
}

type key struct{ group, url, name string }

// NewSide returns an empty side. The source of a redacted side does not show secrets, so secrets are
// not compared.
func NewSide(types *envoy.Types, redacted bool) *Side {
	return &Side{types: types, finder: secrets.NewFinder(types), all: map[key]Resource{}, redacted: redacted}
}

// ByVersion declares that messages of the side lack secrets, and that resources with changed secrets
// have different versions.
func (s *Side) ByVersion() { s.versions = true }

// Add adds a resource with its encoded message. If the side has a resource of this group, type and
// name, Add keeps the earlier one.
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

// Len returns the number of resources.
func (s *Side) Len() int { return len(s.all) }

// The kinds of differences.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// A Difference describes a resource that differs.
type Difference struct {
	api.Difference
	typ *xds.Type
}

// URL returns the type URL of the resource.
func (d Difference) URL() string { return d.typ.URL }

// A Field is a field that differs.
type Field = api.FieldValue

// A Draining lists the connections that Envoy drains when a listener changes.
type Draining = api.Draining

// Sides returns the differences from a to b, in push order.
func Sides(a, b *Side) (all []Difference) {
	for k, is := range b.all {
		was, had := a.all[k]
		if !had {
			all = append(all, difference(Added, is))
			continue
		}
		if d, differs := change(a, b, was, is); differs {
			all = append(all, d)
		}
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

// change returns the difference of a resource that both sides have; false if there is none.
func change(a, b *Side, was, is Resource) (d Difference, differs bool) {
	versions := (a.versions || b.versions) && was.hidden && is.hidden && was.Version != "" && is.Version != ""
	if was.sum == is.sum && !versions || versions && was.Version == is.Version {
		return d, false
	}
	redacted := a.redacted || b.redacted
	x, y := was.shown, is.shown
	if redacted && is.Type.Is(xds.Endpoint) && x != nil && y != nil {
		x, y = asDumped(x), asDumped(y)
	}
	d = difference(Changed, is)
	d.Fields = fields(b.types, x, y)
	if len(d.Fields) == 0 {
		if !was.hidden && !is.hidden || !versions && redacted {
			return d, false // only the encoding differs, or secrets are unknown
		}
		d.Secret, d.Fields = true, []Field{{Path: "(secrets, or content that cannot be shown)", From: secrets.Redacted, To: secrets.Redacted}}
	}
	d.Drains = drains(b.types, Changed, was, is, redacted)
	return d, true
}

func difference(kind string, r Resource) Difference {
	return Difference{api.Difference{Kind: kind, Type: r.Type.String(), Name: r.Name, Group: r.Group, Place: r.Place, Bytes: r.size}, r.Type}
}
