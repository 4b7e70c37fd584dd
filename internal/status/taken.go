package status

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

// Taken says how the clients stand that see one of some groups. Those that refuse since before a time have not fallen.
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
			k.fall(s, since.UnixNano())
		case s.state >= synced:
			k.Acked++
		default:
			k.Waiting++
		}
	}
	return k
}

func (k *Taken) fall(s *standing, since int64) {
	for _, r := range s.rows {
		r.mu.Lock()
		for i := range r.types {
			u := &r.types[i]
			if f := u.refusal; f != nil && f.since >= since && (u.accepted != 0 || u.stated) && len(k.Fallen) < maxShown {
				k.Fallen = append(k.Fallen, Fallen{s.node, u.typ, f.names, f.text})
			}
		}
		r.mu.Unlock()
	}
}
