package xds

import (
	"iter"
	"slices"
	"sync"
	"weak"
)

// A Table is the immutable set of resources of one type in a view. A Table is safe for concurrent
// use. The zero value is empty and takes the type of the first resource.
type Table struct {
	typ      *Type // nil: empty, the type is not known yet
	versions *Versions
	bodies   tree[*Resource]
	aliases  tree[*Members]     // by alias or collection
	expiring tree[*Resource]    // resources with a TTL
	departed [2]tree[*Resource] // removed recently: the younger and the older generation
	young    int                // number of names in departed[0]
	version  string             // supplied by the source; empty: the sum
	layers   []*Table           // the tables of WithLayers, for Departed
	part     *part              // non-nil: this table shows a part of another

	mu    sync.Mutex // guards the fields below; held for memory operations only
	since map[sinceKey]weak.Pointer[Changes]
	beats []Heartbeat
}

// NewTable returns an empty table of resources of type t. The type decides which names are collections
// ([Type.Collection]).
func NewTable(t *Type) *Table { return &Table{typ: t} }

// Type returns the type of the resources. It is nil if the table is empty and has no type yet.
func (t *Table) Type() *Type { return t.typ }

var empty Table

// keepDeparted is the minimum number of recently removed resources that a table remembers. It is also
// the size from which the younger generation is full. The next With that removes resources starts a new
// generation. So a generation has fewer resources than this number plus the resources that one With
// removed.
const keepDeparted = 8192

// With returns a table with the resources set and the names removed. A resource that is equal to
// the resource in the table is not replaced, so With returns t itself if nothing changes. If a name
// is both removed and set, it is set. If several resources have the same name, the last one wins. A
// resource that [Resource.CheckType] refuses is an error.
//
// The cost depends on the size of the change, not on the size of the table.
func (t *Table) With(set []*Resource, remove ...string) (*Table, error) {
	if t.typ == nil && len(set) > 0 && set[0] != nil {
		c := t.clone()
		c.typ, t = set[0].Type, c
	}
	for _, r := range set {
		if err := r.CheckType(t.typ); err != nil {
			return nil, err
		}
	}
	edits := make([]edit[*Resource], 0, len(set)+len(remove))
	for _, name := range remove {
		edits = append(edits, edit[*Resource]{hash: hash(name), name: name, gone: true})
	}
	for _, r := range set {
		edits = append(edits, edit[*Resource]{hash: hash(r.Name), name: r.Name, value: r})
	}
	return t.apply(ordered(edits)), nil
}

// apply returns the table after sorted edits. It reuses the memory of the slice for the edits that
// change something.
func (t *Table) apply(edits []edit[*Resource]) *Table {
	n, v, moved := t.clone(), Versions{}, aliasing{typ: t.typ, from: t.aliases}
	if t.versions != nil {
		v = *t.versions
	}
	changes := edits[:0]
	for _, e := range edits {
		old, has := t.bodies.find(e.hash, e.name)
		if e.gone && !has || !e.gone && has && old.equal(e.value) {
			continue
		}
		if has {
			v.sum, v.len = v.sum.minus(old.weight()), v.len-old.count()
			moved.remove(old)
		}
		if !e.gone {
			v.sum, v.len = v.sum.plus(e.value.weight()), v.len+e.value.count()
			moved.add(e.value)
		}
		changes = append(changes, e)
	}
	if len(changes) == 0 {
		return t
	}
	n.depart(t, changes)
	n.aliases = moved.done()
	stamps := make([]edit[*Stamp], len(changes))
	for i, e := range changes {
		stamps[i] = edit[*Stamp]{hash: e.hash, name: e.name, gone: e.gone || e.value.OnDemand}
		if !stamps[i].gone {
			stamps[i].value = e.value.Stamp
		}
	}
	v.stamps, v.digits = v.stamps.apply(stamps), v.sum.String()
	n.bodies = n.bodies.apply(changes)
	n.expire(changes)
	n.versions, n.version = &v, ""
	return n
}

// equal reports whether setting o instead of r changes nothing: neither the content that clients get nor
// the order in which they get it.
func (r *Resource) equal(o *Resource) bool {
	return r.Sum == o.Sum && r.Version == o.Version && r.OnDemand == o.OnDemand && (r.Refs == nil) == (o.Refs == nil) &&
		slices.EqualFunc(r.Refs, o.Refs, func(a, b Ref) bool { return a.Name == b.Name && a.Type.Is(b.Type) })
}

// count returns 1 if a wildcard includes the resource, and 0 if the resource is on demand.
func (r *Resource) count() int {
	if r.OnDemand {
		return 0
	}
	return 1
}

