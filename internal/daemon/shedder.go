package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cluster/peers"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/server"
)

// shedFlags are the flags of shedding.
type shedFlags struct {
	wanted bool
}

// A shedder ends streams while this server has more than its share of them.
type shedder struct {
	log     *slog.Logger
	others  *peers.Replicas
	streams func() int              // number of open streams
	all     func() []*server.Stream // returns the open streams
	clients *listen.Limit           // the connections of the streams

	ended   atomic.Uint64 // total number of ended streams
	surplus peers.Surplus
	going   map[net.Addr][]*server.Stream // streams of connections that leave, by the address of the client
}

func (h *shedFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&h.wanted, "shed-surplus", false, "of a store: while this server has more than 1.3 times the mean number of streams of all servers, end some of its oldest connections each second, gracefully, so that their clients move to other servers")
}

// check returns a usage error.
func (h *shedFlags) check(store string, admin bool) error {
	if h.wanted && (store == "" || !admin) {
		return errors.New("--shed-surplus: needs --store to find the other servers, and --admin-listen to know the clients")
	}
	return nil
}

// maxOnOne is the maximum number of streams of a connection that may be shed. The connection of a
// proxy may have thousands of streams, which would all come back at once.
const maxOnOne = 100

// run sheds until ctx is done.
func (h *shedder) run(ctx context.Context) {
	h.going = map[net.Addr][]*server.Stream{}
	const often = 100 * time.Millisecond // short, to close a connection before its client opens another stream on it
	tick := time.NewTicker(often)
	defer tick.Stop()
	shedding := uint64(0) // number of streams ended since shedding began; 0: not shedding
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.finish()
		if n%int(time.Second/often) != 0 {
			continue
		}
		others, sure := h.others.Streams()
		open := h.streams()
		most, mean := h.surplus.Next(open, others, sure)
		switch {
		case most > 0 && shedding == 0:
			h.log.Info("server has more than its share of streams, ending some", "streams", open, "mean", int(mean), "servers", len(others)+1)
		case most == 0 && shedding > 0:
			h.log.Info("server has its share of streams, ending none", "streams", open, "mean", int(mean), "ended", shedding)
			shedding = 0
		}
		if most > 0 {
			shedding += h.shed(h.all(), most)
		}
	}
}

// shed asks the connections of the oldest streams to leave, until these connections have at least
// most streams together. It returns their number of streams.
func (h *shedder) shed(all []*server.Stream, most int) (n uint64) {
	slices.SortFunc(all, func(a, b *server.Stream) int { return cmp.Compare(a.ID, b.ID) })
	by := map[net.Addr][]*server.Stream{}
	for _, st := range all {
		by[st.Peer] = append(by[st.Peer], st)
	}
	for _, st := range all {
		if _, tcp := st.Peer.(*net.TCPAddr); !tcp || h.going[st.Peer] != nil || len(by[st.Peer]) > maxOnOne {
			continue
		}
		if n >= uint64(most) {
			break
		}
		for _, st := range by[st.Peer] {
			st.Leave()
			n++
		}
		h.going[st.Peer] = by[st.Peer]
	}
	h.ended.Add(n)
	return n
}

// finish closes connections whose streams have ended: otherwise a new stream on such a connection
// would stay on this server.
func (h *shedder) finish() {
	for peer, streams := range h.going {
		if !slices.ContainsFunc(streams, (*server.Stream).Leave) {
			h.clients.Close(peer)
			delete(h.going, peer)
		}
	}
}
