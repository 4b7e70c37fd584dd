package clients

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Taken is how the clients of some groups take what they were told.
type Taken struct {
	Clients, Acked, Refused, Waiting int
	Fallen                           []Fallen // 100 at most
}

// A Fallen client refuses something of a type of which it had something: what it accepted on its stream, or said that it has.
type Fallen struct {
	Node  string
	Type  *xds.Type
	Names []string // of the resources, as far as the client says it
	Text  string   // without secrets
}

// Taken says how the clients stand that see one of some groups, and who has fallen there since a time, which may have left. Who
// refused something of the type already at that time, or later in other groups, has not fallen.
func (t *Tracker) Taken(groups []string, since time.Time) (k Taken) {
	all := t.gather(nil, false).all
	for i := range all {
		s := &all[i]
		if !slices.ContainsFunc(t.grouped(s).groups, func(g string) bool { return slices.Contains(groups, g) }) {
			continue
		}
		k.Clients++
		switch {
		case s.state == nacked:
			k.Refused++
		case s.state >= synced:
			k.Acked++
		default:
			k.Waiting++
		}
	}
	k.Fallen = t.spells.fallen(groups, since.UnixNano())
	return k
}
