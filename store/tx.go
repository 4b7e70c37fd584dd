package store

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/xds"
)

// A Tx is a transaction: changes that are seen all at once or not at all. Its
// methods apply to one group, at first the default group. Within a transaction
// the last write of a name counts, and the order of names and types does not
// matter.
//
// What is not valid makes [Store.Update] return an error and change nothing. A
// Tx is valid until the function that it was given to returns, and not safe for
// concurrent use: methods called later panic.
type Tx struct {
	*txn
	group string
}

// A txn is what the Txs of one transaction have in common.
type txn struct {
	st        *Store
	drafts    map[string]map[string]*draft // by group and type URL
	known     map[string]bool              // groups of which all is said
	selection *selection                   // that it selects groups by; nil: as before
	err       error                        // the first thing that was not valid
	done      bool
}

// A draft is what a transaction wants of one type in one group.
type draft struct {
	typ     *xds.Type
	base    *xds.Table
	all     bool                     // what is not written is removed
	writes  map[string]*xds.Resource // by name; nil: delete
	version *string                  // nil: none was said
	touched []string                 // besides what is written
	unknown bool                     // what there is is not known
}

// Group returns the transaction's methods for another group. The empty name makes the
// transaction fail: the group of nodes that have none is [DefaultGroup].
func (tx *Tx) Group(name string) *Tx {
	tx.use()
	if name == "" {
		tx.fail("a group has no name: that of nodes without one is %q", DefaultGroup)
	}
	return &Tx{tx.txn, name}
}

// Set adds resources, or replaces those with the same names; each is one of its own type
// ([xds.Resource.Type]), and one call may set several types. One that is set at
// the content it has stays as it is. The resources must be sealed
// ([xds.Resource.Seal]) after their fields were set, and must not be changed any
// more. Their names and aliases must be canonical ([xds.CanonicalName]); and as a
// name has one resource, none may have an alias that is the name or an alias of
// another of the type. Nil, what was changed after it was sealed, and what else
// [xds.Resource.Check] refuses makes the transaction fail.
func (tx *Tx) Set(resources ...*xds.Resource) {
	tx.use()
	var d *draft
	for i, r := range resources {
		if err := cmp.Or(r.Check(), changed(r)); err != nil {
			tx.fail("group %q: %s%w (number %d of %d)", tx.group, typePrefix(r), err, i+1, len(resources))
			return
		}
		if d == nil || d.typ != r.Type {
			d = tx.draft(r.Type)
		}
		d.writes[r.Name] = r
	}
}

// changed returns an error if a resource's fields were set after it was sealed: without it what
// differs only in these would be lost.
func changed(r *xds.Resource) error {
	if r.Changed() {
		return fmt.Errorf("resource %q was changed after it was sealed: call Seal after its fields are set", r.Name)
	}
	return nil
}

// typePrefix is how an error names the type of a resource; "" if it has none.
func typePrefix(r *xds.Resource) string {
	if r == nil || r.Type == nil {
		return ""
	}
	return r.Type.String() + ": "
}

// Delete removes resources by name. A name that does not exist is no error.
func (tx *Tx) Delete(t *xds.Type, names ...string) {
	d := tx.draft(t)
	for _, name := range names {
		if !tx.named(t, name) {
			return
		}
		d.writes[name] = nil
	}
}

// Replace makes the resources the only ones of a type, as if all others
// were deleted first; without resources there are none then. What differs is what changes.
// A resource of another type makes the transaction fail.
func (tx *Tx) Replace(t *xds.Type, resources ...*xds.Resource) {
	d := tx.draft(t)
	d.all, d.writes = true, make(map[string]*xds.Resource, len(resources))
	for i, r := range resources {
		if err := cmp.Or(r.CheckType(t), changed(r)); err != nil {
			tx.fail("group %q: %s: %w (number %d of %d)", tx.group, t, err, i+1, len(resources))
			return
		}
		d.writes[r.Name] = r
	}
}

