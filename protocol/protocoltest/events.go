package protocoltest

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// judge judges the events of a drain by the responses that left in it.
func (n *lane) judge(events []protocol.Event, responses []*xds.Response) error {
	sent := len(responses)
	for i, e := range events {
		switch e.Kind {
		case protocol.Sent:
			sent--
		case protocol.Waived:
			if slices.ContainsFunc(events[:i], func(o protocol.Event) bool {
				return o.Kind == protocol.Waived && o.Type.Is(e.Type) && o.Name == e.Name && o.By.Is(e.By)
			}) {
				return fmt.Errorf("%s %s: the wait for %s ends twice", e.Type, e.Name, e.By)
			}
			if !ended(e, events, responses) {
				return fmt.Errorf("%s %s: told that the wait for %s has ended, and it goes on", e.Type, e.Name, e.By)
			}
		default:
		}
	}
	if sent != 0 {
		return fmt.Errorf("%d responses without an event", sent)
	}
	return nil
}

// ended reports whether a wait that was waived is over: "Departed follows, or a
// response leaves".
func ended(e protocol.Event, events []protocol.Event, responses []*xds.Response) bool {
	return slices.ContainsFunc(events, func(o protocol.Event) bool {
		return o.Kind == protocol.Departed && o.Type.Is(e.Type) && o.Name == e.Name
	}) || slices.ContainsFunc(responses, func(r *xds.Response) bool {
		return r.Type.Is(e.Type) && slices.ContainsFunc(r.Upserts, func(x *xds.Resource) bool { return x.Name == e.Name })
	})
}

// small checks that a response which could be split is not too large. Names, bodies,
// versions and aliases alone are counted, so it errs on the safe side.
func (l *ledger) small(a *account, r *xds.Response) error {
	limit := l.opts.MaxResponse
	// What removed_resources and resource_errors say of one name stands together.
	items := len(r.Upserts) + len(r.Beats) + max(len(r.Removed)+len(r.Absent), len(r.Missing))
	if limit == 0 || a.world || items < 2 {
		return nil
	}
	size := 0
	for _, x := range r.Upserts {
		size += len(x.Body)
	}
	for _, x := range slices.Concat(r.Upserts, r.Beats) {
		size += len(x.Name) + len(x.Version)
		for _, n := range x.Aliases {
			size += len(n)
		}
	}
	for _, n := range slices.Concat(r.Removed, r.Absent, r.Missing) {
		size += len(n)
	}
	if size > limit {
		return fmt.Errorf("DELTA-13: a response of %d resources and names has more than %d bytes, which is above %d", items, size, limit)
	}
	return nil
}
