package relay

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A change collects the events of one step of Run, for one commit.
type change struct {
	now   time.Time
	kinds []*kind
	names []*name // names to process
	heard bool    // from the upstream, or from the disk
}

func (c *change) add(k *kind) {
	if k != nil && !slices.Contains(c.kinds, k) {
		c.kinds = append(c.kinds, k)
	}
}

// hear applies the events of a type from the client.
func (s *Source) hear(t *xds.Type, events []client.Event, c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.types[t.URL]
	if k == nil {
		return // the type is no longer requested
	}
	c.add(k)
	for _, ev := range events {
		switch ev.Kind {
		case client.Stale, client.Unavailable:
			if _, down := errors.AsType[*client.ConnectionError](ev.Err); down {
				k.standing.reach(false)
			}
			continue
		case client.Refused: // the last good resource stays
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
			continue // the name is no longer requested
		case e == nil:
			e = s.name(k.typ, n)
		case !e.asked && k.finders == 0:
			continue
		}
		e.answered = true
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

// maxUnusable limits how many names with an unusable resource are remembered per type. One is enough to
// know that the type is not empty. The others count when that one is removed.
const maxUnusable = 1000

// cannotUse records that the upstream has an unusable resource of a name, and there is no earlier one.
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

// set records the upstream's resource of a name.
func (k *kind) set(e *name, r *xds.Resource) {
	if e.res != nil {
		k.live--
	}
	e.res = r
	if r != nil {
		k.live++
	}
}

// own returns the resource to serve. Its version is derived from the content, so that all relays of an
// upstream agree, also after a restart. A resource that only its name finds is on demand.
func (s *Source) own(e *name, of *xds.Resource) *xds.Resource {
	r := &xds.Resource{Type: e.typ, Body: of.Body, Aliases: of.Aliases, TTL: of.TTL, OnDemand: e.finders == 0}
	r.Stamp = &xds.Stamp{Name: of.Name, Addresses: wire.Addresses(e.typ, of.Body)}
	if s.opts.Refs != nil {
		r.Refs = s.opts.Refs(of)
	}
	r.Seal("")
	return r
}

// widen makes on-demand resources part of the wildcard when the wildcard is requested. The upstream does not
// report whether its wildcard contains them, and to omit a wanted resource would be worse. The source is
// locked.
func (s *Source) widen(k *kind, c *change) {
	c.add(k)
	for _, e := range k.names {
		if e.res != nil && e.res.OnDemand {
			k.set(e, s.own(e, e.res))
			c.names = append(c.names, e)
		}
	}
}

// forget drops names that are no longer requested from the upstream, and the resources that only these names
// find.
func (s *Source) forget(k *kind, names []string, c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.add(k)
	gone := func(e *name) {
		k.set(e, nil)
		e.answered, e.absent = false, false // the next request waits for the answer
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
		s.updateKnown([]*kind{k}) // before the removals
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
			} else if !covered && e.res != nil { // now only its name finds it
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

// decide records that a name cannot exist in the upstream.
func (s *Source) decide(k *kind, n string, c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := k.names[n]
	e.answered = true
	c.add(k)
	c.names = append(c.names, e)
}

// A plan is what one commit changes.
type plan struct {
	set, drop map[*name]*xds.Resource // the new resource of a name; the old resource that leaves the store
	touched   []*name                 // names that are now known not to exist
	seen      []*name                 // all names that were considered
	woken     []*kind                 // types that are known from this commit on
}

// commit passes the changes on in one commit, except removals that wait to be confirmed.
func (s *Source) commit(c *change) {
	if len(c.kinds) == 0 {
		return
	}
	p := s.plan(c)
	commit, err := s.write(p.set, p.drop, p.touched)
	var refused map[*name]error
	if err != nil {
		wanted := maps.Clone(p.set)
		lost := s.preferOwnNames(p.set, p.drop)
		commit, refused = s.singly(p.set, p.drop, p.touched)
		maps.Copy(lost, refused)
		s.refuse(c.kinds, wanted, lost)
	} else {
		s.refuse(c.kinds, p.set, nil)
	}
	for e := range refused {
		delete(p.set, e)
		delete(p.drop, e)
	}
	for _, w := range s.committed(c, p) {
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

// plan decides what the next commit changes.
func (s *Source) plan(c *change) *plan {
	p := &plan{set: map[*name]*xds.Resource{}, drop: map[*name]*xds.Resource{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range c.kinds {
		names := c.names
		if !k.due.IsZero() {
			names = slices.Collect(maps.Values(k.names))
		}
		names = slices.AppendSeq(slices.Clip(names), maps.Keys(k.refused))
		held := k.holdsRemovals(c.now, s.opts.Confirm) && (!s.crowded() || k.standing.phase != doubted)
		k.due = time.Time{}
		for _, e := range names {
			if e.kind == k {
				p.add(e, held, c.now)
			}
		}
		if held {
			k.hold(k.standing.until(c.now, s.opts.Confirm))
		} else if k.complete && !k.known {
			p.woken = append(p.woken, k)
		}
	}
	s.keepReferenced(c.now, p.set, p.drop)
	p.touched = slices.DeleteFunc(p.touched, func(e *name) bool {
		e.absent = e.shown == nil || p.drop[e] != nil
		return !e.absent
	})
	return p
}

// crowded reports whether the store has too many resources to hold back removals.
func (s *Source) crowded() bool { return s.opts.Shown > 0 && s.shown > s.opts.Shown }

// add adds the change of a name; held means that removals of its type are held back. The source is locked.
func (p *plan) add(e *name, held bool, now time.Time) {
	p.seen = append(p.seen, e)
	if e.res != nil || !e.answered || e.shown == nil {
		e.removedAt = time.Time{}
	} else if e.removedAt.IsZero() || e.standing.phase == away {
		e.removedAt = now
	}
	switch {
	case e.res == nil && held && e.answered:
		return
	case e.res != nil:
		e.absent = false
		if e.res != e.shown {
			p.set[e] = e.res
		}
		if e.shown != nil && e.shown.Name != e.res.Name { // the alias now names another resource
			p.drop[e] = e.shown
		}
	case e.shown != nil:
		p.drop[e] = e.shown
	}
	if e.res == nil && e.answered && !e.absent {
		p.touched = append(p.touched, e)
	}
}

// committed records the effects of a commit. It returns the watches to ring: those of types that are now known.
func (s *Source) committed(c *change, p *plan) []*Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e, r := range p.drop {
		e.show(r, nil)
		s.shown -= r.Memory()
	}
	for e, r := range p.set {
		s.shown += r.Memory() - e.shown.Memory()
		e.show(e.shown, r)
	}
	for _, k := range p.woken {
		k.known = true
	}
	s.tidy(slices.Values(p.seen)) // including names whose removal is held
	s.updateKnown(c.kinds)
	return s.wildcardWatches(p.woken)
}

// write commits new and removed resources, and names that do not exist.
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
			if k.of.owners[k.name] == n { // no other name shows it
				tx.Delete(k.of.typ, k.name)
			}
		}
		for _, r := range set {
			tx.Set(r)
		}
		for _, e := range touched {
			if e.name != xds.Wildcard {
				tx.Notify(e.typ, e.name)
			}
		}
		return nil
	})
}

// updateKnown publishes which of the types are known. The source is locked.
func (s *Source) updateKnown(kinds []*kind) {
	was := *s.known.Load()
	if !slices.ContainsFunc(kinds, func(k *kind) bool { return was[k.typ.URL] != k.known }) {
		return
	}
	now := maps.Clone(was)
	for _, k := range kinds {
		delete(now, k.typ.URL)
		if k.known {
			now[k.typ.URL] = true
		}
	}
	s.known.Store(&now)
}

// wildcardWatches returns the watches of the wildcard of some types. The source is locked.
func (s *Source) wildcardWatches(of []*kind) (all []*Watch) {
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

// show records that the store has another resource of a name. The source is locked.
func (e *name) show(was, is *xds.Resource) {
	if was != nil {
		e.seen--
		e.owners[was.Name]--
		if e.owners[was.Name] == 0 {
			delete(e.owners, was.Name)
		}
	}
	e.shown = is
	if is != nil {
		e.seen++
		e.owners[is.Name]++
	}
}

// tidy forgets names without state. The source is locked.
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
