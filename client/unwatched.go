package client

import (
	"cmp"
	"container/list"

	"github.com/chancery-xds/chancery/xds"
)

// An unwatched is a cache of resources without a watch, by name and by alias. If a name is also the
// alias of another resource, the resource with that name has precedence. An unwatched does no I/O.
//
// Resources of the previous run do not count towards the limit until limitLastRun is called, so that
// the watches of this run can find them.
type unwatched struct {
	types map[string]*unwatchedType // by type URL
	order list.List                 // of *xds.Resource, the oldest first; without resources of the previous run until limitLastRun
	most  int                       // limit of bytes; 0: maxUnwatched
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

// put adds a resource and replaces a resource of the same name. It returns the number of resources
// that were dropped to make room. If the resource itself is larger than the limit, it is not added,
// and counts as dropped.
func (s *unwatched) put(r *xds.Resource) (gone int) {
	if old, ok := s.ofType(r.Type).names[r.Name]; ok {
		s.drop(old.Resource)
	}
	if size(r) > cmp.Or(s.most, maxUnwatched) {
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

// trim drops the oldest resources until the others are within the limit.
func (s *unwatched) trim() (gone int) {
	for ; s.bytes > cmp.Or(s.most, maxUnwatched); gone++ {
		s.drop(s.order.Front().Value.(*xds.Resource))
	}
	return gone
}

// limitLastRun counts the resources of the previous run towards the limit from now on. They count
// as the oldest resources.
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

// take removes and returns the resource with a name or an alias. For a wildcard or a collection, it
// takes all matching resources.
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
