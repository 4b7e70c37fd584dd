package server

import (
	"net"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// holdings are what the names of all streams hold, in bytes. When that is too much, the
// largest stream of the address that holds most gives way, and not who comes last: nobody
// locks others out by coming first.
type holdings struct {
	mu    sync.Mutex // held for memory only
	loads fair.Loads[loss]
}

// set says what a stream of an address holds, of which load is what it held before, nil:
// nothing. An error ends the stream: it is the one that gives way.
func (h *holdings) set(load *fair.Load[loss], peer net.Addr, lost loss, bytes int) (*fair.Load[loss], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if load == nil {
		load = h.loads.Enter(fair.Owner(peer), lost)
	}
	for _, l := range h.loads.Set(load, bytes) {
		l.tell(h.full())
	}
	if h.loads.Lost(load) {
		return load, h.full()
	}
	return load, nil
}

func (h *holdings) full() error {
	return exceeds(tooMany, limitHeldInAll, codes.ResourceExhausted, "limit exceeded: the names of all streams hold more than %d bytes, and most of them are of this address", h.loads.Max)
}

// leave says that a stream holds nothing any more.
func (h *holdings) leave(load *fair.Load[loss]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loads.Leave(load)
}

// bytes is what all streams hold.
func (h *holdings) bytes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loads.All()
}
