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
			if slices.ContainsFunc(events[:i], func(o protocol.Event) bool { return waivesSame(o, e) }) {
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

// waivesSame reports whether an event ends the same wait as another one.
func waivesSame(o, e protocol.Event) bool {
	return o.Kind == protocol.Waived && o.Type.Is(e.Type) && o.Name == e.Name && o.By.Is(e.By)
}

// ended reports whether a waived wait is over: a Departed event or a response with the name follows.
func ended(e protocol.Event, events []protocol.Event, responses []*xds.Response) bool {
	return slices.ContainsFunc(events, func(o protocol.Event) bool {
		return o.Kind == protocol.Departed && o.Type.Is(e.Type) && o.Name == e.Name
	}) || slices.ContainsFunc(responses, func(r *xds.Response) bool {
		return r.Type.Is(e.Type) && slices.ContainsFunc(r.Upserts, func(x *xds.Resource) bool { return x.Name == e.Name })
	})
}
