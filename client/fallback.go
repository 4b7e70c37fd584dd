package client

// A fallback decides which servers of an authority are used (gRFC A71). A server is identified by
// its index in the list; index 0 is the preferred server. A fallback does no I/O.
//
// Invariant: the client has a link to each server up to the active one, and to no later server.
type fallback struct {
	active int // index of the server whose resources are used
}

// advance switches to later servers while the active server needs fallback: "fallback is triggered
// if the server cannot be reached and a resource that is not cached is watched". The parameter n is
// the number of servers. The function lacks reports whether server i cannot be reached and a
// resource from this server is missing.
func (f *fallback) advance(n int, lacks func(i int) bool) (moved bool) {
	for f.active+1 < n && lacks(f.active) {
		f.active++
		moved = true
	}
	return moved
}

// responded makes server i active if server i is preferred to the active server: "if a
// higher-priority server becomes available, the client switches to it, and closes the connections
// to the others".
func (f *fallback) responded(i int) (moved bool) {
	if i >= f.active {
		return false
	}
	f.active = i
	return true
}
