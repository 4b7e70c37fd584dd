package xds

import (
	"iter"
	"slices"
	"sync"
	"weak"
)

// A Table is the immutable set of resources of one type in a view. It is safe
// for concurrent use. The zero value is empty, and may become a table of any type.
type Table struct {
	typ      *Type // nil: empty, and not known
	versions *Versions
	bodies   tree[*Resource]
	aliases  tree[*Members]     // by alias or collection
	expiring tree[*Resource]    // those with a TTL
	departed [2]tree[*Resource] // lately, and before that
	young    int                // names in departed[0]
	version  string             // supplied by the source; empty: the sum
	layers   []*Table           // that it was made of, for what they had lately
	part     *part              // of another; nil: it is whole

	mu    sync.Mutex // guards what follows; held for memory only
	since map[*Versions]weak.Pointer[Changes]
	beats []Heartbeat
}

// NewTable returns an empty table of resources of type t, which decides what
// collections there are ([Type.Collection]).
func NewTable(t *Type) *Table { return &Table{typ: t} }

// Type returns the type of the resources, nil if the table is empty and that is not known.
func (t *Table) Type() *Type { return t.typ }

var empty Table

// keepDeparted is how many removed resources a table remembers at least. It
// remembers twice as many at most, or what one With removed.
const keepDeparted = 8192

// With returns a table with the resources set and the names removed. A
// resource set at the content it has stays as it is, so the result is t itself
// if nothing changes. A name both removed and set is set; of resources with
// the same name the last one counts. A resource that cannot be set
// ([Resource.CheckType]), such as nil and one of another type, is an error, which names it.
//
// It costs the change, not the size of the table.
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

// apply makes edits that are in order. It keeps those that change something in
// the same place.
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

// equal reports whether setting o instead of r changes nothing: neither what
// clients get nor when.
func (r *Resource) equal(o *Resource) bool {
	return r.Sum == o.Sum && r.Version == o.Version && r.OnDemand == o.OnDemand && (r.Refs == nil) == (o.Refs == nil) &&
		slices.EqualFunc(r.Refs, o.Refs, func(a, b Ref) bool { return a.Name == b.Name && a.Type.Is(b.Type) })
}

// count is what a resource adds to the number of those a wildcard covers.
func (r *Resource) count() int {
	if r.OnDemand {
		return 0
	}
	return 1
}

// weight is what a resource adds to the sum: one that becomes one on demand
// leaves the wildcard, which is a change of the type.
func (r *Resource) weight() Sum {
	if r.OnDemand {
		return Sum{r.Sum.lo, r.Sum.hi}
	}
	return r.Sum
}

// depart remembers what the changes remove from t, and forgets what they set.
// Two generations keep this in the size of the change: when the younger one is
// large enough, it becomes the older one.
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

// clone returns a copy that shares all but the memory of Since.
func (t *Table) clone() *Table {
	return &Table{
		typ: t.typ, versions: t.versions, bodies: t.bodies, aliases: t.aliases, expiring: t.expiring,
		departed: t.departed, young: t.young, version: t.version,
	}
}

// WithVersion returns the table with a version that its source supplies
// instead of the hash of the content. An empty string restores the hash, and
// so does the next change of the content.
func (t *Table) WithVersion(version string) *Table {
	if t.version == version {
		return t
	}
	n := t.clone()
	n.version = version
	return n
}

// Version is the type's version: by default a hash that depends only on the
// content, so equal content has equal versions on every replica.
func (t *Table) Version() string {
	if t.version != "" {
		return t.version
	}
	if t.versions == nil {
		return Sum{}.String()
	}
	return t.versions.digits
}

// Hashed reports whether Version is the hash of the content, so that equal
// versions prove equal content.
func (t *Table) Hashed() bool { return t.version == "" }

// VersionWith is the version of the table together with resources that it does
// not have; nil stands for none.
func (t *Table) VersionWith(extra iter.Seq[*Stamp]) string {
	if extra == nil {
		return t.Version()
	}
	sum, more := t.Versions().Sum(), false
	for s := range extra {
		sum, more = sum.plus(s.Sum), true
	}
	if !more {
		return t.Version()
	}
	return sum.String()
}

// Versions returns what a wildcard covers, without the bodies; nil if the table
// never had any.
func (t *Table) Versions() *Versions { return t.versions }

// Len returns the number of resources that a wildcard covers.
func (t *Table) Len() int { return t.versions.Len() }

// Lookup returns the resource with the name, or nil.
func (t *Table) Lookup(name string) *Resource {
	r, _ := t.bodies.get(name)
	return r
}

// Aliased returns the resources that have the name as an alias, or that belong
// to the collection of that name.
func (t *Table) Aliased(name string) *Members {
	m, _ := t.aliases.get(name)
	return m
}

// HasAliases reports whether any name finds resources that are not called so.
func (t *Table) HasAliases() bool { return t.aliases.root != nil }

// WithLayers returns the table, made of others that are laid over each other, with what these
// had lately: [Table.Departed] finds that, too. It holds for this table, not for what With makes of it.
func (t *Table) WithLayers(layers ...*Table) *Table {
	n := t.clone()
	n.layers = layers
	return n
}

// Departed returns a resource that the table had lately and has no more, or
// nil. It lets a stream withdraw late what others may still refer to.
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
		if r := l.Lookup(name); r != nil { // another hides it
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
