package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Update runs f and commits its writes, if f returns nil and all writes are valid. It returns the
// changes of the commit. A transaction that changes nothing makes no commit and signals no stream.
// Then Update returns the number of the newest commit.
//
// Transactions take turns: f must not call Update, and other transactions wait while f runs. Readers do not
// wait. A nil store or function is an error.
func (st *Store) Update(f func(*Tx) error) (Commit, error) {
	if st == nil || f == nil {
		return Commit{}, errors.New("store: Update needs a store and a function that are not nil")
	}
	st.writing.Lock()
	defer st.writing.Unlock()
	tx := &txn{st: st, drafts: map[string]map[string]*draft{}, known: map[string]bool{}}
	defer func() { tx.done = true }()
	if err := f(&Tx{tx, DefaultGroup}); err != nil {
		return Commit{}, err
	}
	if tx.err != nil {
		return Commit{}, tx.err
	}
	var all []revision
	var c Commit
	for name, drafts := range tx.drafts {
		r, err := st.revise(name, drafts, tx.known[name])
		if err != nil {
			return Commit{}, err
		}
		if r != nil {
			all = append(all, *r)
			c.Changes = append(c.Changes, r.changes...)
		}
	}
	slices.SortFunc(c.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Type.URL, b.Type.URL))
	})
	return st.commit(c, all, tx.selection), nil
}

// A revision is the state of a group after a commit.
type revision struct {
	group   string // name of the group; empty for a composite
	at      *group // set by commit
	view    xds.Tables
	unknown map[string]bool
	known   bool // empty, and marked as known
	touched xds.Names
	count   int         // number of touched names
	past    []pastTable // the tables that this revision replaces; the field until is set later
	changes []Change
}

// revise applies the drafts of a group. It returns nil if neither the content nor the known types change and no
// names are touched. The cost depends on the written resources, or on the size of a type that is replaced.
func (st *Store) revise(group string, drafts map[string]*draft, known bool) (*revision, error) {
	was := st.newest(group)
	r := &revision{group: group, view: was.view, unknown: was.unknown, touched: xds.Names{}}
	written := known
	for url, d := range drafts {
		if d.definesContent() {
			written, known = true, known || d.all
			r.setKnown(url, !d.unknown)
		}
		table, touched, c, err := d.table()
		if err != nil {
			return nil, fmt.Errorf("group %q: %s: %w", group, d.typ, err)
		}
		if len(touched) > 0 {
			r.touched[url] = touched
			r.count += len(touched)
		}
		if d.version != nil {
			table = table.WithVersion(*d.version)
		}
		if table == d.base {
			continue
		}
		if r.changes == nil {
			r.view = maps.Clone(r.view)
			if r.view == nil {
				r.view = xds.Tables{}
			}
		}
		r.view[url] = table
		r.past = append(r.past, pastTable{url: url, table: d.base, touched: len(touched)})
		c.Group, c.Version = group, table.Version()
		r.changes = append(r.changes, c)
	}
	if written && r.view == nil {
		r.view = xds.Tables{}
	}
	r.known = (known || was.known) && hasNoContent(r.view)
	if r.count == 0 && r.changes == nil && len(r.unknown) == len(was.unknown) && r.known == was.known {
		return nil, nil
	}
	return r, nil
}

// setKnown records whether a type is completely known.
func (r *revision) setKnown(url string, known bool) {
	if r.unknown[url] != known {
		return
	}
	r.unknown = maps.Clone(r.unknown)
	if r.unknown == nil {
		r.unknown = map[string]bool{}
	}
	if known {
		delete(r.unknown, url)
	} else {
		r.unknown[url] = true
	}
}

