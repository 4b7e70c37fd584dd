package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file separates withheld names from the other names of their refusals (HEAL-1). A withheld name
// was refused because of a fault of its own, and the client has accepted no version of it. The client
// is not sent its removal. Terms: see doc.go.

// withheld returns the names of a type that the view withholds from the client.
func (s *Session) withheld(t *xds.Type) []string {
	if v, ok := s.view.(xds.Withholding); ok {
		return v.Withheld(t)
	}
	return nil
}

// withholds reports whether the view withholds all of the names, and the client has accepted none of them (HEAL-1).
func (s *Session) withholds(u *subscription, names []string) bool {
	all := s.withheld(u.typ)
	removes := func(n string) bool { return !slices.Contains(all, n) || stands(u.told(n)) && !u.refuses(n) }
	return len(all) > 0 && !slices.ContainsFunc(names, removes)
}

// withhold holds back each withheld member of a refusal alone, and marks the other members to be sent
// again. A member that is no longer withheld is marked, too.
//
// If the responses have the full state, the table shows a withheld resource only to a client that judges
// each resource by itself. Such a client has applied the other resources, so nothing is sent again.
//
// If the message also had the resource that the view tries again, the view shows another state of this resource soon,
// or tries it later. Until then, it is held back, too.
func (s *Session) withhold(u *subscription) {
	if len(u.refusals) == 0 {
		return
	}
	world, t := s.tellsWorld(u), s.table(u.typ)
	names, tried := s.withheld(u.typ), s.tried(u)
	if world {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return t.Lookup(n) != nil })
	}
	for i := range u.refusals {
		r := &u.refusals[i]
		free := r.rejoin(slices.Concat(names, tried))
		if len(free) > 0 {
			later := u.laterThan(r.nonce) // the answer to a later response decides
			u.retell(r, func(name string, _ item) bool { return free[name] && !later(name) && (!world || !u.toldGone(name)) })
			u.Owe(u.Due || world)
		}
		if fresh := r.separate(names); fresh && !r.retold {
			r.separate(tried)
			u.retell(r, func(name string, _ item) bool { return !world || !u.toldGone(name) })
			u.Owe(u.Due || world && r.left > len(r.apart)) // the client may not have applied the removals, either
		}
	}
	if !world {
		s.returnWithheld(u, t, names)
	}
}

// returnWithheld counts the state of a withheld name as told if the client has refused this state, although it was
// sent other states since. So only a retry sends this state again. The view returns to it when the client has
// refused all replacements (HEAL-3).
func (s *Session) returnWithheld(u *subscription, t *xds.Table, names []string) {
	var extra []entry
	for _, n := range names {
		in, e := t.Lookup(n), u.Entry(n)
		if !u.demand.shows(in) || same(u.told(n), in.Stamp) || e != nil && e.Again || !u.hasRefused(n, in.Stamp) || u.Kept(n) != nil {
			continue
		}
		if d, _ := u.unanswered(n, 0); d != nil {
			continue // the answer decides
		}
		if e == nil {
			extra = append(extra, entry{Name: n, Told: in.Stamp})
		} else {
			e.Had(in.Stamp)
		}
		for i := range u.refusals {
			if r := &u.refusals[i]; s.retries() && r.has(n) && same(r.Carries(n), in.Stamp) {
				s.schedule(r)
			}
		}
	}
	u.add(extra...)
}

// holdsTold reports whether r holds a name back alone whose refused state was told last.
func (u *subscription) holdsTold(r *refusal) bool {
	for n := range r.apart {
		if same(u.told(n), r.Carries(n)) {
			return true
		}
	}
	return false
}

// setApart holds a member back alone.
func (r *refusal) setApart(name string) {
	if r.apart == nil {
		r.apart = map[string]bool{}
	}
	r.apart[name] = true
}

// rejoin holds back the members that are not among names with the others again, and returns them.
func (r *refusal) rejoin(names []string) (free map[string]bool) {
	free = map[string]bool{}
	for n := range r.apart {
		if !slices.Contains(names, n) {
			free[n] = true
			delete(r.apart, n)
		}
	}
	return free
}

// separate holds the members among names back alone. It reports whether the refused message had any of these
// resources. Without them, the other members were refused all the same.
func (r *refusal) separate(names []string) (found bool) {
	for _, n := range names {
		if r.has(n) && !r.apart[n] {
			r.setApart(n)
			found = found || stands(r.Carries(n))
		}
	}
	return found
}
