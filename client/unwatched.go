package client

import (
	"container/list"

	"github.com/chancery-xds/chancery/xds"
)

// An unwatched holds resources without a watch, by name and by alias. A resource's own name has
// precedence over an alias of another. It is a value without I/O.
//
// Resources of the previous run do not count towards the limit until limitLastRun is called, so that
// the watches of this run can find them.
type unwatched struct {
	types map[string]*unwatchedType // by type URL
	order list.List                 // of *xds.Resource, the oldest first; without resources of the previous run
	bytes int                       // size of the resources in order
}

// An unwatchedType holds the resources of one type.
type unwatchedType struct {
	names   map[string]unwatchedResource
	aliases map[string]*xds.Resource
}

// An unwatchedResource is a resource with its place in the order.
type unwatchedResource struct {
	*xds.Resource
	element *list.Element // in order; nil: from the previous run, not counted yet
}

func size(r *xds.Resource) int { return len(r.Body) + len(r.Name) + 200 }

func (s *unwatched) ofType(t *xds.Type) *unwatchedType {
	of := s.types[t.URL]
	if of == nil {
		if s.types == nil {
			s.types = map[string]*unwatchedType{}
		}
		of = &unwatchedType{names: map[string]unwatchedResource{}, aliases: map[string]*xds.Resource{}}
		s.types[t.URL] = of
	}
	return of
}

// addFromLastRun adds a resource of the previous run.
func (s *unwatched) addFromLastRun(r *xds.Resource) { s.add(r, nil) }

// put adds a resource and replaces one of the same name. It returns how many resources were dropped to
// make room. A resource larger than the limit is dropped itself.
func (s *unwatched) put(r *xds.Resource) (gone int) {
	if old, ok := s.ofType(r.Type).names[r.Name]; ok {
		s.drop(old.Resource)
	}
	if size(r) > maxUnwatched {
		return 1
	}
	s.bytes += size(r)
	s.add(r, s.order.PushBack(r))
	return s.trim()
}

func (s *unwatched) add(r *xds.Resource, at *list.Element) {
	of := s.ofType(r.Type)
	of.names[r.Name] = unwatchedResource{r, at}
	for _, a := range r.Aliases {
		of.aliases[a] = r
	}
}

// trim drops the oldest resources until the limit is kept.
func (s *unwatched) trim() (gone int) {
	for ; s.bytes > maxUnwatched; gone++ {
		s.drop(s.order.Front().Value.(*xds.Resource))
	}
	return gone
}

// limitLastRun starts counting the resources of the previous run towards the limit, as the oldest.
func (s *unwatched) limitLastRun() (gone int) {
	for _, of := range s.types {
		for name, p := range of.names {
			if p.element == nil {
				s.bytes += size(p.Resource)
				of.names[name] = unwatchedResource{p.Resource, s.order.PushFront(p.Resource)}
			}
		}
	}
	return s.trim()
}

func (s *unwatched) drop(r *xds.Resource) {
	of := s.ofType(r.Type)
	p, ok := of.names[r.Name]
	if !ok || p.Resource != r {
		return
	}
	delete(of.names, r.Name)
	if p.element != nil {
		s.order.Remove(p.element)
		s.bytes -= size(r)
	}
	for _, a := range r.Aliases {
		if of.aliases[a] == r {
			delete(of.aliases, a)
		}
	}
}

// take removes and returns the resources of a name or alias; of a wildcard or a collection, all that it
// matches.
func (s *unwatched) take(t *xds.Type, name string) (list []*xds.Resource) {
	of := s.types[t.URL]
	if of == nil {
		return nil
	}
	if p, ok := of.names[name]; ok {
		list = append(list, p.Resource)
	} else if r := of.aliases[name]; r != nil {
		list = append(list, r)
	}
	if isGlob(name) {
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
