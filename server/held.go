package server

import (
	"net"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// heldBytes counts the memory of the names of all streams. Above the limit, the largest stream of the address that
// uses most must end, and not the newest stream. So an early client cannot lock out the others.
type heldBytes struct {
	mu    sync.Mutex // held for memory only
	loads fair.Loads[notices]
}

// set sets how many bytes a stream uses. The argument load is the result of the last call for the
// stream, or nil. An error means that this stream must end.
func (h *heldBytes) set(load *fair.Load[notices], peer net.Addr, lost notices, bytes int) (*fair.Load[notices], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if load == nil {
		load = h.loads.Enter(fair.Owner(peer), lost)
	}
	for _, l := range h.loads.Set(load, bytes) {
		l.lose(h.full())
	}
	if h.loads.Lost(load) {
		return load, h.full()
	}
	return load, nil
}

func (h *heldBytes) full() error {
	return limitError(tooMany, limitHeldInAll, codes.ResourceExhausted, "limit exceeded: the names of all streams hold more than %d bytes, and most of them are of this address", h.loads.Max)
}

// leave removes a stream that has ended.
func (h *heldBytes) leave(load *fair.Load[notices]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loads.Leave(load)
}

// total returns the memory of all streams.
func (h *heldBytes) total() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loads.All()
}
