package store

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/xds"
)

// A Tx is a transaction: its changes become visible together or not at all. The methods of a Tx
// apply to one group; the Tx that Update passes applies to the default group. The last write of a
// name in a transaction wins. The order of names and types does not matter.
//
// An invalid change makes [Store.Update] return an error and change nothing. A Tx is valid until
// the function that received it returns. Methods called later panic. A Tx is not safe for
// concurrent use.
type Tx struct {
	*txn
	group string
}

// A txn is the state that the Txs of one transaction share.
type txn struct {
	st        *Store
	drafts    map[string]map[string]*draft // by group and type URL
	known     map[string]bool              // groups marked as known
	selection *selection                   // set by Select; nil: unchanged
	err       error                        // the first invalid change
	done      bool
}

// A draft has the changes of a transaction to one type in one group.
type draft struct {
	typ     *xds.Type
	base    *xds.Table
	all     bool                     // resources that are not in writes are removed
	writes  map[string]*xds.Resource // by name; nil: delete
	version *string                  // nil: not set
	touched []string                 // names from Notify
	unknown bool                     // marked as unknown
}

// Group returns a Tx for another group. The empty name makes the transaction fail: nodes without a group see
// [DefaultGroup].
func (tx *Tx) Group(name string) *Tx {
	tx.use()
	if name == "" {
		tx.fail("empty group name: the group of nodes without one is %q", DefaultGroup)
	}
	return &Tx{tx.txn, name}
}

// Set adds resources, or replaces those with the same type and name. One call may set several types. A
// resource that is equal to the current one does not replace it.
//
// The resources must be sealed ([xds.Resource.Seal]) after their fields were set. After that
// nothing may change them. Names and aliases must be canonical ([xds.CanonicalName]). An alias must
// not be the name or an alias of another resource of the type. The transaction fails for a resource
// that is nil, was changed after Seal, or is refused by [xds.Resource.Check].
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

// changed returns an error if the fields of a resource were set after Seal. Otherwise the change could be lost,
// because the sum does not cover it.
func changed(r *xds.Resource) error {
	if r.Changed() {
		return fmt.Errorf("resource %q was changed after it was sealed: call Seal after its fields are set", r.Name)
	}
	return nil
}

// typePrefix returns the type of a resource for the text of an error, or "" if the resource has no
// type.
func typePrefix(r *xds.Resource) string {
	if r == nil || r.Type == nil {
		return ""
	}
	return r.Type.String() + ": "
}

// Delete removes resources by name. Names that do not exist are ignored.
func (tx *Tx) Delete(t *xds.Type, names ...string) {
	d := tx.draft(t)
	for _, name := range names {
		if !tx.validName(t, name) {
			return
		}
		d.writes[name] = nil
	}
}

// Replace makes these resources the only resources of a type and removes all others. Without
// resources it removes all resources of the type. Equal resources are not replaced. A resource of
// another type makes the transaction fail.
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

// Clear deletes all resources of all types of the group. Resources that the transaction sets after Clear are
// then the whole content of the group.
func (tx *Tx) Clear() {
	tx.MarkKnown()
	for url, table := range tx.st.newest(tx.group).view {
		if !hasNoResources(table) {
			tx.Replace(xds.TypeOf(url))
		}
	}
	for _, d := range tx.drafts[tx.group] {
		tx.Replace(d.typ)
	}
}

// MarkUnknown marks a type of the group as not completely known. Clients are not told that a name of the type does not
// exist, until a transaction writes to the type. A wildcard gets the resources that exist.
func (tx *Tx) MarkUnknown(t *xds.Type) { tx.draft(t).unknown = true }

// definesContent reports whether the draft adds resources, replaces all of them or marks the type as unknown.
func (d *draft) definesContent() bool {
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

// MarkKnown marks the content of the group as complete, even if it is empty: clients may then be told that other
// resources do not exist. Writing a resource does the same. An empty group that is not marked becomes
// unknown again when no stream watches it.
func (tx *Tx) MarkKnown() {
	tx.use()
	tx.known[tx.group] = true
	if tx.drafts[tx.group] == nil {
		tx.drafts[tx.group] = map[string]*draft{}
	}
}

// Version sets the version of a type, which clients get as version_info. It is valid until the content of the
// type changes in a transaction without a call of Version. The empty string restores the default: a hash of
// the content, equal for equal content.
func (tx *Tx) Version(t *xds.Type, version string) {
	if !utf8.ValidString(version) {
		tx.fail("group %q: %s: version %q is not UTF-8", tx.group, t, version)
	}
	tx.draft(t).version = &version
}

// Notify signals the streams that are interested in names or aliases, as if their resources had changed. A
// source calls it after a change that the tables do not show, for example when a view is no longer undecided
// about a name ([xds.Undecided]). The version of the type does not change.
func (tx *Tx) Notify(t *xds.Type, names ...string) {
	d := tx.draft(t)
	for _, name := range names {
		if !tx.validName(t, name) {
			return
		}
		d.touched = append(d.touched, name)
	}
}

// validName reports whether the name is valid for a resource. If not, the transaction fails.
func (tx *Tx) validName(t *xds.Type, name string) bool {
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

// Lookup returns a resource in its state at the end of the transaction so far, or nil.
func (tx *Tx) Lookup(t *xds.Type, name string) *xds.Resource {
	d := tx.draft(t)
	if r, ok := d.writes[name]; ok || d.all {
		return r
	}
	return d.base.Lookup(name)
}

// use panics if the transaction has ended, because its writes and errors would be lost.
func (tx *Tx) use() {
	if tx.done {
		panic("store: Tx is used after its transaction has ended")
	}
}

// draft returns the draft of a type. It creates the draft if it does not exist.
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