// table applies a draft to its type. It returns the new table and the touched names: names, aliases and
// collections of changed resources, before and after the change, and names from Notify.
func (d *draft) table() (*xds.Table, []string, Change, error) {
	set := make([]*xds.Resource, 0, len(d.writes))
	var remove []string
	for name, r := range d.writes {
		if r != nil {
			set = append(set, r)
		} else if d.base.Lookup(name) != nil {
			remove = append(remove, name)
		}
	}
	if d.all {
		for r := range d.base.All() {
			if _, written := d.writes[r.Name]; !written {
				remove = append(remove, r.Name)
			}
		}
	}
	table, err := d.base.With(set, remove...)
	if err != nil {
		return nil, nil, Change{}, err
	}
	c := Change{Type: d.typ}
	touched := slices.Clone(d.touched)
	if table == d.base {
		slices.Sort(touched)
		return table, slices.Compact(touched), c, nil
	}
	for _, name := range remove {
		touched = append(touched, namesOf(d.base.Lookup(name))...)
		c.Removed++
	}
	var clash error
	for _, r := range set {
		old := d.base.Lookup(r.Name)
		if table.Lookup(r.Name) == old {
			continue
		}
		if err := nameConflict(table, r); err != nil && (clash == nil || err.Error() < clash.Error()) {
			clash = err // of several errors, always report the same one
		}
		touched = append(touched, namesOf(r)...)
		if old != nil {
			touched = append(touched, namesOf(old)...)
		}
		c.Set++
	}
	slices.Sort(touched)
	return table, slices.Compact(touched), c, clash
}

// namesOf returns the names that find a resource: its name, its aliases and its collection.
func namesOf(r *xds.Resource) []string {
	names := append([]string{r.Name}, r.Aliases...)
	if c := r.Type.Collection(r.Name); c != "" {
		names = append(names, c)
	}
	return names
}

// newest returns the head of a group after the newest commit.
func (st *Store) newest(group string) *head {
	st.mu.Lock()
	defer st.mu.Unlock()
	if g := st.groups[group]; g != nil {
		return g.head.Load()
	}
	return &head{}
}

// commit publishes the revisions together with the selection, unless that is nil. It returns the commit with
// its number and time.
func (st *Store) commit(c Commit, all []revision, sel *selection) Commit {
	changes := len(all) > 0 || sel != nil
	if changes {
		c.Time = st.clock()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !changes {
		c.Seq = st.seq
		return c
	}
	all = st.reviseComposites(all)
	st.seq++
	c.Seq = st.seq
	st.snapshot = nil
	if sel != nil {
		st.selection.Store(sel) // before heads: see Watch.Next
		st.ringAll()
	}
	st.latest.Store(&c) // set before the content, so that a stream which sends the content also finds the time of the commit
	for _, r := range all {
		st.publish(r, c)
	}
	st.log = append(st.log, c)
	if len(st.log) > st.remembered() {
		st.log = st.log[1:]
	}
	return c
}

// publish makes a revision the head of its group. The store is locked.
func (st *Store) publish(r revision, c Commit) {
	g := r.at
	old := g.head.Load()
	g.head.Store(old.next(c.Seq, r, st.remembered()))
	for _, f := range r.past {
		f.until = c.Time
		g.remember(f)
	}
	g.forget(c.Time)
	if g.watches > 0 {
		st.ring(g, news{since: old.seq})
	}
	st.dropIfUnused(g)
}

// remembered returns the number of commits that are remembered.
func (st *Store) remembered() int { return cmp.Or(st.keep, defaultLog) }

// reviseComposites adds the revisions of composites to the revisions of their layers. The store is
// locked, except while composites are revised. Composites that are registered meanwhile are revised
// in the next round.
func (st *Store) reviseComposites(all []revision) []revision {
	revised := map[*group]*revision{}
	for i := range all {
		g := st.group(all[i].group)
		g.watches++ // so that the group stays
		all[i].at, revised[g] = g, &all[i]
	}
	made := map[*group]*revision{}
	for due := st.unrevised(revised, made); due != nil; due = st.unrevised(revised, made) {
		st.mu.Unlock()
		for _, o := range due {
			made[o] = o.reviseComposite(revised)
		}
		st.mu.Lock()
	}
	for g := range revised {
		g.watches-- // publish calls dropIfUnused
	}
	for o, r := range made {
		if r != nil && st.composites[o.name] == o { // the composite is still watched
			all = append(all, *r)
		}
	}
	return all
}

// unrevised returns the composites of revised groups that were not revised yet.
func (st *Store) unrevised(revised map[*group]*revision, made map[*group]*revision) (due []*group) {
	for g := range revised {
		for o := range g.composites {
			if _, is := made[o]; !is {
				made[o] = nil
				due = append(due, o)
			}
		}
	}
	return due
}
