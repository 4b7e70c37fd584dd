package protocol

import (
	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// A resource that releases an address, or is removed, goes in the same or an earlier message than the resource
// that takes the address (HEAL-4). Envoy applies the removals of a message first, then its resources in their
// order, and refuses a listener with the address of another. Terms: see doc.go.

// binders returns the states of resources with addresses that the client was told, and others that it may hold,
// of names that the diff may change. Nil: the changes that the table computes have the right order already. Call
// it before the diff is told.
func (s *Session) binders(u *subscription, d *diff) (told, others []*xds.Stamp) {
	if !u.typ.Binds || d.shared != nil && !u.Anew && len(u.deliveries)+len(u.refusals) == 0 {
		return nil, nil
	}
	for name := range d.names {
		if st := u.told(name); st.Addresses != nil {
			told = append(told, st)
		}
	}
	s.mayHold(u, func(st *xds.Stamp, _ delay.Reason) {
		if st.Addresses != nil {
			others = append(others, st)
		}
	})
	return told, others
}
