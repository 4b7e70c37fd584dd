package admin

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An origin has the groups of nodes and the origins of resources, for explanations. It adds the resources of the store
// to those of the files.
type origin struct {
	*dir.Source // the files of the program, or a source without files

	store   *store.Store
	files   bool // the program has files
	placeOf func(*xds.Node, *xds.Type, string) string

	contexts sync.Map // from *xds.Node to the context.Context of its stream or poll, for the selector of the store
}

func newOrigin(st *store.Store, o *Options) *origin {
	is := &origin{Source: o.Files, store: st, files: o.Files != nil, placeOf: o.Place}
	if !is.files {
		is.Source = dir.New("", st, dir.Options{Log: o.Log, Types: o.Types})
	}
	return is
}

// follow remembers the context of a stream until it is done. A selector may find the peer of the stream in it.
func (o *origin) follow(ctx context.Context, node *xds.Node) {
	if node == nil {
		return
	}
	o.contexts.Store(node, ctx)
	context.AfterFunc(ctx, func() { o.contexts.Delete(node) })
}

// groupsOf returns the groups that the store selects for a node.
func (o *origin) groupsOf(n *xds.Node) ([]string, error) {
	ctx := context.Background()
	if of, ok := o.contexts.Load(n); ok {
		ctx = of.(context.Context)
	}
	w, err := o.store.Watch(ctx, n)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.Groups(), nil
}

// Decide returns the groups that the store selects for a node. The reasons are those of the files, if the files decide.
func (o *origin) Decide(n *xds.Node) groups.Decision {
	names, err := o.groupsOf(n)
	if err != nil {
		return groups.Decision{Notes: []string{err.Error()}}
	}
	if o.files {
		if d := o.Source.Decide(n); slices.Equal(d.Groups, names) {
			return d
		}
	}
	d := groups.Decision{Groups: names}
	for _, name := range names {
		rule := "the program chooses it"
		if name == store.DefaultGroup {
			rule = "the default group"
		}
		d.Reasons = append(d.Reasons, groups.Reason{Group: name, Rule: rule})
	}
	return d
}

// place returns the origin of a resource that a node gets; "": unknown.
func (o *origin) place(n *xds.Node, t *xds.Type, name string) string {
	if o.placeOf != nil {
		if at := o.placeOf(n, t, name); at != "" {
			return at
		}
	}
	return o.Source.PlaceFor(n, t, name)
}

// Occurrences returns all occurrences of a resource, as [dir.Source.Occurrences] does.
func (o *origin) Occurrences(t *xds.Type, name string) []dir.Occurrence {
	all := o.Source.Occurrences(t, name)
	for _, group := range o.store.Snapshot().Groups() {
		if slices.ContainsFunc(all, func(of dir.Occurrence) bool { return of.Served && of.Group == group }) {
			continue
		}
		if of, ok := o.stored(group, t, name); ok {
			all = append(all, of)
		}
	}
	return all
}

// Lookup returns the served resource of a group, by its name or an alias.
func (o *origin) Lookup(group string, t *xds.Type, name string) (dir.Occurrence, bool) {
	if of, ok := o.Source.Lookup(group, t, name); ok {
		return of, true
	}
	return o.stored(group, t, name)
}

// stored returns a resource of the store that is in no file.
func (o *origin) stored(group string, t *xds.Type, name string) (dir.Occurrence, bool) {
	table := o.store.Snapshot().Effective(group).Table(t)
	r := table.Lookup(name)
	if r == nil {
		for alias := range table.Aliased(name).All() {
			r = alias
			break
		}
	}
	if r == nil {
		return dir.Occurrence{}, false
	}
	of := dir.Occurrence{Loaded: dir.Loaded{Resource: r}, Group: group, Served: true}
	if o.placeOf != nil {
		of.File = o.placeOf(new(xds.Node), t, r.Name)
	}
	return of, true
}

// FieldAt returns the place of a field of a resource: its path, if the resource is in no file.
func (o *origin) FieldAt(l dir.Loaded, path string) string {
	if l.Line == 0 && l.Path == "" {
		at := l.Pos
		at.Path = path
		return at.String()
	}
	return o.Source.FieldAt(l, path)
}

// maxCompared is the maximum number of names that Nearest compares.
const maxCompared = 10_000

// Nearest returns the name of the served resource that is most similar to a name; "" if none is similar.
func (o *origin) Nearest(t *xds.Type, name string) string {
	return protoyaml.Nearest(name, o.names(t))
}

func (o *origin) names(t *xds.Type) iter.Seq[string] {
	return func(yield func(string) bool) {
		left, now := maxCompared, o.store.Snapshot()
		for _, group := range now.Groups() {
			for r := range now.Effective(group).Table(t).All() {
				left--
				if left < 0 || !yield(r.Name) {
					return
				}
			}
		}
	}
}
