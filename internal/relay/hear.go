package relay

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A change is what becomes one commit: all that one look at the client has brought.
type change struct {
	now   time.Time
	kinds []*kind
	names []*name // of which something is to be done
	heard bool    // of the upstream, or of the disk
}

func (c *change) add(k *kind) {
	if k != nil && !slices.Contains(c.kinds, k) {
		c.kinds = append(c.kinds, k)
	}
}

// hear takes in what the client tells of a type.
func (s *Source) hear(news client.TypeEvents, c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.types[news.Type.URL]
	if k == nil {
		return // it was given up
	}
	c.add(k)
	for _, ev := range news.Events {
		switch ev.Kind {
		case client.Stale, client.Unavailable:
			if _, down := errors.AsType[*client.ConnectionError](ev.Err); down {
				k.standing.reach(false)
			}
			continue
		case client.Refused: // the last good stays
			if ev.Resource == nil {
				k.cannotUse(ev.Name)
			}
			continue
		}
		if ev.Server != client.FromDisk {
			k.standing.reach(true)
		}
		c.heard = true
		n := xds.CanonicalName(ev.Name)
		delete(k.unusable, n)
		e := k.names[n]
		switch {
		case e == nil && (ev.Resource == nil || k.finders == 0):
			continue // nobody asks for it any more
		case e == nil:
			e = s.name(k.typ, n)
		case !e.asked && k.finders == 0:
			continue
		}
		e.told = true
		switch ev.Kind {
		case client.Updated:
			k.set(e, s.own(e, ev.Resource))
			k.complete = k.complete || ev.Server == client.FromDisk && !ev.Resource.OnDemand && k.wild()
		case client.Removed, client.Absent:
			k.set(e, nil)
		case client.Complete:
			k.complete = k.complete || e.name == xds.Wildcard
		}
		c.names = append(c.names, e)
	}
}

// maxUnusable is of how many names of a type it is known that the upstream has what cannot be used. One
// is enough to know that the type is not empty; the others are for when that one goes.
const maxUnusable = 1000

// cannotUse notes that the upstream has something of a name that cannot be used, and nothing is in use.
func (k *kind) cannotUse(n string) {
	if len(k.unusable) < maxUnusable {
		if k.unusable == nil {
			k.unusable = map[string]bool{}
		}
		k.unusable[xds.CanonicalName(n)] = true
	}
}

func (k *kind) wild() bool {
	e := k.names[xds.Wildcard]
	return e != nil && e.asked
}

// set notes what the upstream has of a name.
func (k *kind) set(e *name, r *xds.Resource) {
	if e.res != nil {
		k.live--
	}
	if e.res = r; r != nil {
		k.live++
	}
}

// own returns a resource as it is served: its version is of its content, so that all relays of an
// upstream, and each after a restart, say the same. What only names find is on demand.
func (s *Source) own(e *name, of *xds.Resource) *xds.Resource {
	r := &xds.Resource{Type: e.typ, Body: of.Body, Aliases: of.Aliases, TTL: of.TTL, OnDemand: e.finders == 0}
	r.Stamp = &xds.Stamp{Name: of.Name}
	if s.opts.Refs != nil {
		r.Refs = s.opts.Refs(of)
	}
	r.Seal("")
	return r
}

// widen makes what names have found part of what there is, now that this is asked for: whether the
// upstream counts it in, it does not say, and to leave out what is wanted would be worse. The source
// is locked.
func (s *Source) widen(k *kind, c *change) {
	c.add(k)
	for _, e := range k.names {
		if e.res != nil && e.res.OnDemand {
			k.set(e, s.own(e, e.res))
			c.names = append(c.names, e)
		}
	}
}

// forget gives up names that the upstream is not asked for any more, and what only they have found.
func (s *Source) forget(k *kind, names []string, c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.add(k)
	gone := func(e *name) {
		k.set(e, nil)
		e.told, e.absent = false, false // whoever asks next waits for the answer
		c.names = append(c.names, e)
	}
	if k.finders == 0 {
		clear(k.unusable)
	}
	for _, n := range names {
		delete(k.unusable, n)
	}
	if !k.wild() {
		k.complete, k.known = false, false
		s.knows([]*kind{k}) // before anything goes
	}
	for _, n := range names {
		if e := k.names[n]; e.finder || k.finders == 0 {
			gone(e)
		}
		if !finds(n) {
			continue
		}
		for _, e := range k.names {
			if covered := k.wild() || k.asks(k.typ.Collection(e.name)); !covered && !e.asked && !e.finder {
				gone(e)
			} else if !covered && e.res != nil { // it is of its name alone now
				k.set(e, s.own(e, e.res))
				c.names = append(c.names, e)
			}
		}
	}
}

func (k *kind) asks(n string) bool {
	e := k.names[n]
	return n != "" && e != nil && e.asked
}

// decide notes that a name can be none of the upstream's.
func (s *Source) decide(k *kind, n string, c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := k.names[n]
	e.told = true
	c.add(k)
	c.names = append(c.names, e)
}

