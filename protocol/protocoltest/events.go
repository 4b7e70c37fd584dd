package protocoltest

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// judge checks the events of a batch against the responses in it.
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
				return fmt.Errorf("%s %s: an event ends the wait for %s, but the wait goes on", e.Type, e.Name, e.By)
			}
		default:
		}
	}
	if sent != 0 {
		return fmt.Errorf("%d responses without an event", sent)
	}
	return nil
}

// ended reports whether a waived wait is over: a Departed event or a response with the name follows.
func ended(e protocol.Event, events []protocol.Event, responses []*xds.Response) bool {
	return slices.ContainsFunc(events, func(o protocol.Event) bool {
		return o.Kind == protocol.Departed && o.Type.Is(e.Type) && o.Name == e.Name
	}) || slices.ContainsFunc(responses, func(r *xds.Response) bool {
		return r.Type.Is(e.Type) && slices.ContainsFunc(r.Upserts, func(x *xds.Resource) bool { return x.Name == e.Name })
	})
}

// checkSize checks that a response that could be split is not too large. It counts only names, bodies, versions
// and aliases, so it may miss a response that is slightly too large.
func (l *ledger) checkSize(a *account, r *xds.Response) error {
	limit := l.opts.MaxResponse
	// A name is in removed_resources and resource_errors of the same response.
	items := len(r.Upserts) + len(r.Beats) + max(len(r.Removed)+len(r.Absent), len(r.Missing))
	if limit == 0 || a.world || r.Together || items < 2 {
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
		return fmt.Errorf("DELTA-13: a response of %d resources and names has more than %d bytes, the limit is %d", items, size, limit)
	}
	return nil
}
