package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Update runs f and commits what it wrote, if f returns nil and all of it is
// valid. It returns what changed; a transaction that changes nothing makes no
// commit, wakes nobody, and is answered with the number of the newest commit.
//
// Transactions take turns: f must not call Update, and others wait while it
// runs. Readers do not. A nil store, and a nil function, are errors.
func (st *Store) Update(f func(*Tx) error) (Commit, error) {
	if st == nil || f == nil {
		return Commit{}, errors.New("store: Update of a nil store, or by a nil function")
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

// A revision is a group as a commit leaves it.
type revision struct {
	group   string // its name, unless it is an overlay
	at      *group // set by commit
	view    xds.Tables
	unknown map[string]bool
	known   bool // it is empty, and that is all there is
	touched xds.Names
	count   int      // of touched
	past    []former // the tables that it replaces; until is not set
	changes []Change
}

// revise carries out the drafts of a group, and returns nil if nothing changes,
// nothing is touched and what is not known stays so.
// It costs what the drafts write, or the type's size where they replace it.
func (st *Store) revise(group string, drafts map[string]*draft, known bool) (*revision, error) {
	was := st.newest(group)
	r := &revision{group: group, view: was.view, unknown: was.unknown, touched: xds.Names{}}
	written := known
	for url, d := range drafts {
		if d.decides() {
			written, known = true, known || d.all
			r.knows(url, !d.unknown)
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
			if r.view = maps.Clone(r.view); r.view == nil {
				r.view = xds.Tables{}
			}
		}
		r.view[url] = table
		r.past = append(r.past, former{url: url, table: d.base, touched: len(touched)})
		c.Group, c.Version = group, table.Version()
		r.changes = append(r.changes, c)
	}
	if written && r.view == nil {
		r.view = xds.Tables{}
	}
	r.known = (known || was.known) && bare(r.view)
	if r.count == 0 && r.changes == nil && (r.view == nil) == (was.view == nil) && len(r.unknown) == len(was.unknown) && r.known == was.known {
		return nil, nil
	}
	return r, nil
}

// knows notes whether it is known what there is of a type.
func (r *revision) knows(url string, known bool) {
	if r.unknown[url] != known {
		return
	}
	if r.unknown = maps.Clone(r.unknown); r.unknown == nil {
		r.unknown = map[string]bool{}
	}
	if known {
		delete(r.unknown, url)
	} else {
		r.unknown[url] = true
	}
}

// table returns what a draft makes of its type, and the names that may find
// something else in it than before: of resources, and their aliases before and
// after, and of their collections, and names that are said to be.
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
		touched = append(touched, found(d.base.Lookup(name))...)
		c.Removed++
	}
	var clash error
	for _, r := range set {
		old := d.base.Lookup(r.Name)
		if table.Lookup(r.Name) == old {
			continue
		}
		if err := clashes(table, r); err != nil && (clash == nil || err.Error() < clash.Error()) {
			clash = err // of several the same one is told each time
		}
		if touched = append(touched, found(r)...); old != nil {
			touched = append(touched, found(old)...)
		}
		c.Set++
	}
	slices.Sort(touched)
	return table, slices.Compact(touched), c, clash
}

// found returns the names that find a resource: its own, its aliases and its collection.
func found(r *xds.Resource) []string {
	names := append([]string{r.Name}, r.Aliases...)
	if c := r.Type.Collection(r.Name); c != "" {
		names = append(names, c)
	}
	return names
}

// newest returns a group after the newest commit.
func (st *Store) newest(group string) *head {
	st.mu.Lock()
	defer st.mu.Unlock()
	if g := st.groups[group]; g != nil {
		return g.head.Load()
	}
	return &head{}
}

// commit publishes the revisions together, with a selection unless that is nil, and returns the
// commit with its number and time.
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
	all = st.relay(all)
	st.seq++
	c.Seq = st.seq
	st.snapshot = nil
	if sel != nil {
		st.selection.Store(sel) // before heads: see Watch.Next
		st.ringAll()
	}
	st.latest.Store(&c) // before what it has: who is sent that finds when it was
	for _, r := range all {
		st.publish(r, c)
	}
	if st.log = append(st.log, c); len(st.log) > st.remembered() {
		st.log = st.log[1:]
	}
	return c
}

// publish makes a revision what its group is. The store is locked.
func (st *Store) publish(r revision, c Commit) {
	g := r.at
	old := g.head.Load()
	g.head.Store(old.next(c.Seq, r, st.remembered()))
	for _, f := range r.past {
		f.until = c.Time
		g.remember(f)
	}
	g.forget(c.Time)
	if g.watches > 0 && (r.count > 0 || old.view == nil || len(r.unknown) < len(old.unknown)) {
		st.ring(g, news{since: old.seq})
	}
	st.tidy(g)
}

// remembered returns how many commits are remembered.
func (st *Store) remembered() int { return cmp.Or(st.keep, defaultLog) }

// relay adds the revisions of overlays to those of their layers. The store is locked, but not
// while they are made: overlays that come meanwhile are revised after that.
func (st *Store) relay(all []revision) []revision {
	revised := map[*group]*revision{}
	for i := range all {
		g := st.group(all[i].group)
		g.watches++ // so that it stays
		all[i].at, revised[g] = g, &all[i]
	}
	made := map[*group]*revision{}
	for due := st.unrevised(revised, made); due != nil; due = st.unrevised(revised, made) {
		st.mu.Unlock()
		for _, o := range due {
			made[o] = o.relay(revised)
		}
		st.mu.Lock()
	}
	for g := range revised {
		g.watches-- // publish tidies
	}
	for o, r := range made {
		if r != nil && st.overlays[o.name] == o { // somebody still watches it
			all = append(all, *r)
		}
	}
	return all
}

// unrevised returns the overlays of revised groups that no revision was made of.
func (st *Store) unrevised(revised map[*group]*revision, made map[*group]*revision) (due []*group) {
	for g := range revised {
		for o := range g.over {
			if _, is := made[o]; !is {
				made[o] = nil
				due = append(due, o)
			}
		}
	}
	return due
}
