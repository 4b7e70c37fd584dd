package client

// A fallback decides which servers of an authority are used (gRFC A71). A server is known by its index
// in the list; index 0 is the preferred one. A fallback is a value without I/O.
//
// Invariant: the client has a link to each server up to the active one, and to no later server.
type fallback struct {
	active int // index of the server whose resources are used
}

// advance moves to later servers while the active one needs fallback: "fallback is triggered if the
// server cannot be reached and a resource that is not cached is watched". n is the number of servers.
// lacks reports whether server i cannot be reached and a resource from it is missing.
func (f *fallback) advance(n int, lacks func(i int) bool) (moved bool) {
	for f.active+1 < n && lacks(f.active) {
		f.active++
		moved = true
	}
	return moved
}

// responded makes server i active if it is preferred to the present one: "if a higher-priority server
// becomes available, the client switches to it, and closes the connections to the others".
func (f *fallback) responded(i int) (moved bool) {
	if i >= f.active {
		return false
	}
	f.active = i
	return true
}
