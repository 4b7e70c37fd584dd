package client

import (
	"container/list"

	"github.com/chancery-xds/chancery/xds"
)

// A shelf holds the resources that nobody watches now, each by its name, and by aliases that no
// other has as its name. It is a value without I/O.
//
// Those that the last run has left are all there, so that whoever watches them finds them, until
// limit is called: the limit is for those that were put there since.
type shelf struct {
	types map[string]*shelved // by type URL
	order list.List           // of *xds.Resource, the oldest first; without those of the last run
	bytes int                 // of those in order
}

// shelved are the resources of one type.
type shelved struct {
	names   map[string]spot
	aliases map[string]*xds.Resource
}

// A spot is where a resource lies.
type spot struct {
	*xds.Resource
	at *list.Element // in order; nil: it is of the last run
}

func size(r *xds.Resource) int { return len(r.Body) + len(r.Name) + 200 }

func (s *shelf) of(t *xds.Type) *shelved {
	of := s.types[t.URL]
	if of == nil {
		if s.types == nil {
			s.types = map[string]*shelved{}
		}
		of = &shelved{names: map[string]spot{}, aliases: map[string]*xds.Resource{}}
		s.types[t.URL] = of
	}
	return of
}

// leave puts a resource of the last run there.
func (s *shelf) leave(r *xds.Resource) { s.add(r, nil) }

// put puts a resource there instead of one of the same name, and reports how many others had to go
// to make room. One that takes more than there is goes itself.
func (s *shelf) put(r *xds.Resource) (gone int) {
	if old, ok := s.of(r.Type).names[r.Name]; ok {
		s.drop(old.Resource)
	}
	if size(r) > maxShelf {
		return 1
	}
	s.bytes += size(r)
	s.add(r, s.order.PushBack(r))
	return s.trim()
}

func (s *shelf) add(r *xds.Resource, at *list.Element) {
	of := s.of(r.Type)
	of.names[r.Name] = spot{r, at}
	for _, a := range r.Aliases {
		of.aliases[a] = r
	}
}

// trim drops the oldest until the limit is kept.
func (s *shelf) trim() (gone int) {
	for ; s.bytes > maxShelf; gone++ {
		s.drop(s.order.Front().Value.(*xds.Resource))
	}
	return gone
}

// limit ends the time of those of the last run: they count from now on, as the oldest.
func (s *shelf) limit() (gone int) {
	for _, of := range s.types {
		for name, p := range of.names {
			if p.at == nil {
				s.bytes += size(p.Resource)
				of.names[name] = spot{p.Resource, s.order.PushFront(p.Resource)}
			}
		}
	}
	return s.trim()
}

func (s *shelf) drop(r *xds.Resource) {
	of := s.of(r.Type)
	p, ok := of.names[r.Name]
	if !ok || p.Resource != r {
		return
	}
	if delete(of.names, r.Name); p.at != nil {
		s.order.Remove(p.at)
		s.bytes -= size(r)
	}
	for _, a := range r.Aliases {
		if of.aliases[a] == r {
			delete(of.aliases, a)
		}
	}
}

// take takes away what there is of a name or alias: of a wildcard or a collection all that belongs
// to it.
func (s *shelf) take(t *xds.Type, name string) (list []*xds.Resource) {
	of := s.types[t.URL]
	if of == nil {
		return nil
	}
	if p, ok := of.names[name]; ok {
		list = append(list, p.Resource)
	} else if r := of.aliases[name]; r != nil {
		list = append(list, r)
	}
	if finds(name) {
		for n, p := range of.names {
			if !p.OnDemand && (name == xds.Wildcard || t.Collection(n) == name) {
				list = append(list, p.Resource)
			}
		}
	}
	for _, r := range list {
		s.drop(r)
	}
	return list
}
