package lazy

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A finding is a resource that was found, under one name or several.
type finding struct {
	key
	results  []result
	resource *xds.Resource
	ours     bool // the store has one by this name, which we have put there
}

// put puts what was found into the store, and returns the results that it could
// do nothing with, each with its error.
func (s *Source) put(batch []result) (failed []result) {
	byName := map[key]*finding{}
	for _, r := range batch {
		if r.err != nil {
			failed = append(failed, r)
		} else if r.resource != nil {
			k := key{r.group, r.url, r.resource.Name}
			f := byName[k]
			if f == nil {
				f = &finding{key: k}
				byName[k] = f
			}
			f.results, f.resource = append(f.results, r), r.resource
		}
	}
	found := slices.Collect(maps.Values(byName))
	s.fit(found)
	// One transaction for all; if there is something wrong with one, one for each.
	if err := s.set(found...); err == nil {
		s.keep(found)
		return failed
	}
	for _, f := range found {
		err := s.set(f)
		if err == nil {
			s.keep([]*finding{f})
		}
		for _, r := range f.results {
			if r.err = err; err != nil {
				failed = append(failed, r)
			}
		}
	}
	return failed
}

// fit makes the findings fit for the store.
func (s *Source) fit(found []*finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range found {
		h := s.found[f.key]
		f.ours = h != nil
		f.fit(h)
	}
}

// fit makes the resource one on demand, with all names by which it was found as
// aliases.
func (f *finding) fit(h *holding) {
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

// set commits findings.
func (s *Source) set(found ...*finding) error {
	if len(found) == 0 {
		return nil
	}
	_, err := s.store.Update(func(tx *store.Tx) error {
		for _, f := range found {
			g, t := tx.Group(f.group), f.results[0].typ
			if r := g.Lookup(t, f.name); r != nil && (!f.ours || !r.OnDemand) {
				return errors.New("the store has another resource of the name " + f.name)
			}
			g.Set(f.resource)
		}
		return nil
	})
	return err
}

// keep notes what was committed.
func (s *Source) keep(found []*finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range found {
		h := s.found[f.key]
		if h == nil {
			h = &holding{key: f.key, typ: f.results[0].typ, names: map[string]bool{}}
			s.found[f.key] = h
		}
		h.sum = f.resource.Sum
		for _, r := range f.results {
			if s.current(r.entry) {
				r.rest(time.Time{}, 0)
				s.hold(r.entry, h)
				s.settle(r.entry)
			}
		}
		if len(h.names) == 0 { // all were forgotten meanwhile
			s.orphans = append(s.orphans, h)
		}
	}
}
