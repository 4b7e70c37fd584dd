package client

// A fallback says which of the servers of an authority are asked (gRFC A71). Servers are known
// by their place in the list, the preferred one is 0. It is a value without I/O.
//
// Invariant: the servers up to the one in charge are connected, or being tried; those behind
// it are not asked.
type fallback struct {
	charge int // the server whose word counts
}

// failed returns how many servers further the authority has to go: "fallback is triggered if
// the server cannot be reached and a resource that is not cached is watched". Of n servers,
// lacks says which cannot be reached while something is missing that they are to send.
func (f *fallback) failed(n int, lacks func(i int) bool) (moved bool) {
	for f.charge+1 < n && lacks(f.charge) {
		f.charge++
		moved = true
	}
	return moved
}

// responded reports whether a server's response brings it into charge: "if a higher-priority
// server becomes available, the client switches to it, and closes the connections to the
// others".
func (f *fallback) responded(i int) (moved bool) {
	if i >= f.charge {
		return false
	}
	f.charge = i
	return true
}
