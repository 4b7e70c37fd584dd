//go:build linux

package daemon

import (
	"bytes"
	"log/slog"
	"math"
	"net"
	"testing"

	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
)

// A countedListener accepts n connections and then fails.
type countedListener struct {
	net.Listener
	n     int
	peers bool // the connections have addresses
}

// A peerConn is a connection from an address.
type peerConn struct {
	net.Conn
	peer net.Addr
}

func (c peerConn) RemoteAddr() net.Addr { return c.peer }

func (l *countedListener) Accept() (net.Conn, error) {
	l.n--
	if l.n < 0 {
		return nil, net.ErrClosed
	}
	c, _ := net.Pipe()
	if l.peers {
		return peerConn{c, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1 + l.n}}, nil
	}
	return c, nil
}

// SAFE-9: health and metrics can use a quarter of the reserved files, not all of them.
func TestProbesGetQuarterOfReservedFiles(t *testing.T) {
	log, files := slog.New(slog.DiscardHandler), listen.Files{Soft: 300}
	_, probes := connectionLimits(log, 0, math.MaxInt32, files, procmetrics.New(procmetrics.Options{Snapshot: store.New().Snapshot}))
	l := probes.On(&countedListener{n: files.Reserve()})
	for {
		if _, err := l.Accept(); err != nil {
			break
		}
	}
	if n := probes.Open(); n != files.Reserve()/4 {
		t.Errorf("%d probes are open, of %d reserved files", n, files.Reserve())
	}
}

// SAFE-9: --max-connections is lowered to the limit of open files. If the limit is too low for a
// fleet, the log has a warning.
func TestMaxConnectionsLoweredToFileLimit(t *testing.T) {
	const low, cut = "level=WARN msg=\"the limit of open files is low: it limits how many clients can connect\" ", "level=WARN msg=\"--max-connections was lowered to what the limit of open files allows\" "
	const enough, more = "level=INFO msg=\"limit of open files\" ", " hint=\"raise the hard limit: LimitNOFILE= of systemd, ulimit -Hn\"\n"
	for _, tt := range []struct {
		asked, memory int
		files         uint64
		want          string
	}{
		{0, math.MaxInt32, 300, low + "files=300 clients=236" + more},
		{100, math.MaxInt32, 300, low + "files=300 clients=100" + more},
		{1000, math.MaxInt32, 300, low + "files=300 clients=236" + more + cut + "asked=1000 clients=236" + more},
		{0, math.MaxInt32, 65_536, enough + "files=65536 clients=64512\n"},
		{64_512, math.MaxInt32, 65_536, enough + "files=65536 clients=64512\n"},
		{64_513, math.MaxInt32, 65_536, enough + "files=65536 clients=64512\n" + cut + "asked=64513 clients=64512" + more},
		{100, math.MaxInt32, 0, ""},                              // the limit of open files is unknown
		{0, 3276, 65_536, enough + "files=65536 clients=3276\n"}, // SAFE-14: only the default fits into the memory
		{5000, 3276, 65_536, enough + "files=65536 clients=5000\n"},
	} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		connectionLimits(log, tt.asked, tt.memory, listen.Files{Soft: tt.files}, procmetrics.New(procmetrics.Options{Snapshot: store.New().Snapshot}))
		if got := out.String(); got != tt.want {
			t.Errorf("--max-connections %d of %d files: %q, want %q", tt.asked, tt.files, got, tt.want)
		}
	}
}

// A connection whose client has answered, or has got the answer of a poll, gives way after the others.
func TestConnectionsThatSettle(t *testing.T) {
	for _, tt := range []struct {
		what  string
		event func(settler, *server.Stream)
		stays bool
	}{
		{"an ACK", func(s settler, st *server.Stream) { s.Event(st, protocol.Event{Kind: protocol.Acked}) }, true},
		{"a NACK", func(s settler, st *server.Stream) { s.Event(st, protocol.Event{Kind: protocol.Nacked}) }, true},
		{"a subscription", func(s settler, st *server.Stream) { s.Event(st, protocol.Event{Kind: protocol.Subscribed}) }, false},
		{"an answered poll", func(s settler, st *server.Stream) { st.Poll = true; s.Closed(st, nil) }, true},
		{"a refused poll", func(s settler, st *server.Stream) { st.Poll = true; s.Closed(st, net.ErrClosed) }, false},
		{"an ended stream", func(s settler, st *server.Stream) { s.Closed(st, nil) }, false},
	} {
		t.Run("SAFE-14 "+tt.what, func(t *testing.T) {
			clients := listen.NewLimit(8)
			closed := map[string]bool{}
			clients.Closed = func(peer net.Addr) { closed[peer.String()] = true }
			l := clients.On(&countedListener{n: 20, peers: true})
			first, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			tt.event(settler{clients}, &server.Stream{Peer: first.RemoteAddr()})
			for err == nil {
				_, err = l.Accept()
			}
			if len(closed) != 12 || closed[first.RemoteAddr().String()] == tt.stays {
				t.Errorf("%d connections were closed, the first: %v", len(closed), closed[first.RemoteAddr().String()])
			}
		})
	}
}
