package listen

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/chancery-xds/chancery/internal/panics"
)

// A caller is a connection from an address.
type caller struct {
	net.Conn
	from string
}

func (c caller) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1} }

// callers is a listener with prepared connections.
type callers chan net.Conn

func (c callers) Accept() (net.Conn, error) {
	conn, ok := <-c
	if !ok {
		return nil, io.EOF
	}
	return conn, nil
}
func (c callers) Close() error   { return nil }
func (c callers) Addr() net.Addr { return nil }

func TestLimit(t *testing.T) {
	var closed atomic.Int32
	l := NewLimit(2)
	l.Closed = func(net.Addr) { closed.Add(1) }
	calls := make(callers, 10)
	on := l.On(calls)
	call := func(from string) net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		calls <- caller{far, from}
		return near
	}
	accept := func() net.Conn {
		t.Helper()
		c, err := on.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ended := func(c net.Conn) {
		t.Helper()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // of a pipe
			t.Errorf("the connection is not closed: %v", err)
		}
	}
	oldest := call("192.0.2.1")
	older := call("192.0.2.1")
	lost, replaced := accept(), accept()
	call("192.0.2.1")
	first := accept() // SAFE-14: it replaces the oldest of its own address
	call("192.0.2.2")
	other := accept() // SAFE-9: it replaces the oldest of the address with more
	ended(oldest)
	ended(older)
	replaced.Close()
	if l.Open() != 2 || closed.Load() != 2 {
		t.Errorf("%d are open, %d were closed", l.Open(), closed.Load())
	}
	lost.Close()
	if l.Open() != 2 {
		t.Errorf("%d are open: a place was given back that was lost", l.Open())
	}
	first.Close()
	first.Close()
	if l.Open() != 1 {
		t.Errorf("%d are open", l.Open())
	}
	call("192.0.2.1")
	accept()
	other.Close()
	if l.Open() != 1 || closed.Load() != 2 {
		t.Errorf("%d are open, %d were closed", l.Open(), closed.Load())
	}
	close(calls)
	if _, err := on.Accept(); err != io.EOF { //nolint:errorlint // the listener's own
		t.Error(err)
	}
	if _, ok := NewLimit(0).On(calls).(callers); !ok {
		t.Error("without a limit the listener is wrapped")
	}
}

// SAFE-14: settled connections outlast a flood, also a flood from their own address.
func TestSettledConnectionsOutlastFlood(t *testing.T) {
	var closed []net.Addr
	l := NewLimit(16)
	l.Closed = func(peer net.Addr) { closed = append(closed, peer) }
	calls := make(callers, 1)
	on := l.On(calls)
	enter := func(ip byte, port int) *net.TCPAddr {
		t.Helper()
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, ip), Port: port}
		calls <- addressed{near, peer}
		if _, err := on.Accept(); err != nil {
			t.Fatal(err)
		}
		return peer
	}
	settle := func(peer *net.TCPAddr) {
		same := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(peer.String())) // REST knows only the text
		l.Settle(same)
		l.Settle(same)
	}
	good := map[string]bool{}
	for i := range 8 {
		peer := enter(1, i)
		settle(peer)
		good[peer.String()] = true
	}
	for i := range 1000 {
		enter(1, 100+i)
	}
	late := enter(1, 2000)
	for i := range 7 {
		enter(1, 2001+i)
	}
	settle(late) // in time
	good[late.String()] = true
	for i := range 1000 {
		enter(2, i)
	}
	for _, peer := range closed {
		if good[peer.String()] {
			t.Errorf("%v was closed", peer)
		}
	}
	if l.Open() != 16 || len(closed) < 1900 {
		t.Errorf("%d are open, %d were closed", l.Open(), len(closed))
	}
	l.Settle(&net.TCPAddr{Port: 1}) // not open
}

// A limit forgets the addresses of closed connections. Of two connections from one port, to two listeners, the second
// can settle after the end of the first.
func TestLimitForgetsClosedConnections(t *testing.T) {
	t.Run("SAFE-14", func(t *testing.T) {
		l, calls := NewLimit(4), make(callers, 2)
		peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
		var both []net.Conn
		for range 2 {
			near, far := net.Pipe()
			defer near.Close()
			calls <- addressed{far, peer}
			c, err := l.On(calls).Accept()
			if err != nil {
				t.Fatal(err)
			}
			both = append(both, c)
		}
		both[0].Close()
		if second := l.peers[keyOf(peer)]; second != both[1] {
			t.Errorf("%v has the address, want the second connection", second)
		}
		both[1].Close()
		if len(l.peers) != 0 || len(l.open) != 0 {
			t.Errorf("%d addresses of %d connections are known", len(l.peers), len(l.open))
		}
	})
}

// A nameless caller panics when it is asked for its address.
type nameless struct{ net.Conn }

func (nameless) RemoteAddr() net.Addr { panic("a bomb of the test goes off") }

// A panic ends its own connection, and other connections are accepted (SAFE-8).
func TestPanics(t *testing.T) {
	l, calls := NewLimit(2), make(callers, 10)
	l.Closed = func(net.Addr) { panic("a bomb of the test goes off") }
	var ends []net.Conn
	for range 4 {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		ends = append(ends, near)
		calls <- caller{far, "192.0.2.1"}
	}
	calls <- nameless{<-calls}
	close(calls)
	on, before := l.On(calls), panics.Count()
	for range 3 {
		c, err := on.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if _, err := on.Accept(); err != io.EOF { //nolint:errorlint // the listener's own
		t.Error(err)
	}
	for _, refused := range []net.Conn{ends[0], ends[1]} {
		if _, err := refused.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // of a pipe
			t.Errorf("the connection is not closed: %v", err)
		}
	}
	if n := panics.Count() - before; n != 3 || l.Open() != 2 { // one when it is accepted, and one for each refusal
		t.Errorf("%d panics, %d are open", n, l.Open())
	}
}

// A limited connection gives access to the connection of the system.
func TestLimitedConnIsSyscallConn(t *testing.T) {
	l := NewLimit(1).On(mustOpen(t, "127.0.0.1:0"))
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.(syscall.Conn).SyscallConn(); err != nil {
		t.Error(err)
	}
}

// Cut closes all open connections, and releases their places.
func TestCutClosesAll(t *testing.T) {
	limit := NewLimit(2)
	l := limit.On(mustOpen(t, "127.0.0.1:0"))
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}()
	}
	limit.Cut()
	if n := limit.Open(); n != 0 || len(limit.open) != 0 {
		t.Errorf("%d are open", n)
	}
	limit.Cut()
}

// Close closes the connection of an address, and no other.
func TestCloseByAddress(t *testing.T) {
	l := NewLimit(3)
	calls := make(callers, 3)
	on := l.On(calls)
	var far []net.Conn
	var near []net.Conn
	for range 2 {
		a, b := net.Pipe()
		calls <- addressed{a, &net.TCPAddr{Port: len(far)}}
		c, err := on.Accept()
		if err != nil {
			t.Fatal(err)
		}
		far, near = append(far, b), append(near, c)
	}
	l.Close(&net.TCPAddr{Port: 1}) // no connection has this address
	l.Close(near[1].RemoteAddr())
	l.Close(near[1].RemoteAddr())
	if _, err := far[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) || l.Open() != 1 {
		t.Error(err, l.Open())
	}
	near[0].Close()
	far[0].Close()
}

type addressed struct {
	net.Conn
	from net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }
