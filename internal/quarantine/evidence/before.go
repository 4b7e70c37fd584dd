package evidence

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// This file answers which earlier versions a client may get.

// Before returns versions of a name that were served before the refused one and that clients accepted: the
// versions that clients of the same kind accepted come first, then the others, each as in [inTurn]. Of a
// secret it returns only the direct predecessor. The name is one that the client sees. The current version of
// the scope counts if it is not the refused one: a lane gets a later version than its group.
func (s *Scope) Before(now time.Time, t *xds.Type, name string, refused xds.Sum, agent string) (all []*xds.Resource) {
	same, other := s.before(now, t, name, refused, agent)
	if len(same)+len(other) == 0 { // a client with another identity sees the same versions of the name
		for _, o := range s.book.others(s) {
			is, not := o.before(now, t, name, refused, agent)
			same, other = append(same, is...), append(other, not...)
		}
		same, other = join(same), join(other)
	}
	for _, v := range append(inTurn(same), inTurn(other)...) {
		if !slices.ContainsFunc(all, func(r *xds.Resource) bool { return r.Sum == v.Sum }) {
			all = append(all, v.Resource)
		}
	}
	most := MaxBack
	if secret(t) {
		most = 1
	}
	return all[:min(len(all), most)]
}

// join sorts versions of several scopes, the newest first. Equal versions become one.
func join(vs []version) (all []version) {
	slices.SortStableFunc(vs, func(a, b version) int {
		return cmp.Or(b.until.Compare(a.until), strings.Compare(a.Version, b.Version))
	})
	for _, v := range vs {
		at := slices.IndexFunc(all, func(o version) bool { return o.Sum == v.Sum })
		if at < 0 {
			all = append(all, v)
		} else {
			all[at].add(v.support)
		}
	}
	return all
}

// inTurn sorts versions, newest first. After the newest comes the version that the most owners accepted who
// accepted none of the versions before it. So an owner that accepts each version costs one try.
func inTurn(vs []version) (all []version) {
	var heard ownerSet
	for next := 0; len(vs) > 0; {
		v := vs[next]
		all, vs, heard = append(all, v), slices.Delete(vs, next, next+1), heard|v.owners
		next = 0
		for i, v := range vs {
			if (v.owners &^ heard).count() > (vs[next].owners &^ heard).count() {
				next = i
			}
		}
	}
	return all
}

func (s *Scope) before(now time.Time, t *xds.Type, name string, refused xds.Sum, agent string) (same, other []version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(t)
	if e == nil {
		return nil, nil
	}
	vs := e.replaced[name]
	for i := range vs {
		if vs[i].until.After(now) { // the clock was wrong
			vs[i].until = now
		}
	}
	if r := e.visible(name); r != nil && r.Sum != refused {
		vs = append([]version{{Resource: r, support: e.acceptedBy(name, r.Sum), until: now}}, vs...)
	}
	if secret(t) {
		vs = vs[:min(len(vs), 1)]
	}
	for _, v := range vs {
		switch {
		case v.Sum == refused || v.removed || v.by == 0 || now.Sub(v.until) > MaxAge:
		case v.by.has(e, agent):
			same = append(same, v)
		default:
			other = append(other, v)
		}
	}
	return same, other
}

// Removed returns the last version of a resource that the client does not see, to which an earlier version of
// another resource may refer; nil: unknown. The group of a lane may still have the resource. Removed secrets may
// be revoked, and the addresses of removed endpoints may now belong to others: it returns neither.
func (s *Scope) Removed(now time.Time, t *xds.Type, name string) *xds.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(t)
	if e == nil || secret(t) || t.Is(xds.Endpoint) || t.Is(xds.Endpoint.Legacy()) {
		return nil
	}
	if r := e.visible(name); r != nil {
		return r // of the group, and the lane does not have it
	}
	vs := e.replaced[name]
	if len(vs) == 0 || !vs[0].removed || now.Sub(vs[0].until) > MaxAge {
		return nil
	}
	return vs[0].Resource
}

// RevisionOf returns the revision that set a version; "": unknown.
func (s *Scope) RevisionOf(t *xds.Type, name string, sum xds.Sum) string {
	for _, o := range append([]*Scope{s}, s.book.others(s)...) {
		if is := o.revisionOf(t, name, sum); is != "" {
			return is
		}
	}
	return s.revision(t, name, sum)
}

func (s *Scope) revisionOf(t *xds.Type, name string, sum xds.Sum) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(t); e != nil {
		for _, v := range e.replaced[name] {
			if v.Sum == sum {
				return v.revision
			}
		}
	}
	return ""
}

func (s *Scope) revision(t *xds.Type, name string, sum xds.Sum) string {
	if s.book.Revision == nil {
		return ""
	}
	return s.book.Revision(s.key.group, t, name, sum)
}

func secret(t *xds.Type) bool { return t.Is(xds.Secret) || t.Is(xds.Secret.Legacy()) }
