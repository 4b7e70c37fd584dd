package relay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A kind is what is known of a type of which something was asked for.
type kind struct {
	typ   *xds.Type
	names map[string]*name
	known bool // it is known what there is of it: "*" may be answered; as in Source.known

	// Of Run.
	demands  int            // names that the upstream is asked for
	complete bool           // the upstream, or the disk, has said what there is
	live     int            // names that have a resource upstream
	finders  int            // "*" and collections that the upstream is asked for
	owners   map[string]int // names that show a resource, by its own name
	seen     int            // names that show a resource
	standing standing       // whether that something is gone is passed on
	due      time.Time      // when what is kept back is looked at next; zero: nothing is

	unusable map[string]bool // names of which the upstream has what cannot be used, and nothing is in use

	refused map[*name]*xds.Resource // what cannot be in the store beside the others: each commit tries it again
}

// A name is one that was asked for, or that the upstream has told of.
type name struct {
	*kind
	name   string
	finder bool // "*" or a collection

	users  int       // streams that want it
	since  time.Time // when the last of these left
	listed bool      // in dirty
	absent bool      // it is decided that it does not exist

	// Of Run.
	asked bool          // the upstream is asked for it
	told  bool          // the upstream has said something of it
	res   *xds.Resource // as the upstream has it; nil: it has none
	shown *xds.Resource // in the store; nil: none is
	gone  time.Time     // since when the upstream has it no more, and it is shown still; zero: not so
}

// left is a name that the last stream has left.
type left struct {
	*name
	at time.Time
}

func finds(n string) bool {
	return n == xds.Wildcard || strings.HasPrefix(n, "xdstp:") && strings.HasSuffix(strings.TrimRight(cut(n), "/"), "/*")
}

// cut is an xdstp name without its context parameters.
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

// name returns a name, new if there is none. The source is locked.
func (s *Source) name(t *xds.Type, n string) *name {
	k := s.types[t.URL]
	if k == nil {
		k = &kind{typ: t, names: map[string]*name{}, owners: map[string]int{}}
		s.types[t.URL] = k
	}
	e := k.names[n]
	if e == nil {
		n = strings.Clone(n) // requests share their memory
		e = &name{kind: k, name: n, finder: finds(n)}
		k.names[n] = e
	}
	return e
}

// use notes that one more stream wants a name, or one less. The source is locked.
func (s *Source) use(e *name, by int) {
	if e.users += by; e.users == 0 {
		e.since = time.Now()
		s.idle = append(s.idle, left{e, e.since})
	}
	if !e.listed {
		e.listed = true
		s.dirty = append(s.dirty, e)
	}
	s.ring()
}

// ask asks the upstream for what is wanted, and gives up what nobody has wanted for long enough.
func (s *Source) ask(now time.Time) {
	add, drop, c := map[string][]string{}, map[string][]string{}, change{now: now}
	s.mu.Lock()
	n := 0
	for ; n < len(s.idle); n++ {
		e := s.idle[n]
		if now.Before(e.at.Add(s.opts.Linger)) && len(s.idle)-n <= maxLingering && !s.full {
			break
		}
		switch {
		case e.users > 0 || e.since != e.at: // it is wanted again, or was
		case e.asked:
			if s.count(e.name, -1); e.finder {
				e.finders--
			}
			drop[e.typ.URL] = append(drop[e.typ.URL], e.name.name)
		default: // it was wanted for no time at all
			c.add(e.kind)
			c.names = append(c.names, e.name)
		}
	}
	s.idle = slices.Delete(s.idle, 0, n)
	var wait []*name
	s.full = false
	for _, e := range s.dirty {
		if e.users == 0 || e.asked {
			e.listed = false
			continue
		}
		if over := s.over(e); over != nil {
			if !s.full {
				s.relieve(over)
			}
			s.full = true
			wait = append(wait, e)
			continue
		}
		e.listed = false
		if s.count(e, 1); e.finder {
			e.finders++
			s.widen(e.kind, &c)
		}
		add[e.typ.URL] = append(add[e.typ.URL], e.name)
	}
	s.dirty = wait
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
		for _, n := range names { // one cannot be asked for, and would keep the others from it
			if err := s.follow.Add(k.typ, n); err != nil {
				s.opts.Log.Warn("cannot request a name from the upstream", "type", k.typ.String(), "name", n, "error", err)
				s.decide(k, n, &c)
			}
		}
	}
	s.commit(&c)
}

// A Watch is one stream's. It is a [store.Watch] whose interest the upstream is asked for.
type Watch struct {
	*store.Watch
	source *Source
	owner  string // whose it is, for shares of what the upstream is asked for
	wants  map[*name]bool
	greedy error            // it has to give way; nil: not so
	known  *map[string]bool // as of the last view
	closed bool

	sees   func(t *xds.Type, name string) bool // nil: all
	hidden map[content]*xds.Type               // that it asks for, and does not see; none has a sum
}

// An asking is a name that a stream asks for, in its canonical form.
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

// Interested is [store.Watch.Interested], and asks the upstream, but for what the client does not see.
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
			continue // of no resource
		}
		if a := (asking{t, xds.CanonicalName(n)}); w.sees == nil || w.sees(t, a.name) {
			add = append(add, a)
		} else {
			a.name = strings.Clone(a.name) // requests share their memory
			w.hidden[a.key()] = t
		}
	}
	w.change(add, drop)
}

// Limit says what the stream's client sees, from now on: a name, or something of what "*" or a collection finds. Nothing else
// is asked of the upstream for it. Nil: it sees all. It is for the stream's goroutine, as Interested is.
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
	for e := range w.wants { // which this goroutine alone changes
		if a := (asking{e.typ, e.name}); sees != nil && !sees(a.typ, a.name) {
			w.hidden[a.key()] = a.typ
			drop = append(drop, a)
		}
	}
	w.change(add, drop)
}

// change asks for other names than before.
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
		w.Ring() // what has become known since Next rings who has asked for it, and nobody else
	}
}

// Close ends the watch. Closing it again does nothing.
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

// Next is [store.Watch.Next]. The view is [xds.Undecided] of what the upstream has not answered.
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	if err := w.source.gives(w); err != nil {
		return nil, nil, err
	}
	known := w.source.known.Load() // before the view is taken, which then has all that made it so
	v, names, err := w.Watch.Next()
	if err != nil || v == nil {
		return nil, names, err
	}
	if known != w.known {
		w.known, names = known, nil // a wildcard may be answered now
	}
	return &view{View: v, source: w.source, known: known}, names, nil
}

// A view is one of the store.
type view struct {
	xds.View
	source *Source
	known  *map[string]bool
}

// Undecided implements [xds.Undecided]. Of a name that was found since a newer view has the resource.
func (v *view) Undecided(t *xds.Type, n string) bool {
	if n == xds.Wildcard {
		return !(*v.known)[t.URL]
	}
	if all := v.Table(t); all.Lookup(n) != nil || all.Aliased(n).Len() > 0 {
		return false
	}
	s := v.source
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.types[t.URL]
	if k == nil {
		return true
	}
	e := k.names[xds.CanonicalName(n)]
	if e == nil {
		return !k.known // of what nobody asks for by name the wildcard decides
	}
	return !e.absent
}
