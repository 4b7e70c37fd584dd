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
		for _, ts := range c.types {
			for ts.due(c.aggregated || ts.ownStream) {
				if !yield(ts.nextRequest()) {
					return
				}
			}
		}
	}
}

// nextRequest returns a request that is due. "Only the first request on a stream is guaranteed to
// carry the node identifier" (CLI-4).
func (ts *typeState) nextRequest() xds.Request {
	req := xds.Request{Type: ts.typ}
	nodeSent := &ts.client.nodeSent
	if ts.ownStream {
		nodeSent = &ts.nodeSent
	}
	if !*nodeSent {
		req.Node, *nodeSent = ts.client.opts.Node, true
	}
	if ts.delta {
		ts.fillDelta(&req)
	} else {
		ts.fillSotW(&req)
	}
	return req
}

// due reports whether a request is due. Without a subscription there is no first request, because
// an empty first request would mean "*".
func (ts *typeState) due(connected bool) bool {
	switch {
	case !connected:
		return false
	case !ts.opened:
		return ts.subscriptions > 0
	}
	return len(ts.answers) > 0 || len(ts.unsent) > 0
}

// open prepares the first request on a stream. It reports whether the request must have an empty
// list of names, which implies "*".
func (ts *typeState) open(legacy bool) bool {
	// A server does not send the resources of a version that the client states. So the client
	// states no version if its subscription has changed since then, or if it holds only some of the
	// resources (CLI-4).
	if !ts.complete || len(ts.unsent) > 0 {
		ts.version = ""
	}
	ts.opened, ts.namesUnchanged = true, true
	ts.implicitWildcard = legacy && ts.typ.Implicit && ts.onlyWildcard()
	return ts.implicitWildcard
}

// onlyWildcard reports whether "*" is the only subscription.
func (ts *typeState) onlyWildcard() bool {
	return ts.subscriptions == 1 && ts.has(xds.Wildcard, isSubscribed)
}

// fillSotW fills in a DiscoveryRequest (CLI-14). "All subsequent requests from the client must set the
// response_nonce field to the most recent nonce received from the server on that stream". If
// several responses arrive together, each gets an answer with its own nonce.
func (ts *typeState) fillSotW(req *xds.Request) {
	first := !ts.opened
	if first {
		ts.open(ts.client.opts.Legacy)
	} else if len(ts.unsent) > 0 {
		ts.namesUnchanged, ts.complete = false, false
	}
	req.Nonce, req.Version = ts.nonce, ts.version
	if a, ok := ts.nextAnswer(); ok {
		req.Nonce, req.Version, req.Error = a.nonce, a.version, a.status
	}
	if ts.implicitWildcard && ts.subscriptions == 0 {
		// On this stream an empty list still implies "*". A request that lists "*" ends that. The
		// next request has an empty list, which then means no subscription. It is still due,
		// because unsent is not cleared here.
		req.Names, ts.implicitWildcard = []string{xds.Wildcard}, false
		return
	}
	ts.implicitWildcard = ts.implicitWildcard && ts.onlyWildcard()
	if !ts.implicitWildcard {
		req.Names = ts.subscribedNames()
	}
	ts.requestSent(first)
}

// fillDelta fills in a DeltaDiscoveryRequest (CLI-14). The request has a nonce only if it answers
// a response: "The nonce field is required and used to pair a DeltaDiscoveryResponse to a
// DeltaDiscoveryRequest ACK or NACK."
func (ts *typeState) fillDelta(req *xds.Request) {
	first := !ts.opened
	switch {
	case !first:
		req.Subscribe, req.Unsubscribe = ts.unsentNames()
	case !ts.open(ts.client.opts.Legacy):
		req.Subscribe = ts.subscribedNames()
	}
	ts.requestSent(first)
	if first {
		req.Initial = ts.initialVersions()
	}
	if a, ok := ts.nextAnswer(); ok {
		req.Nonce, req.Error = a.nonce, a.status
	}
}

// unsentNames returns the changes of the subscription since the last request, sorted.
func (ts *typeState) unsentNames() (added, removed []string) {
	for _, name := range slices.Sorted(maps.Keys(ts.unsent)) {
		if ts.names[name].subscribed {
			added = append(added, name)
		} else {
			removed = append(removed, name)
		}
	}
	return added, removed
}

// initialVersions returns the names and versions of the resources held (CLI-4). If the server does
// not know that the client holds a resource, the version is empty. Then the server sends the state or
// the removal of this resource.
func (ts *typeState) initialVersions() (list []xds.Version) {
	for _, name := range slices.Sorted(maps.Keys(ts.names)) {
		n := ts.names[name]
		if n.res == nil {
			continue
		}
		v := xds.Version{Name: n.res.Name}
		if !n.unknownToServer {
			v.Version = n.res.Version
		}
		list = append(list, v)
	}
	return list
}

// nextAnswer removes and returns the oldest answer that is due.
func (ts *typeState) nextAnswer() (a answer, ok bool) {
	if len(ts.answers) == 0 {
		return a, false
	}
	a, ts.answers = ts.answers[0], ts.answers[1:]
	return a, true
}

// subscribedNames returns the subscribed names, sorted; nil if there are none.
func (ts *typeState) subscribedNames() []string {
	if ts.sorted == nil && ts.subscriptions > 0 {
		ts.sorted = make([]string, 0, ts.subscriptions)
		for name, n := range ts.names {
			if n.subscribed {
				ts.sorted = append(ts.sorted, name)
			}
		}
		slices.Sort(ts.sorted)
	}
	return slices.Clip(ts.sorted)
}

// requestSent records that the server knows all subscribed names after the request which is sent now.
// It drops resources that none of these names finds (CLI-7), and starts the timeouts of new names. On a
// new stream, it starts the timeouts of all names, because timeouts end with a stream (CLI-3).
func (ts *typeState) requestSent(first bool) {
	var dropped []string
	names := slices.Sorted(maps.Keys(ts.unsent))
	if len(names) > 0 {
		ts.unsent = map[string]bool{} // a map does not shrink
	}
	for _, name := range names {
		n := ts.names[name]
		ts.markRequested(name, n)
		if !n.subscribed {
			dropped = append(dropped, name)
		} else if !first {
			ts.startTimeout(name, n)
		}
	}
	for _, name := range dropped {
		ts.dropUnwanted(name)
	}
	if first {
		for name, n := range ts.names {
			ts.startTimeout(name, n)
		}
	}
}
