package quarantine

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

// siblings are the streams of the clients that open a stream for each type. A stream only has its own
// resources in quarantine. So each stream lends its siblings the resources to which its replacements refer:
// the stream of clusters keeps the removed cluster to which the replacement of a listener refers. Streams are
// siblings if they agree in node ID, scope and owner. The zero value is empty.
type siblings struct {
	mu  sync.Mutex // held for memory access only
	all map[client]*family
}

// A client is the common part of its streams.
type client struct{ node, scope, owner string }

func (w *Watch) client() client { return client{w.node.ID, w.scope, w.owner} }

// A family has the streams of a client. A stream in it does not change its types.
type family struct {
	streams map[*Watch]bool
	lent    map[*Watch][]Kept // by lender; without empty ones
}

// maxSiblings bounds the streams that one change of a quarantine wakes. Further streams of a client have no
// siblings.
const maxSiblings = 1000

// join adds a stream that has opened its first type.
func (s *siblings) join(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[w.client()]
	if f == nil {
		if s.all == nil {
			s.all = map[client]*family{}
		}
		f = &family{map[*Watch]bool{}, map[*Watch][]Kept{}}
		s.all[w.client()] = f
	}
	if len(f.streams) < maxSiblings {
		f.streams[w] = true
	}
}

// leave removes a stream that has ended, or has opened a second type.
func (s *siblings) leave(w *Watch) {
	s.lend(w, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[w.client()]
	if f == nil {
		return
	}
	delete(f.streams, w)
	if len(f.streams) == 0 {
		delete(s.all, w.client())
	}
}

// lend sets the resources that a stream lends, and wakes the siblings that may lack them.
func (s *siblings) lend(w *Watch, all []Kept) {
	for _, o := range s.lent(w, all) {
		if r, ok := o.of.(ringer); ok {
			r.Ring()
		}
	}
}

// lent sets the resources that a stream lends. It returns the siblings of the types of changed resources.
func (s *siblings) lent(w *Watch, all []Kept) (wake []*Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[w.client()]
	if f == nil || !f.streams[w] || slices.Equal(f.lent[w], all) {
		return nil
	}
	changed := slices.Concat(f.lent[w], all)
	f.lent[w] = all
	if len(all) == 0 {
		delete(f.lent, w)
	}
	for o := range f.streams {
		if o != w && slices.ContainsFunc(changed, func(r Kept) bool { return r.Type.Is(o.types[0]) }) {
			wake = append(wake, o)
		}
	}
	return wake
}

// borrow returns the resources of the type of a stream that its siblings lend, by name, each name once.
func (s *siblings) borrow(w *Watch) (all []Kept) {
	s.mu.Lock()
	if f := s.all[w.client()]; f != nil && f.streams[w] {
		for o, lent := range f.lent {
			for _, r := range lent {
				if o != w && r.Type.Is(w.types[0]) {
					all = append(all, r)
				}
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Kept) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Sum.String(), b.Sum.String()))
	})
	return slices.CompactFunc(all, func(a, b Kept) bool { return a.Name == b.Name })
}

// borrow sets the resources that siblings lend and that the view lacks. It reports whether they changed.
func (w *Watch) borrow(view xds.View) (moved bool) {
	var all []Kept
	if w.hasSiblings() {
		all = slices.DeleteFunc(w.source.siblings.borrow(w), func(r Kept) bool {
			t := view.Table(r.Type)
			return t.Lookup(r.Name) != nil || t.Aliased(r.Name).Len() > 0 || slices.ContainsFunc(w.deps.extra, func(o Kept) bool {
				return o.Name == r.Name && o.Type.Is(r.Type)
			})
		})
	}
	moved = !slices.Equal(all, w.borrowed)
	w.borrowed = all
	return moved
}

// hasSiblings reports whether the stream may have siblings: it has a node, and one type.
func (w *Watch) hasSiblings() bool { return w.node != nil && len(w.types) == 1 }
