package daemon

import (
	"net"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/server"
)

// Shedding asks the oldest connections to leave, each once and with all its streams. Connections on
// unix sockets and connections with many streams stay.
func TestShedEndsOldestConnections(t *testing.T) {
	h := &shedder{going: map[net.Addr][]*server.Stream{}, clients: listen.NewLimit(1)}
	id := uint64(0)
	open := func(peer net.Addr, n int) (all []*server.Stream) {
		for range n {
			id++
			all = append(all, &server.Stream{ID: id, Peer: peer})
		}
		return all
	}
	tcp := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
	a, b, c := tcp(1), tcp(2), tcp(3)
	all := slices.Concat(open(tcp(4), maxOnOne+1), open(&net.UnixAddr{Name: "x"}, 1), open(a, 2), open(b, 2), open(c, 1))
	slices.Reverse(all)
	if n := h.shed(all, 3); n != 4 || len(h.going) != 2 || len(h.going[a]) != 2 || len(h.going[b]) != 2 {
		t.Error(n, h.going)
	}
	if n := h.shed(all, 3); n != 1 || h.going[c] == nil || h.ended.Load() != 5 {
		t.Error(n, h.going, h.ended.Load())
	}
	h.finish()
	if len(h.going) != 0 { // the streams have ended
		t.Error(h.going)
	}
}
