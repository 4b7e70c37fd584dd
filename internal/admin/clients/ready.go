package clients

import (
	"fmt"
	"net"
	"slices"
	"time"
)

// readyAfter is the time between the first accepted response of the newest type and readiness. Within
// this time a client subscribes to the types that depend on that response: Envoy asks for listeners only
// after it has its clusters.
const readyAfter = time.Second

// Ready reports whether all clients with a node ID have accepted a complete configuration: of each type
// that they subscribe to, a response is accepted and none is due. A refusal does not count once the
// client has accepted a response of the type, because then it runs on the versions that quarantine keeps.
// A client that was ready stays ready while it is connected. With strict, all clients must have accepted
// everything, now. The text is the reason if they are not ready.
//
// Of several clients with the node ID, those at the address of the caller count alone, if there are any: a client
// of another address that uses the ID cannot make the probe of this one fail. The argument from is the address
// of the caller, without a port; "": unknown.
func (t *Tracker) Ready(node, from string, strict bool) (ok bool, why string) {
	type connected struct {
		*client
		rows []*row
	}
	var all []connected
	t.mu.RLock()
	if n := t.nodes[node]; n != nil {
		for _, c := range n.clients {
			all = append(all, connected{c, slices.Clone(c.streams)})
		}
	}
	t.mu.RUnlock()
	if len(all) == 0 {
		return false, "no client with this node ID is connected"
	}
	elsewhere := func(c connected) bool {
		host, _, _ := net.SplitHostPort(c.peer)
		return host != from
	}
	if !slices.ContainsFunc(all, func(c connected) bool { return !elsewhere(c) }) || from == "" {
		elsewhere = func(connected) bool { return false }
	}
	now := t.now()
	for _, c := range slices.DeleteFunc(all, elsewhere) {
		missing := unready(c.rows, now, strict)
		if missing == "" {
			c.complete.Store(true)
		}
		if missing != "" && (strict || !c.complete.Load()) {
			return false, missing
		}
	}
	return true, ""
}

// unready returns the reason why a client has not accepted a complete configuration; "" if it has.
func unready(rows []*row, now int64, strict bool) (why string) {
	newest, wants := int64(0), false
	for _, r := range rows {
		r.mu.Lock()
		for i := range r.types {
			u := &r.types[i]
			is := u.state(now)
			if is == nacked && !strict && u.accepted != 0 {
				is = synced
			}
			switch {
			case is == idle:
				continue
			case is != synced && why == "":
				why = fmt.Sprintf("%s is %s", u.typ, is.name())
			}
			wants = true
			newest = max(newest, u.accepted, r.info.Since.UnixNano())
		}
		r.mu.Unlock()
	}
	switch {
	case why != "":
		return why
	case !wants:
		return "the client subscribes to nothing yet"
	case now-newest < int64(readyAfter) && now >= newest: // otherwise the clock was set back
		return fmt.Sprintf("the client has accepted the first response of a type less than %v ago", readyAfter)
	}
	return ""
}
