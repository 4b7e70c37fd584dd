package listen

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/panics"
)

// A Limit limits the number of open connections of several listeners together. At the limit, a new connection replaces
// the oldest one that is not settled, of the address with the most. That may be its own address: a flood of idle
// connections replaces itself. If all connections are settled, the newest one of the address with the most gives way.
// If that is its own address, the new connection is closed at once. A Limit is safe for concurrent use.
type Limit struct {
	// Closed is called for each connection that was closed because of the limit. The accepting
	// goroutine calls it, so it must not block. Nil: no call.
	Closed func(peer net.Addr)

	mu     sync.Mutex // never held during I/O
	shares fair.Shares[net.Conn]
	open   map[*placed]bool
	peers  map[any]*placed // by [keyOf]; a client that uses one port for two listeners has one entry
}

// NewLimit returns a limit of max connections; 0: no limit.
func NewLimit(max int) *Limit {
	return &Limit{shares: fair.Shares[net.Conn]{Max: max, Rotate: true}, open: map[*placed]bool{}, peers: map[any]*placed{}}
}

// Cut closes all open connections. These include connections without any data yet, which servers do
// not know. Without a limit it closes none.
func (l *Limit) Cut() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// Close closes the open connection with a RemoteAddr equal to peer. Without a limit it closes none.
func (l *Limit) Close(peer net.Addr) {
	l.mu.Lock()
	var found *placed
	for c := range l.open {
		if c.RemoteAddr() == peer {
			found = c
		}
	}
	l.mu.Unlock()
	if found != nil {
		_ = found.Close()
	}
}

// Settle records that a good client uses the open connection with a RemoteAddr equal to peer: the connection gives way
// after those that are not settled (SAFE-14). It may be called often.
func (l *Limit) Settle(peer net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.peers[keyOf(peer)]; c != nil {
		l.shares.Settle(c.place)
	}
}

// keyOf returns the key of a client's address. All clients of a unix socket have equal texts, so there it is the
// pointer.
func keyOf(peer net.Addr) any {
	if tcp, ok := peer.(*net.TCPAddr); ok {
		a := tcp.AddrPort()
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	}
	return peer
}

// Open returns the number of open connections; 0 if there is no limit.
func (l *Limit) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shares.Len()
}

// On returns a listener that enforces the limit.
func (l *Limit) On(inner net.Listener) net.Listener {
	if l.shares.Max == 0 {
		return inner
	}
	return limited{inner, l}
}

type limited struct {
	net.Listener
	limit *Limit
}

// Accept implements [net.Listener].
func (l limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var kept net.Conn
		lost := c // closed also after a panic
		guarded(func() { kept, lost = l.limit.enter(c) })
		if lost != nil {
			guarded(func() { l.limit.close(lost) })
		}
		if kept != nil {
			return kept, nil
		}
	}
}

// guarded calls f and logs a panic in it, so that neither the accept loop nor the process ends.
func guarded(f func()) {
	if p := panics.Do(f); p != nil {
		p.Log(slog.Default(), "connection")
	}
}

// enter returns the connection if it got a place, and the connection to close, if any.
func (l *Limit) enter(c net.Conn) (kept, lost net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, last := l.shares.Enter(fair.Owner(c.RemoteAddr()), nil, c)
	if p == nil {
		return nil, c
	}
	own := &placed{Conn: c, limit: l, place: p, peer: keyOf(c.RemoteAddr())}
	l.open[own], l.peers[own.peer] = true, own
	return own, last.Item
}

func (l *Limit) close(c net.Conn) {
	c.Close()
	if l.Closed != nil {
		l.Closed(c.RemoteAddr())
	}
}

// placed is a connection that releases its place when it is closed.
type placed struct {
	net.Conn
	limit *Limit
	place *fair.Place[net.Conn]
	peer  any // its key in limit.peers
}

// Close implements [net.Conn].
func (p *placed) Close() error {
	err := p.Conn.Close()
	guarded(func() { p.limit.leave(p) })
	return err
}

func (l *Limit) leave(p *placed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, p)
	if l.peers[p.peer] == p {
		delete(l.peers, p.peer)
	}
	l.shares.Leave(p.place)
}

// SyscallConn implements [syscall.Conn], if the connection does.
func (p *placed) SyscallConn() (syscall.RawConn, error) {
	c, ok := p.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return c.SyscallConn()
}
