package client

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Check checks the client's invariants. The simulation calls it after each step.
func (c *Client) Check() error {
	timers := 0
	for _, w := range c.types {
		if w.all != w.names[xds.Wildcard] {
			return fmt.Errorf("%s: all is not the entry of the wildcard", w.typ)
		}
		rows := map[*nameState]bool{}
		for _, n := range w.rows {
			rows[n] = true
		}
		asks, strays, found, spoiled := 0, 0, map[string]map[string]bool{}, map[string]map[string]bool{}
		for name, n := range w.names {
			if n.asked {
				asks++
			}
			if n.stray {
				strays++
			}
			if (n.asked != n.told) != w.changed[name] {
				return fmt.Errorf("%s %s: asked %v, told %v, changed %v", w.typ, name, n.asked, n.told, w.changed[name])
			}
			if !n.asked && !n.told && n.res == nil && !n.stray {
				return fmt.Errorf("%s %s: the entry has no subscription, resource or fault", w.typ, name)
			}
			if n.stray && (n.fault == nil || n.asked || n.told || n.res != nil) {
				return fmt.Errorf("%s %s is stray, but has no fault, or has a subscription or a resource", w.typ, name)
			}
			if !w.delta && n.shows() && (w.listed && !rows[n] || n.called() != name) {
				return fmt.Errorf("%s %s is not in the rows, or has the name %s", w.typ, name, n.called())
			}
			if n.timer > 0 {
				timers++
				if t := c.timers[n.timer-1]; t.of != n || t.name != name || t.typ != w {
					return fmt.Errorf("%s %s: the timer belongs to another name", w.typ, name)
				}
			}
			if n.gone != unheard && (n.res != nil || w.finds(name)) {
				return fmt.Errorf("%s %s matches a resource, but counts as gone", w.typ, name)
			}
			if f := n.fault; f != nil && f.of != "" {
				for i, s := range f.by {
					if !w.has(s, isEither) || slices.Contains(f.by[:i], s) || f.of != name {
						return fmt.Errorf("%s %s is refused for %v: a duplicate, or a name without a subscription", w.typ, name, f.by)
					}
					if s != name && s != xds.Wildcard {
						put(spoiled, s, name)
					}
				}
				if isEither(n) && !slices.Contains(f.by, name) {
					return fmt.Errorf("%s %s is refused, but not for its own name", w.typ, name)
				}
			}
			if n.res == nil {
				continue
			}
			if !w.covers(name, n.res, func(n *nameState) bool { return n.asked || n.told }, "") {
				return fmt.Errorf("%s %s is held without a subscription", w.typ, name)
			}
			if w.delta {
				for s := range w.others(name, n.res) {
					put(found, s, name)
				}
			}
		}
		if asks != w.asks || strays != w.strays || fmt.Sprint(found) != fmt.Sprint(w.found) || fmt.Sprint(spoiled) != fmt.Sprint(w.spoiled) {
			return fmt.Errorf("%s: %d subscribed, the count is %d; %d stray, the count is %d; found %v, recorded %v; spoiled %v, recorded %v", w.typ, asks, w.asks, strays, w.strays, found, w.found, spoiled, w.spoiled)
		}
		if n := w.names[xds.Wildcard]; n != nil && n.timer > 0 {
			return fmt.Errorf("%s: a wildcard has a timer", w.typ)
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
	for _, w := range c.types {
		w.rows, w.listed = nil, false
	}
}
