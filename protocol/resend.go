package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Resend marks resources of a type to be sent again, changed or not: the resources that the client was
// sent, and the resources and removals that it has refused. An empty name means all names. The result is
// the number of these names. The next call of Responses sends them by the usual rules, so references and
// unanswered responses may delay them (ADS-3, SOTW-3).
func (s *Session) Resend(t *xds.Type, name string) (count int) {
	u := s.sub(t)
	if u == nil {
		return 0
	}
	refused := u.refusedNames(name)
	for _, n := range refused {
		if !stands(u.told(n)) {
			count++ // a removal
		}
	}
	var extra []entry
	switch e := u.Entry(name); {
	case name == "":
		count += u.repeatAll()
	case e != nil:
		count += u.repeatTold(e)
	case u.wildcard:
		if st := u.base.Get(name); st != nil {
			extra = append(extra, entry{Name: st.Name, Told: st, Again: true})
			count++
		}
	}
	if count > 0 {
		u.state("") // the version that the client states is no reason to send nothing
	}
	u.addTouched(extra)
	u.dissolve(name == "" && s.tellsWorld(u), slices.Values(refused))
	return count
}

// refusedNames returns the name, or all names if it is empty, as far as the client has refused them.
func (u *subscription) refusedNames(name string) (all []string) {
	for i := range u.refusals {
		for n := range u.refusals[i].members {
			if name == "" || n == name {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// repeatAll marks all resources that the client was told to be sent again, and returns their number.
func (u *subscription) repeatAll() (count int) {
	plain := u.base.Len()
	for e := range u.Entries() {
		count += u.repeatTold(e)
		if u.base.Get(e.Name) != nil {
			plain--
		}
	}
	if u.wildcard && u.base.Len() > 0 {
		u.Renew(true)
		u.NoteAll()
		count += plain
	}
	return count
}

// repeatTold marks an entry to be sent again, if the client was told a resource of this name.
func (u *subscription) repeatTold(e *entry) int {
	if !stands(e.Told) || u.Kept(e.Name) != nil {
		return 0
	}
	e.Repeat(true)
	u.Touch(e)
	return 1
}