// weight returns the part of the table's sum for the resource. A resource on demand has another
// weight, so that a change of OnDemand changes the version of the type.
func (r *Resource) weight() Sum {
	if r.OnDemand {
		return Sum{r.Sum.lo, r.Sum.hi}
	}
	return r.Sum
}

// depart stores in t the resources that the changes remove from the old table, and forgets the
// resources that the changes set again. It keeps two generations, so that the cost depends on the size
// of the change. When the younger generation is full, it replaces the older generation.
func (t *Table) depart(from *Table, changes []edit[*Resource]) {
	var in, out []edit[*Resource]
	for _, e := range changes {
		if e.gone {
			e.value, _ = from.bodies.find(e.hash, e.name)
			e.gone = false
			in = append(in, e)
		} else if t.departed[0].root != nil || t.departed[1].root != nil {
			e.value, e.gone = nil, true
			out = append(out, e)
			if _, ok := t.departed[0].find(e.hash, e.name); ok {
				t.young--
			}
		}
	}
	t.departed[0] = t.departed[0].apply(out)
	t.departed[1] = t.departed[1].apply(out)
	if len(in) > 0 && t.young >= keepDeparted {
		t.departed[0], t.departed[1], t.young = tree[*Resource]{}, t.departed[0], 0
	}
	t.departed[0] = t.departed[0].apply(in)
	t.young += len(in)
}

// clone returns a copy without the layers, the part, and the results that Since and Heartbeats stored.
func (t *Table) clone() *Table {
	return &Table{
		typ: t.typ, versions: t.versions, bodies: t.bodies, aliases: t.aliases, expiring: t.expiring,
		departed: t.departed, young: t.young, version: t.version,
	}
}

// WithVersion returns the table with a version from its source instead of the hash of the content. The
// empty string restores the hash. The next change of the content also restores the hash.
func (t *Table) WithVersion(version string) *Table {
	if t.version == version {
		return t
	}
	n := t.clone()
	n.version = version
	return n
}

// Version returns the version of the type. By default the version is a hash that depends only on
// the content, so equal content has equal versions on every replica.
func (t *Table) Version() string {
	if t.version != "" {
		return t.version
	}
	if t.versions == nil {
		return Sum{}.String()
	}
	return t.versions.digits
}

// Hashed reports whether Version is the hash of the content. Then equal versions prove equal content.
func (t *Table) Hashed() bool { return t.version == "" }

// VersionWith returns the version of the table together with extra resources. An extra resource takes the
// place of the resource with the same name. The argument extra may be nil.
func (t *Table) VersionWith(extra iter.Seq[*Stamp]) string {
	if extra == nil {
		return t.Version()
	}
	sum, more := t.Versions().Sum(), false
	for s := range extra {
		if is := t.Versions().Get(s.Name); is != nil {
			sum = sum.minus(is.Sum)
		}
		sum, more = sum.plus(s.Sum), true
	}
	if !more {
		return t.Version()
	}
	return sum.String()
}

// Versions returns the stamps of the resources that a wildcard includes. The result is nil if the
// table never had a resource.
func (t *Table) Versions() *Versions { return t.versions }

// Len returns the number of resources that a wildcard includes.
func (t *Table) Len() int { return t.versions.Len() }

// Lookup returns the resource with the name, or nil.
func (t *Table) Lookup(name string) *Resource {
	r, _ := t.bodies.get(name)
	return r
}

// Aliased returns the resources that have the name as an alias or belong to the collection of that name.
func (t *Table) Aliased(name string) *Members {
	m, _ := t.aliases.get(name)
	return m
}

// HasAliases reports whether any resource has an alias or belongs to a collection.
func (t *Table) HasAliases() bool { return t.aliases.root != nil }

// WithLayers returns the table with the layers from which it was made, so that [Table.Departed] also
// finds resources that were removed from a layer. A table that With or WithVersion makes from the
// result has no layers.
func (t *Table) WithLayers(layers ...*Table) *Table {
	n := t.clone()
	n.layers = layers
	return n
}

// Departed returns a resource that was removed from the table recently, or nil. A stream needs it
// to delay the removal for a client whose other resources may still refer to this resource.
func (t *Table) Departed(name string) *Resource {
	if t.part != nil {
		if !t.part.keep(name) {
			return nil
		}
		if whole := t.part.of.Value(); whole != nil {
			return whole.Departed(name)
		}
	}
	h := hash(name)
	for _, d := range t.departed {
		if r, ok := d.find(h, name); ok {
			return r
		}
	}
	for _, l := range t.layers {
		if r := l.Departed(name); r != nil {
			return r
		}
		if r := l.Lookup(name); r != nil { // another layer hides this resource
			return r
		}
	}
	return nil
}

// All yields the resources in no particular order.
func (t *Table) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		t.bodies.root.walk(func(_ string, r *Resource) bool { return yield(r) })
	}
}
