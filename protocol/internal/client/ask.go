package client

import (
	"iter"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Requests yields the requests that are due on the connected streams, in push order of their types.
// A yielded request counts as sent: the timeouts of new names begin now, which is the time of the
// last [Client.Advance]. The caller must not change a request.
func (c *Client) Requests() iter.Seq[xds.Request] {
	return func(yield func(xds.Request) bool) {
		for _, w := range c.types {
			for w.due(c.all || w.streams) {
				req := xds.Request{Type: w.typ}
				greeted := &c.greeted
				if w.streams {
					greeted = &w.greeted
				}
				if !*greeted {
					req.Node, *greeted = c.opts.Node, true
				}
				if c.variant == xds.SotW {
					c.sotw(w, &req)
				} else {
					c.incremental(w, &req)
				}
				if !yield(req) {
					return
				}
			}
		}
	}
}

// due reports whether a request is due. Without a subscription there is no first request, because
// an empty first request would mean "*".
func (w *typeState) due(connected bool) bool {
	if !connected {
		return false
	}
	if !w.opened {
		return w.asks > 0
	}
	return len(w.verdicts) > 0 || len(w.changed) > 0
}

// open prepares the first request on a stream. It reports whether the request must have an empty
// list of names, which implies "*".
func (w *typeState) open(legacy bool) bool {
	// A server does not send the resources of a version that the client states. So the client
	// states no version if its subscription has changed since then, or if it holds only some of the
	// resources.
	if !w.exact || len(w.changed) > 0 {
		w.version, w.exact = "", false
	}
	w.opened, w.steady = true, true
	w.nameless = legacy && w.typ.Implicit && w.everything()
	return w.nameless
}

// everything reports whether "*" is the only subscription.
func (w *typeState) everything() bool {
	return w.asks == 1 && w.has(xds.Wildcard, isAsked)
}

// sotw fills in a DiscoveryRequest (CLI-14). "All subsequent requests from the client must set the
// response_nonce field to the most recent nonce received from the server on that stream". If
// several responses arrive together, each gets an answer with its own nonce.
func (c *Client) sotw(w *typeState, req *xds.Request) {
	first := !w.opened
	if first {
		w.open(c.opts.Legacy)
	} else if len(w.changed) > 0 {
		w.steady, w.exact = false, false
	}
	req.Nonce, req.Version = w.nonce, w.version
	if v, ok := w.verdict(); ok {
		req.Nonce, req.Version, req.Error = v.nonce, v.version, v.status
	}
	if w.nameless && w.asks == 0 {
		// On this stream an empty list still implies "*". A request that lists "*" ends that. The
		// next request has an empty list, which then means no subscription. It is still due,
		// because changed is not cleared here.
		req.Names, w.nameless = []string{xds.Wildcard}, false
		return
	}
	w.nameless = w.nameless && w.everything()
	if !w.nameless {
		req.Names = w.asking()
	}
	c.tellAll(w, first)
}

// incremental fills in a DeltaDiscoveryRequest (CLI-14). The request has a nonce only if it answers
// a response: "The nonce field is required and used to pair a DeltaDiscoveryResponse to a
// DeltaDiscoveryRequest ACK or NACK."
func (c *Client) incremental(w *typeState, req *xds.Request) {
	first := !w.opened
	if first {
		if !w.open(c.opts.Legacy) {
			req.Subscribe = w.asking()
		}
	} else {
		for _, name := range slices.Sorted(maps.Keys(w.changed)) {
			if w.names[name].asked {
				req.Subscribe = append(req.Subscribe, name)
			} else {
				req.Unsubscribe = append(req.Unsubscribe, name)
			}
		}
	}
	c.tellAll(w, first)
	if first {
		req.Initial = w.initial()
	}
	if v, ok := w.verdict(); ok {
		req.Nonce, req.Error = v.nonce, v.status
	}
}

// initial returns the names and versions of the resources held (CLI-4). If the server does not know
// that the client holds a resource, the version is empty. Then the server sends the state or the
// removal of this resource.
func (w *typeState) initial() (list []xds.Version) {
	for _, name := range slices.Sorted(maps.Keys(w.names)) {
		if n := w.names[name]; n.res != nil {
			v := xds.Version{Name: n.res.Name}
			if !n.foreign {
				v.Version = n.res.Version
			}
			list = append(list, v)
		}
	}
	return list
}

// verdict removes and returns the oldest verdict that is due.
func (w *typeState) verdict() (v verdict, ok bool) {
	if len(w.verdicts) == 0 {
		return v, false
	}
	v, w.verdicts = w.verdicts[0], w.verdicts[1:]
	return v, true
}

// asking returns the asked names, sorted; nil if there are none.
func (w *typeState) asking() []string {
	if w.list == nil && w.asks > 0 {
		w.list = make([]string, 0, w.asks)
		for name, n := range w.names {
			if n.asked {
				w.list = append(w.list, name)
			}
		}
		slices.Sort(w.list)
	}
	return slices.Clip(w.list)
}

// tellAll records that the server knows all asked names after the request which is sent now. It
// drops resources that none of these names finds, and starts the timeouts of new names. On a new
// stream, it starts the timeouts of all names, because timeouts end with a stream.
func (c *Client) tellAll(w *typeState, first bool) {
	var dropped []string
	names := slices.Sorted(maps.Keys(w.changed))
	if len(names) > 0 {
		w.changed = map[string]bool{} // a map does not shrink
	}
	for _, name := range names {
		n := w.names[name]
		w.tell(name, n)
		if !n.asked {
			dropped = append(dropped, name)
		} else if !first {
			c.await(w, name, n)
		}
	}
	for _, name := range dropped {
		c.shed(w, name)
	}
	if first {
		for name, n := range w.names {
			c.await(w, name, n)
		}
	}
}
