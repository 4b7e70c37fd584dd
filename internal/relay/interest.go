package relay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A kind is the state of a requested resource type.
type kind struct {
	typ   *xds.Type
	names map[string]*name
	known bool // the list of its resources is known, so "*" may be answered; as in Source.known

	// The fields below are owned by Run.
	demands  int            // names requested from the upstream
	complete bool           // the upstream, or the disk, has sent all resources
	live     int            // names that have a resource upstream
	finders  int            // wildcards and collections requested from the upstream
	owners   map[string]int // the number of names that show a resource, by its own name
	seen     int            // names that show a resource
	standing standing       // whether removals are passed on
	due      time.Time      // when held removals are checked next; zero: there are none

	unusable map[string]bool // names that have an unusable resource in the upstream, and no earlier one

	refused map[*name]*xds.Resource // resources that conflict with others in the store: each commit tries them again
}

// A name is a name that was requested, or that the upstream has sent.
type name struct {
	*kind
	name   string
	finder bool // "*" or a collection

	users  int       // streams that want it
	since  time.Time // when the last of these left
	listed bool      // in dirty
	absent bool      // it does not exist

	// The fields below are owned by Run.
	asked     bool          // requested from the upstream
	answered  bool          // the upstream has answered it
	res       *xds.Resource // the upstream's resource; nil: none
	shown     *xds.Resource // the resource in the store; nil: none
	removedAt time.Time     // when the upstream removed the resource that is still shown; zero: it did not
}

// An abandoned is a name that the last stream has left.
type abandoned struct {
	*name
	at time.Time
}

func finds(n string) bool {
	return n == xds.Wildcard || strings.HasPrefix(n, "xdstp:") && strings.HasSuffix(strings.TrimRight(cut(n), "/"), "/*")
}

// cut returns an xdstp name without its context parameters.
func cut(n string) string {
	n, _, _ = strings.Cut(n, "?")
	return n
}

// kind returns a type by its URL.
func (s *Source) kind(url string) *kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.types[url]
}

// name returns a name, and creates it if necessary. The source is locked.
func (s *Source) name(t *xds.Type, n string) *name {
	k := s.types[t.URL]
	if k == nil {
		k = &kind{typ: t, names: map[string]*name{}, owners: map[string]int{}}
		s.types[t.URL] = k
	}
	e := k.names[n]
	if e == nil {
		n = strings.Clone(n) // do not keep the memory of the whole request
		e = &name{kind: k, name: n, finder: finds(n)}
		k.names[n] = e
	}
	return e
}

// use adds by, 1 or -1, to the number of streams that want a name. The source is locked.
func (s *Source) use(e *name, by int) {
	e.users += by
	if e.users == 0 {
		e.since = time.Now()
		s.idle = append(s.idle, abandoned{e, e.since})
	}
	if !e.listed {
		e.listed = true
		s.dirty = append(s.dirty, e)
	}
	s.ring()
}

// ask requests the wanted names from the upstream, and drops those that were unwanted for long enough.
func (s *Source) ask(now time.Time) {
	c := change{now: now}
	s.mu.Lock()
	drop := s.takeIdle(&c)
	add := s.takeWanted(&c)
	s.mu.Unlock()

	for url, names := range drop {
		k := s.kind(url)
		s.follow.Remove(k.typ, names...)
		s.forget(k, names, &c)
	}
	s.commit(&c)
	c = change{now: now}
	for url, names := range add {
		k := s.kind(url)
		if err := s.follow.Add(k.typ, names...); err == nil {
			continue
		}
		for _, n := range names { // one invalid name must not prevent the others
			if err := s.follow.Add(k.typ, n); err != nil {
				s.opts.Log.Warn("cannot request a name from the upstream", "type", k.typ.String(), "name", n, "error", err)
				s.decide(k, n, &c)
			}
		}
	}
	s.commit(&c)
}

// takeIdle returns the names to drop from the upstream's stream, by type URL: those that were unwanted for long
// enough. It adds unwanted names that were never requested to c. The source is locked.
func (s *Source) takeIdle(c *change) (drop map[string][]string) {
	drop = map[string][]string{}
	n := 0
	for ; n < len(s.idle); n++ {
		e := s.idle[n]
		if c.now.Before(e.at.Add(s.opts.Linger)) && len(s.idle)-n <= maxLingering && !s.full {
			break
		}
		switch {
		case e.users > 0 || e.since != e.at: // it is wanted again, or was meanwhile
		case e.asked:
			s.count(e.name, -1)
			if e.finder {
				e.finders--
			}
			drop[e.typ.URL] = append(drop[e.typ.URL], e.name.name)
		default: // it was never requested
			c.add(e.kind)
			c.names = append(c.names, e.name)
		}
	}
	s.idle = slices.Delete(s.idle, 0, n)
	return drop
}

// takeWanted returns the names to request from the upstream, by type URL. Names above the limits wait, and a stream
// ends for them. The source is locked.
func (s *Source) takeWanted(c *change) (add map[string][]string) {
	add = map[string][]string{}
	var wait []*name
	s.full = false
	for _, e := range s.dirty {
		if e.users == 0 || e.asked {
			e.listed = false
			continue
		}
		if over := s.over(e); over != nil {
			if !s.full {
				s.endGreediest(over)
			}
			s.full = true
			wait = append(wait, e)
			continue
		}
		e.listed = false
		s.count(e, 1)
		if e.finder {
			e.finders++
			s.widen(e.kind, c)
		}
		add[e.typ.URL] = append(add[e.typ.URL], e.name)
	}
	s.dirty = wait
	return add
}