// commit passes on what has changed, in one commit, but for what waits to be confirmed.
func (s *Source) commit(c *change) {
	if len(c.kinds) == 0 {
		return
	}
	var woken []*kind // that are known from now on
	var touched, seen []*name
	set, drop := map[*name]*xds.Resource{}, map[*name]*xds.Resource{}
	s.mu.Lock()
	for _, k := range c.kinds {
		names := c.names
		if !k.due.IsZero() {
			names = nil
			for _, e := range k.names {
				names = append(names, e)
			}
		}
		names = slices.AppendSeq(slices.Clip(names), maps.Keys(k.refused))
		held := k.holds(c.now, s.opts.Confirm)
		k.due = time.Time{}
		for _, e := range names {
			if e.kind != k {
				continue
			}
			seen = append(seen, e)
			if e.res != nil || !e.told || e.shown == nil {
				e.gone = time.Time{}
			} else if e.gone.IsZero() || k.standing.phase == away {
				e.gone = c.now
			}
			switch {
			case e.res == nil && held && e.told:
				continue
			case e.res != nil:
				if e.absent = false; e.res != e.shown {
					set[e] = e.res
				}
				if e.shown != nil && e.shown.Name != e.res.Name { // an alias leads elsewhere
					drop[e] = e.shown
				}
			case e.shown != nil:
				drop[e] = e.shown
			}
			if e.res == nil && e.told && !e.absent {
				touched = append(touched, e)
			}
		}
		if held {
			k.hold(k.standing.until(c.now, s.opts.Confirm))
		} else if k.complete && !k.known {
			woken = append(woken, k)
		}
	}
	s.keep(c.now, set, drop)
	touched = slices.DeleteFunc(touched, func(e *name) bool {
		e.absent = e.shown == nil || drop[e] != nil
		return !e.absent
	})
	s.mu.Unlock()

	commit, err := s.write(set, drop, touched)
	var refused map[*name]error
	if err != nil {
		commit, refused = s.singly(set, drop, touched)
	}
	s.refuse(c.kinds, set, refused)
	for e := range refused {
		delete(set, e)
		delete(drop, e)
	}
	s.mu.Lock()
	for e, r := range drop {
		e.show(r, nil)
	}
	for e, r := range set {
		e.show(e.shown, r)
	}
	for _, k := range woken {
		k.known = true
	}
	s.tidy(slices.Values(seen)) // also of what was held
	s.knows(c.kinds)
	rung := s.waiting(woken)
	s.mu.Unlock()
	for _, w := range rung {
		w.Ring()
	}
	first := c.heard && s.ready.CompareAndSwap(false, true)
	if first {
		s.probe(-1)
	}
	if s.opts.Committed != nil && (first || len(commit.Changes) > 0) {
		s.opts.Committed()
	}
}

// write commits what is new, what is gone, and what is decided to be absent.
func (s *Source) write(set, drop map[*name]*xds.Resource, touched []*name) (store.Commit, error) {
	type key struct {
		of   *kind
		name string
	}
	lost := map[key]int{}
	for e, r := range drop {
		lost[key{e.kind, r.Name}]++
	}
	return s.store.Update(func(tx *store.Tx) error {
		tx.MarkKnown()
		for k, n := range lost {
			if k.of.owners[k.name] == n { // no other name has found it
				tx.Delete(k.of.typ, k.name)
			}
		}
		for _, r := range set {
			tx.Set(r)
		}
		for _, e := range touched {
			if !e.finder {
				tx.Notify(e.typ, e.name)
			}
		}
		return nil
	})
}

// knows notes what of the types is known now. The source is locked.
func (s *Source) knows(kinds []*kind) {
	was := *s.known.Load()
	if !slices.ContainsFunc(kinds, func(k *kind) bool { return was[k.typ.URL] != k.known }) {
		return
	}
	now := maps.Clone(was)
	for _, k := range kinds {
		if delete(now, k.typ.URL); k.known {
			now[k.typ.URL] = true
		}
	}
	s.known.Store(&now)
}

// waiting are the streams that want all of some types. The source is locked.
func (s *Source) waiting(of []*kind) (all []*Watch) {
	if len(of) == 0 {
		return nil
	}
	for w := range s.watches {
		if slices.ContainsFunc(of, func(k *kind) bool { e := k.names[xds.Wildcard]; return e != nil && w.wants[e] }) {
			all = append(all, w)
		}
	}
	return all
}

// show notes what the store has of a name. The source is locked.
func (e *name) show(was, is *xds.Resource) {
	if was != nil {
		e.seen--
		if e.owners[was.Name]--; e.owners[was.Name] == 0 {
			delete(e.owners, was.Name)
		}
	}
	if e.shown = is; is != nil {
		e.seen++
		e.owners[is.Name]++
	}
}

// tidy forgets names of which nobody needs to know anything. The source is locked.
func (s *Source) tidy(names iter.Seq[*name]) {
	for e := range names {
		if e.users == 0 && !e.asked && e.res == nil && e.shown == nil {
			delete(e.names, e.name)
		}
		if len(e.names) == 0 && s.types[e.typ.URL] == e.kind {
			delete(s.types, e.typ.URL)
		}
	}
}
