package export

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A file is an exported file.
type file struct {
	data []byte
	typ  *xds.Type // nil: not a resource file, or unknown

	pieces []*piece // for a collective type, sorted by name
}

// files is an export: its files, by path relative to current.
type files map[string]*file

func (a files) equal(b files) bool {
	return maps.EqualFunc(a, b, func(x, y *file) bool { return x == y || bytes.Equal(x.data, y.data) })
}

// build makes an export from a view.
func (e *Exporter) build(view xds.Tables) (files, Report, error) {
	b := builder{e: e, view: view, all: files{}, hosts: map[string][]*xds.Resource{}, kept: map[*xds.Resource]*piece{}}
	if e.bootstrap != nil {
		b.all[bootstrapFile] = &file{data: e.bootstrap}
	}
	for _, r := range byName(view.Table(xds.VirtualHost).All()) {
		route := xds.VirtualHost.Collection(r.Name)
		b.hosts[route] = append(b.hosts[route], r)
	}
	for _, t := range typesOf(view) {
		if err := b.add(t); err != nil {
			return nil, Report{}, err
		}
	}
	b.addMissing()
	e.kept = b.kept
	b.report.Files = len(b.all)
	return b.all, b.report, nil
}

// typesOf returns the types of a view in push order. It always includes the collective types, because
// Envoy needs their files.
func typesOf(view xds.Tables) []*xds.Type {
	types := slices.DeleteFunc(xds.Types(), func(t *xds.Type) bool { return !collective(t) })
	for url := range view.All() {
		if t := xds.TypeOf(url); !collective(t) {
			types = append(types, t)
		}
	}
	slices.SortFunc(types, func(a, b *xds.Type) int {
		return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), strings.Compare(a.URL, b.URL))
	})
	return types
}

func byName(all iter.Seq[*xds.Resource]) []*xds.Resource {
	return slices.SortedFunc(all, func(a, b *xds.Resource) int { return strings.Compare(a.Name, b.Name) })
}

// A builder collects the files of an export.
type builder struct {
	e      *Exporter
	view   xds.Tables
	hosts  map[string][]*xds.Resource // virtual hosts, by route configuration
	kept   map[*xds.Resource]*piece
	all    files
	needs  []need
	report Report
}

// A need is a resource that a ConfigSource refers to.
type need struct {
	xds.Ref
	of string // the resource with the ConfigSource
}

// add adds all resources of a type.
func (b *builder) add(t *xds.Type) error {
	table := b.view.Table(t)
	var pieces []*piece
	for _, r := range byName(table.All()) {
		if deltaOnly(t) {
			continue // part of the resources that refer to it
		}
		p, err := b.piece(t, r)
		if err != nil {
			return err
		}
		pieces = append(pieces, p)
		b.report.Warnings = append(b.report.Warnings, p.warnings...)
		if r.TTL > 0 {
			b.report.Warnings = append(b.report.Warnings, fmt.Sprintf("%s %q has a TTL, which files do not support: in the export it never expires", t, r.Name))
		}
		for _, ref := range p.needs {
			b.needs = append(b.needs, need{ref, fmt.Sprintf("%s %q", t, r.Name)})
		}
		if !collective(t) {
			b.all[b.e.Format.pathOf(t, r.Name)] = b.e.Format.file(t, p.version, p)
		}
	}
	b.report.Resources += len(pieces)
	if collective(t) {
		path := b.e.Format.pathOf(t, "")
		if live := b.e.dir.live[path]; live != nil && t.Binds {
			pieces = handOver(live.pieces, pieces)
		}
		b.all[path] = b.e.Format.file(t, table.Version(), pieces...)
	}
	return nil
}

// piece returns the piece of a resource. It reuses the last one, unless that contains other resources.
func (b *builder) piece(t *xds.Type, r *xds.Resource) (*piece, error) {
	p := b.e.kept[r]
	if p == nil {
		var err error
		p, err = rewriter{Exporter: b.e, view: b.view, hosts: b.hosts}.rewrite(t, r)
		if err != nil {
			return nil, err
		}
		p.addresses = r.Addresses
	}
	if !p.folded {
		b.kept[r] = p
	}
	return p, nil
}

// file returns a file with the given pieces. Its version is the server's, unless that is unknown or
// does not cover folded resources.
func (f *Format) file(t *xds.Type, version string, pieces ...*piece) *file {
	data := dataOf(pieces)
	if version == "" || slices.ContainsFunc(pieces, func(p *piece) bool { return p.folded }) {
		sum := sha256.Sum256(bytes.Join(data, nil))
		version = hex.EncodeToString(sum[:8])
	}
	all := &file{typ: t, data: f.whole(version, t.URL, data)}
	if collective(t) {
		all.pieces = pieces
	}
	return all
}

func dataOf(pieces []*piece) [][]byte {
	all := make([][]byte, len(pieces))
	for i, p := range pieces {
		all[i] = p.data
	}
	return all
}

// addMissing adds an empty file for each missing resource that a ConfigSource refers to. Envoy requires
// that "paths must refer to an existing path in the system", and rejects the referring resource
// otherwise. An empty file means that the resource does not exist, as in a response without it.
func (b *builder) addMissing() {
	paths := map[string]bool{}
	for _, n := range b.needs {
		path := b.e.Format.pathOf(n.Type, n.Name)
		if b.all[path] == nil {
			b.all[path] = b.e.Format.file(n.Type, "")
		}
		if !collective(n.Type) && b.view.Table(n.Type).Lookup(xds.CanonicalName(n.Name)) == nil {
			b.report.Warnings = append(b.report.Warnings, fmt.Sprintf("%s refers to %s %q, which does not exist: its file is empty", n.of, n.Type, n.Name))
		}
		paths[path] = true
	}
	b.report.Watches = 2 + len(paths) // plus the listeners and clusters of the bootstrap
}

// union returns a collective file with the resources of next and the removed ones of was. It returns
// one of the two if that has the same content.
func (f *Format) union(was, next *file) *file {
	have := map[string]bool{}
	for _, p := range next.pieces {
		have[p.name] = true
	}
	all := slices.Clone(next.pieces)
	for _, p := range was.pieces {
		if !have[p.name] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *piece) int { return strings.Compare(a.name, b.name) })
	same := func(a, b *piece) bool { return a.name == b.name && bytes.Equal(a.data, b.data) }
	switch {
	case len(all) == len(next.pieces):
		return next
	case slices.EqualFunc(all, was.pieces, same):
		return was
	}
	return f.file(next.typ, "", all...)
}