// Clear deletes all resources of all types of the group, so that with what is
// set after it the transaction says the group's whole content.
func (tx *Tx) Clear() {
	tx.Known()
	for url, table := range tx.st.newest(tx.group).view {
		if !vacant(table) {
			tx.Replace(xds.TypeOf(url))
		}
	}
	for _, d := range tx.drafts[tx.group] {
		tx.Replace(d.typ)
	}
}

// Unknown says that it is not known what there is of a type. Names of it that no
// resource has are not told to be gone, until a transaction writes to the type. What
// a wildcard covers is what there is.
func (tx *Tx) Unknown(t *xds.Type) { tx.draft(t).unknown = true }

// decides reports whether the draft says what there is of its type, or that this is
// not known.
func (d *draft) decides() bool {
	if d.all || d.unknown {
		return true
	}
	for _, r := range d.writes {
		if r != nil {
			return true
		}
	}
	return false
}

// Known says that what is in the group is all there is, even if that is nothing: its
// nodes may be told that all else is gone. So does whatever writes to a group, but
// one that is empty after that is forgotten when no stream watches it.
func (tx *Tx) Known() {
	tx.use()
	tx.known[tx.group] = true
	if tx.drafts[tx.group] == nil {
		tx.drafts[tx.group] = map[string]*draft{}
	}
}

// Version says the version of a type as its source knows it; clients are told
// it as version_info. It holds until the type's content changes without a
// version being said. The empty string restores the default: a hash of the
// content, equal for equal content.
func (tx *Tx) Version(t *xds.Type, version string) {
	if !utf8.ValidString(version) {
		tx.fail("group %q: %s: version %q is not UTF-8", tx.group, t, version)
	}
	tx.draft(t).version = &version
}

// Touch says that something has changed about names, or aliases, that the tables
// do not show, such as that a view is no longer undecided of them
// ([xds.Undecided]). Streams that are interested in them are told of it like of
// a change; the type's version stays.
func (tx *Tx) Touch(t *xds.Type, names ...string) {
	d := tx.draft(t)
	for _, name := range names {
		if !tx.named(t, name) {
			return
		}
		d.touched = append(d.touched, name)
	}
}

// named reports whether a resource may have the name; if not, the transaction
// fails.
func (tx *Tx) named(t *xds.Type, name string) bool {
	if name == "" || name == xds.Wildcard {
		tx.fail("group %q: %s: %q is not a resource name", tx.group, t, name)
		return false
	}
	if c := xds.CanonicalName(name); c != name {
		tx.fail("group %q: %s: name %q is not canonical: want %q", tx.group, t, name, c)
		return false
	}
	return true
}

// Lookup returns a resource as the transaction would leave it, or nil.
func (tx *Tx) Lookup(t *xds.Type, name string) *xds.Resource {
	d := tx.draft(t)
	if r, ok := d.writes[name]; ok || d.all {
		return r
	}
	return d.base.Lookup(name)
}

// use panics if the transaction has ended: what is written then is lost, and nobody would
// see an error.
func (tx *Tx) use() {
	if tx.done {
		panic("store: a transaction is used after its end")
	}
}

// draft returns the draft of a type, new if there is none.
func (tx *Tx) draft(t *xds.Type) *draft {
	tx.use()
	switch {
	case t == nil:
		tx.fail("group %q: a type is nil", tx.group)
		t = &xds.Type{}
	case t.URL == "":
		tx.fail("group %q: a type has no URL", tx.group)
		t = &xds.Type{}
	}
	d := tx.drafts[tx.group][t.URL]
	if d == nil {
		d = &draft{typ: t, base: tx.st.newest(tx.group).view[t.URL], writes: map[string]*xds.Resource{}}
		if d.base == nil {
			d.base = xds.NewTable(t)
		}
		if tx.drafts[tx.group] == nil {
			tx.drafts[tx.group] = map[string]*draft{}
		}
		tx.drafts[tx.group][t.URL] = d
	}
	return d
}

func (tx *Tx) fail(format string, args ...any) {
	if tx.err == nil {
		tx.err = fmt.Errorf(format, args...)
	}
}
