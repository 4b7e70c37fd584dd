package client

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Check checks the client's invariants. The simulation calls it after each step.
func (c *Client) Check() error {
	timers := 0
	for _, ts := range c.types {
		if ts.wildcard != ts.names[xds.Wildcard] {
			return fmt.Errorf("%s: the field wildcard is not the entry of the wildcard", ts.typ)
		}
		rows := map[*nameState]bool{}
		for _, n := range ts.rows {
			rows[n] = true
		}
		subscriptions, onlyRefused, held, refused := 0, 0, matches{}, matches{}
		for name, n := range ts.names {
			if n.subscribed {
				subscriptions++
			}
			if n.onlyRefused {
				onlyRefused++
			}
			if (n.subscribed != n.requested) != ts.unsent[name] {
				return fmt.Errorf("%s %s: subscribed %v, requested %v, unsent %v", ts.typ, name, n.subscribed, n.requested, ts.unsent[name])
			}
			if !isWanted(n) && n.res == nil && !n.onlyRefused {
				return fmt.Errorf("%s %s: the entry has no subscription, resource or fault", ts.typ, name)
			}
			if n.onlyRefused && (n.fault == nil || isWanted(n) || n.res != nil) {
				return fmt.Errorf("%s %s counts as only refused, but has no fault, or has a subscription or a resource", ts.typ, name)
			}
			if !ts.delta && n.hasResource() && (ts.rowsComplete && !rows[n] || n.resourceName() != name) {
				return fmt.Errorf("%s %s is not in the rows, or has the name %s", ts.typ, name, n.resourceName())
			}
			if n.timer > 0 {
				timers++
				if t := c.timers[n.timer-1]; t.of != n || t.name != name || t.ts != ts {
					return fmt.Errorf("%s %s: the timer belongs to another name", ts.typ, name)
				}
			}
			if n.missing != notReported && (n.res != nil || ts.matchesOthers(name)) {
				return fmt.Errorf("%s %s matches a resource, but counts as missing", ts.typ, name)
			}
			if f := n.fault; f != nil && f.resource != "" {
				for i, s := range f.subscribers {
					if !ts.has(s, isWanted) || slices.Contains(f.subscribers[:i], s) || f.resource != name {
						return fmt.Errorf("%s %s is refused for %v: a duplicate, or a name without a subscription", ts.typ, name, f.subscribers)
					}
					if s != name && s != xds.Wildcard {
						refused.add(s, name)
					}
				}
				if isWanted(n) && !slices.Contains(f.subscribers, name) {
					return fmt.Errorf("%s %s is refused, but not for its own name", ts.typ, name)
				}
			}
			if n.res == nil {
				continue
			}
			if !ts.covers(name, n.res, isWanted, "") {
				return fmt.Errorf("%s %s is held without a subscription", ts.typ, name)
			}
			if ts.delta {
				for s := range ts.otherNames(name, n.res) {
					held.add(s, name)
				}
			}
		}
		if subscriptions != ts.subscriptions || onlyRefused != ts.onlyRefused || fmt.Sprint(held) != fmt.Sprint(ts.held) || fmt.Sprint(refused) != fmt.Sprint(ts.refused) {
			return fmt.Errorf("%s: %d subscribed, the count is %d; %d only refused, the count is %d; held %v, recorded %v; refused %v, recorded %v", ts.typ, subscriptions, ts.subscriptions, onlyRefused, ts.onlyRefused, held, ts.held, refused, ts.refused)
		}
		if n := ts.names[xds.Wildcard]; n != nil && n.timer > 0 {
			return fmt.Errorf("%s: a wildcard has a timer", ts.typ)
		}
	}
	if timers != len(c.timers) {
		return fmt.Errorf("%d timers, %d in the heap", timers, len(c.timers))
	}
	return nil
}

// Forget makes the client look up each name of the next response, and each name that the response
// lacks. The rows only save time.
func (c *Client) Forget() {
	for _, ts := range c.types {
		ts.rows, ts.rowsComplete = nil, false
	}
}
