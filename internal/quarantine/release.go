package quarantine

import (
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// Release takes resources of a type out of quarantine, on behalf of an operator: the client is sent the
// refused versions again. An empty name means all names. The result is the number of these resources. If
// the client refuses them again, they come into quarantine again. A search that is running goes on.
func (s *Source) Release(st *server.Stream, t *xds.Type, name string) (count int) {
	w := s.watchOf(st)
	if w == nil {
		return 0
	}
	concerns := func(h *held) bool { return h.typ.Is(t) && h.fault() && (name == "" || h.name == name) }
	w.mu.Lock()
	for i := range w.holds {
		if concerns(&w.holds[i]) {
			count++
		}
	}
	w.mu.Unlock()
	if count > 0 {
		w.order(order{typ: t, drop: concerns})
	}
	return count
}
