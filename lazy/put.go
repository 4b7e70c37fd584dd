package lazy

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A resolved is a resource that the resolver returned for one or more names.
type resolved struct {
	key
	results  []result
	resource *xds.Resource
}

// put commits the resources of a batch to the store. It returns the results that failed, each with its
// error.
func (s *Source) put(batch []result) (failed []result) {
	byName := map[key]*resolved{}
	for _, r := range batch {
		if r.err != nil {
			failed = append(failed, r)
		} else if r.resource != nil {
			k := key{r.group, r.url, r.resource.Name}
			f := byName[k]
			if f == nil {
				f = &resolved{key: k}
				byName[k] = f
			}
			f.results, f.resource = append(f.results, r), r.resource
		}
	}
	found := slices.Collect(maps.Values(byName))
	s.prepare(found)
	// One transaction for all resources. If it fails, one transaction for each.
	if err := s.commitResolved(found...); err == nil {
		s.recordStored(found)
		return failed
	}
	for _, f := range found {
		err := s.commitResolved(f)
		if err == nil {
			s.recordStored([]*resolved{f})
		}
		for _, r := range f.results {
			r.err = err
			if err != nil {
				failed = append(failed, r)
			}
		}
	}
	return failed
}

// prepare prepares resources for the store.
func (s *Source) prepare(found []*resolved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range found {
		h := s.stored[f.key]
		f.prepare(h)
	}
}

// prepare makes the resource a resource on demand. All names for which it was resolved become
// aliases.
func (f *resolved) prepare(h *storedResource) {
	names := map[string]bool{}
	for _, r := range f.results {
		names[r.name] = true
	}
	if h != nil {
		maps.Copy(names, h.names)
	}
	delete(names, f.name)
	for _, a := range f.resource.Aliases {
		delete(names, a)
	}
	own := &xds.Resource{Stamp: f.resource.Stamp, Type: f.resource.Type, Body: f.resource.Body, Aliases: f.resource.Aliases, TTL: f.resource.TTL, OnDemand: true}
	if len(names) > 0 {
		own.Aliases = slices.Concat(own.Aliases, slices.Sorted(maps.Keys(names)))
		version := own.Version
		if version == own.Sum.String() {
			version = ""
		}
		own.Seal(version)
	}
	f.resource = own
}

// commitResolved commits resources to the store.
func (s *Source) commitResolved(found ...*resolved) error {
	if len(found) == 0 {
		return nil
	}
	_, err := s.store.Update(func(tx *store.Tx) error {
		for _, f := range found {
			tx.Group(store.UnderlayOf(f.group)).Set(f.resource)
		}
		return nil
	})
	return err
}

// recordStored records committed resources and their names.
func (s *Source) recordStored(found []*resolved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range found {
		h := s.stored[f.key]
		if h == nil {
			h = &storedResource{key: f.key, typ: f.results[0].typ, names: map[string]bool{}}
			s.stored[f.key] = h
		}
		for _, r := range f.results {
			if s.isCurrent(r.entry) {
				r.finish(time.Time{}, 0)
				s.attach(r.entry, h)
				s.reschedule(r.entry)
			}
		}
		if len(h.names) == 0 { // all names were forgotten meanwhile
			s.orphans = append(s.orphans, h)
		}
	}
}