// A Watch is the watch of one stream: a [store.Watch] whose interest is requested from the upstream.
type Watch struct {
	*store.Watch
	source  *Source
	owner   string // the owner of the stream, for a fair share of the upstream's limits
	wants   map[*name]bool
	mustEnd error            // the error that ends the stream because of the limits; nil: the stream may stay
	known   *map[string]bool // as of the last view
	closed  bool

	sees   func(t *xds.Type, name string) bool // nil: all
	hidden map[content]*xds.Type               // requested, but not visible to the client; keys have no sum
}

// An asking is a name that a stream requests, in its canonical form.
type asking struct {
	typ  *xds.Type
	name string
}

func (a asking) key() content { return content{url: a.typ.URL, name: a.name} }

// Watch implements [server.Source].
func (s *Source) Watch(ctx context.Context, node *xds.Node) (*Watch, error) {
	w, err := s.store.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	own := &Watch{Watch: w, source: s, owner: s.opts.Owner(ctx), wants: map[*name]bool{}, hidden: map[content]*xds.Type{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[own] = true
	return own, nil
}

// Interested is [store.Watch.Interested]. It also requests the visible names from the upstream.
func (w *Watch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	w.Watch.Interested(t, wildcard, added, removed)
	if t == nil || w.closed {
		return
	}
	if wildcard {
		added = append(slices.Clip(added), xds.Wildcard)
	} else {
		removed = append(slices.Clip(removed), xds.Wildcard)
	}
	var drop, add []asking
	for _, n := range removed {
		a := asking{t, xds.CanonicalName(n)}
		delete(w.hidden, a.key())
		drop = append(drop, a)
	}
	for _, n := range added {
		if n == "" {
			continue // not a resource
		}
		if a := (asking{t, xds.CanonicalName(n)}); w.sees == nil || w.sees(t, a.name) {
			add = append(add, a)
		} else {
			a.name = strings.Clone(a.name) // do not keep the memory of the whole request
			w.hidden[a.key()] = t
		}
	}
	w.change(add, drop)
}

// Limit sets which names the stream's client may see. Other names are not requested from the upstream. The client
// sees "*" or a collection if it may see a part of it. Nil: it sees all names. Only the stream's goroutine may call
// it, like Interested.
func (w *Watch) Limit(sees func(t *xds.Type, name string) bool) {
	if w.closed {
		return
	}
	w.sees = sees
	var drop, add []asking
	for k, typ := range w.hidden {
		if a := (asking{typ, k.name}); sees == nil || sees(typ, k.name) {
			delete(w.hidden, k)
			add = append(add, a)
		}
	}
	for e := range w.wants { // only this goroutine changes it
		if a := (asking{e.typ, e.name}); sees != nil && !sees(a.typ, a.name) {
			w.hidden[a.key()] = a.typ
			drop = append(drop, a)
		}
	}
	w.change(add, drop)
}

// change adds and removes requested names.
func (w *Watch) change(add, drop []asking) {
	s := w.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range drop {
		if k := s.types[a.typ.URL]; k != nil {
			if e := k.names[a.name]; e != nil && w.wants[e] {
				delete(w.wants, e)
				s.use(e, -1)
			}
		}
	}
	for _, a := range add {
		if e := s.name(a.typ, a.name); !w.wants[e] {
			w.wants[e] = true
			s.use(e, 1)
		}
	}
	if len(add) > 0 && s.known.Load() != w.known {
		w.Ring() // a type that became known since Next wakes only streams that had requested it then
	}
}

// Close ends the watch. A second call does nothing.
func (w *Watch) Close() {
	w.Watch.Close()
	s := w.source
	s.mu.Lock()
	defer s.mu.Unlock()
	w.closed = true
	for e := range w.wants {
		s.use(e, -1)
	}
	w.wants = nil
	delete(s.watches, w)
}

// Next is [store.Watch.Next]. The view is [xds.Undecided]: names that the upstream has not answered are
// undecided.
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	for anew := false; ; anew = true {
		v, names, err := w.Watch.Next() // clears the signal, so everything else is read afterwards
		if err == nil {
			err = w.source.endError(w)
		}
		if err != nil || v == nil {
			return nil, names, err
		}
		if anew {
			names = nil // a wildcard may be answered now
		}
		known := w.source.known.Load()
		if known == w.known { // also before the view was taken: the view contains all resources of known types
			return &view{View: v, source: w.source, known: known}, names, nil
		}
		w.known = known
	}
}

// A view is a view of the store.
type view struct {
	xds.View
	source *Source
	known  *map[string]bool
}

// Undecided implements [xds.Undecided]. If a name was found after this view, a newer view has its
// resource.
func (v *view) Undecided(t *xds.Type, n string) bool {
	if n == xds.Wildcard {
		return !(*v.known)[t.URL]
	}
	if all := v.Table(t); all.Lookup(n) != nil || all.Aliased(n).Len() > 0 {
		return false
	}
	return v.source.Undecided(t, n)
}

// Undecided reports whether the upstream has not answered yet whether a name exists that has no resource in the
// store. Any goroutine may call it.
func (s *Source) Undecided(t *xds.Type, n string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.types[t.URL]
	if k == nil {
		return true
	}
	e := k.names[xds.CanonicalName(n)]
	if e == nil {
		return !k.known // for a name that no stream requests, the wildcard decides
	}
	return !e.absent
}
