package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/xds"
)

// at is a listener whose clients come from an address.
type at struct {
	*bufconn.Listener
	ip net.IP
}

func (l at) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return cameFrom{c, &net.TCPAddr{IP: l.ip, Port: 1}}, nil
}

type cameFrom struct {
	net.Conn
	at net.Addr
}

func (c cameFrom) RemoteAddr() net.Addr { return c.at }

// dialFrom dials from an address.
func (w *world) dialFrom(t testing.TB, ip string) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(64 << 10)
	go w.grpc.Serve(at{l, net.ParseIP(ip)})
	return w.dial(t, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
}

// settled opens a stream of a node, and waits for its first answer.
func (w *world) settled(t testing.TB, conn *grpc.ClientConn, node string) *sotwClient {
	t.Helper()
	c := w.sotw(t, conn)
	c.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: xds.Cluster.URL})
	c.send(ack(c.want()))
	synctest.Wait()
	return c
}

// "What a client can make the server hold or do is bounded per stream, per peer and in
// all." (SAFE-9)
func TestShares(t *testing.T) {
	within(t, "SAFE-9 when all streams are open, the newest of the address that has most gives way", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 4}))
		greedy, other := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.2")
		var all []*sotwClient
		for i := range 4 {
			all = append(all, w.settled(t, greedy, fmt.Sprint("g", i)))
		}
		w.settled(t, other, "a")
		if err := all[3].end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "most of them are of this address") {
			t.Error(err)
		}
		w.settled(t, other, "b")
		if err := all[2].end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		for _, conn := range []*grpc.ClientConn{greedy, other} { // two streams for each connection
			if err := w.sotw(t, conn).end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "4 streams are open") {
				t.Error(err)
			}
		}
		synctest.Wait()
		if s := w.Stats(); s.Open != 4 || s.Throttled["streams"] != 4 {
			t.Errorf("%+v", s)
		}
		w.set(xds.Cluster, res("a", "1")) // the other streams are still served
		for _, c := range all[:2] {
			c.want()
		}
	})
	within(t, "SAFE-14 streams without an answer give way first, also behind one address", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 8, Silent: 8}))
		nat, flood := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.1")
		good := []*sotwClient{w.settled(t, nat, "a"), w.settled(t, nat, "b")}
		var all []*sotwClient
		for i := range 6 {
			c := w.sotw(t, flood)
			c.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: fmt.Sprint("flood-", i)}, TypeUrl: xds.Cluster.URL})
			c.want() // and no answer of the client
			all = append(all, c)
		}
		if err := w.sotw(t, flood).end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "8 streams are open") {
			t.Error(err)
		}
		good = append(good, w.settled(t, w.dialFrom(t, "192.0.2.1"), "c"), w.settled(t, w.dialFrom(t, "192.0.2.2"), "d"))
		for _, c := range all[4:] {
			if err := c.end(); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		}
		w.set(xds.Cluster, res("a", "1"))
		for _, c := range good {
			c.want()
		}
	})
	within(t, "SAFE-14 many streams of one address stay if their clients answer", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 8}))
		nat, flood := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.2")
		var good []*sotwClient
		for i := range 5 {
			good = append(good, w.settled(t, nat, fmt.Sprint("good-", i)))
		}
		var all []*sotwClient
		for i := range 3 {
			c := w.sotw(t, flood)
			c.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: fmt.Sprint("flood-", i)}, TypeUrl: xds.Cluster.URL})
			c.want() // and no answer of the client
			all = append(all, c)
		}
		w.settled(t, w.dialFrom(t, "192.0.2.3"), "new")
		w.set(xds.Cluster, res("a", "1"))
		for _, c := range good {
			c.want()
		}
		if err := all[2].end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
	})
	within(t, "SAFE-9 a silent crowd does not lock out others", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 50}))
		crowd := w.dialFrom(t, "192.0.2.1")
		for range 50 {
			w.sotw(t, crowd)
		}
		synctest.Wait()
		w.settled(t, w.dialFrom(t, "192.0.2.2"), "a")
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if n := w.Stats().Open; n != 1 {
			t.Errorf("%d streams are open", n)
		}
	})
	within(t, "SAFE-9 a refused stream leaves no state behind", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 2, Silent: 1}))
		conn := w.dial(t)
		refused := func(why string) {
			t.Helper()
			if err := w.sotw(t, conn).end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), why) {
				t.Error(err)
			}
		}
		silent := []*sotwClient{w.sotw(t, conn), w.sotw(t, conn)} // the first silent stream of a connection is free
		synctest.Wait()
		refused("no request has come")
		for _, c := range silent {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			c.send(ack(c.want()))
		}
		synctest.Wait()
		refused("2 streams are open")
		if s := w.Stats(); s.Open != 2 || s.Silent != 0 {
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Drain(ctx); err != nil {
			t.Error("Drain waits for a refused stream:", err)
		}
	})
	within(t, "SAFE-9 nor an address that had more streams before", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 8}))
		conn := w.dial(t)
		for range 5 {
			w.settled(t, conn, "greedy")
		}
		w.settled(t, conn, "a")
		w.settled(t, conn, "b")
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: "greedy"}, TypeUrl: xds.Cluster.URL})
		if err := c.end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "the node has 6 streams") {
			t.Error(err)
		}
	})
	within(t, "SAFE-9 when few streams are left, no node has more than half", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 8}))
		conn := w.dial(t)
		for range 6 {
			w.settled(t, conn, "greedy") // three quarters
		}
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: "greedy"}, TypeUrl: xds.Cluster.URL})
		if err := c.end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "the node has 7 streams") {
			t.Error(err)
		}
		w.settled(t, conn, "a")
		b := w.settled(t, conn, "b")
		b.s.CloseSend()
		b.end()
		synctest.Wait()
		if n := len(w.seats.nodes); n != 2 {
			t.Errorf("%d nodes are remembered", n)
		}
	})
	within(t, "SAFE-9 a node id does not use the share of the same id at another address", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 8}))
		liar := w.dialFrom(t, "192.0.2.1")
		for range 6 {
			w.settled(t, liar, "victim")
		}
		victim := w.settled(t, w.dialFrom(t, "192.0.2.2"), "victim")
		w.set(xds.Cluster, res("a", "1"))
		victim.want()
	})
	within(t, "SAFE-9 streams without an id do not count as one node", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 8}))
		conn := w.dial(t)
		for range 8 {
			w.settled(t, conn, "")
		}
	})
	within(t, "SAFE-9 when all polls are held, the newest of the address that has most is answered", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Polls: 3}))
		w.set(xds.Cluster, res("a", "1"))
		poll := func(ip string, node string) (*Poll, error) {
			p, err := w.holding(t, ip, node)
			if p != nil {
				t.Cleanup(func() { p.Close(nil) })
			}
			return p, err
		}
		var last *Poll
		for i := range 3 {
			p, err := poll("192.0.2.1", fmt.Sprint("g", i))
			if err != nil {
				t.Fatal(err)
			}
			last = p
		}
		if _, err := poll("192.0.2.2", "a"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if r, err := last.Wait(t.Context(), MaxHold); r != nil || err != nil || time.Since(begin) != 0 {
			t.Errorf("%v, %v after %v", r, err, time.Since(begin))
		}
		if _, err := poll("192.0.2.1", "g4"); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		if s := w.Stats(); s.Throttled["polls"] != 2 || s.Throttled["streams"] != 0 || strings.Contains(w.log.String(), "stream closed") || strings.Count(w.log.String(), "poll ended: client exceeded a limit or sent a malformed request") != 2 {
			t.Errorf("%+v\n%s", s, w.log)
		}
	})
}

// "shares per peer address and per node id": of polls, too.
func TestPollsOfNode(t *testing.T) {
	within(t, "SAFE-9 when few polls are left, no node has more than half", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Polls: 8}))
		w.set(xds.Cluster, res("a", "1"))
		var held []*Poll
		for range 6 { // three quarters
			p, err := w.holding(t, "192.0.2.9", "greedy")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, p)
		}
		_, err := w.holding(t, "192.0.2.9", "greedy")
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the node has 7 polls") {
			t.Error(err)
		}
		for _, node := range []string{"greedy", ""} { // a client at another address with the same node id is another client
			p, err := w.holding(t, "192.0.2.10", node)
			if err != nil {
				t.Error(err)
			}
			held = append(held, p)
		}
		if s := w.Stats(); s.Polls != 8 || s.Throttled["polls"] != 1 || s.Throttled["streams"] != 0 || !strings.Contains(w.log.String(), "the node has 7 polls") {
			t.Errorf("%+v\n%s", s, w.log)
		}
		for _, p := range held {
			if p != nil {
				p.Close(nil)
			}
		}
		if n := len(w.polls.held.nodes); n != 0 {
			t.Errorf("%d nodes are remembered", n)
		}
	})
}

// holding starts a poll of a node at an address. It is held, because it has the current version.
func (w *world) holding(t *testing.T, ip, node string) (p *Poll, err error) {
	t.Helper()
	for version := ""; ; {
		req := xds.Request{Type: xds.Cluster, Names: []string{"none"}, Node: &xds.Node{ID: node}, Version: version}
		if p, err = w.Poll(t.Context(), xds.Cluster, req, Caller{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}); err != nil {
			return nil, err
		}
		if !p.Ready() {
			return p, nil
		}
		r, err := p.Wait(t.Context(), 0)
		if err != nil {
			return nil, err
		}
		version = r.Version
		p.Close(nil)
	}
}

func TestSilentStreams(t *testing.T) {
	within(t, "SAFE-9 a stream that loses its place twice ends once", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: 3, Streams: 3}))
		crowd := w.dialFrom(t, "192.0.2.1")
		var silent []*sotwClient
		for range 3 {
			silent = append(silent, w.sotw(t, crowd))
			synctest.Wait()
		}
		w.settled(t, w.dialFrom(t, "192.0.2.2"), "a")
		if err := silent[2].end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		synctest.Wait()
		if s := w.Stats(); s.Silent != 2 || s.Open != 3 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-9 silent streams have a limit of their own", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: 3}))
		crowd, other := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.2")
		w.sotw(t, other)
		var silent []*sotwClient
		for range 4 { // the first silent stream of a connection does not count
			silent = append(silent, w.sotw(t, crowd))
			synctest.Wait()
		}
		if err := w.sotw(t, crowd).end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "3 streams are open on which no request has come") {
			t.Error(err)
		}
		for i := range 5 { // a stream with a request is not silent
			w.settled(t, other, fmt.Sprint("n", i))
		}
		if err := silent[3].end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "most of them are of this address") {
			t.Error(err)
		}
		synctest.Wait()
		if s := w.Stats(); s.Silent != 4 || s.Open != 9 || s.Throttled["silent_streams"] != 2 || s.Throttled["streams"] != 0 {
			t.Errorf("%+v", s)
		}
		if !strings.Contains(w.log.String(), "peer=192.0.2.1:1") {
			t.Error(w.log)
		}
	})
	within(t, "SAFE-9 a fleet behind one address may open a stream each, all at once", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: 3}))
		var fleet []*sotwClient
		for range 20 {
			fleet = append(fleet, w.sotw(t, w.dialFrom(t, "192.0.2.1")))
		}
		synctest.Wait()
		if s := w.Stats(); s.Silent != 20 {
			t.Errorf("%+v", s)
		}
		for _, c := range fleet {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			c.want()
		}
		if s := w.Stats(); s.Silent != 0 || s.Open != 20 || len(w.silent.free) != 0 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-14 behind one address the largest connection gives way", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: 3}))
		flood, other := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.1")
		var silent []*sotwClient
		for range 4 {
			silent = append(silent, w.sotw(t, flood))
			synctest.Wait()
		}
		w.sotw(t, other)
		good := w.sotw(t, other) // the second of its connection, which needs a place
		synctest.Wait()
		if err := silent[3].end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "most of them are of this address") {
			t.Error(err)
		}
		good.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		good.want()
	})
	within(t, "SAFE-9 a first request makes room once", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: 1}))
		conn := w.dialFrom(t, "192.0.2.1")
		first := w.settled(t, conn, "a")
		w.sotw(t, conn) // is now the first silent stream of the connection
		synctest.Wait()
		first.s.CloseSend()
		first.end()
		w.sotw(t, conn)
		synctest.Wait()
		if err := w.sotw(t, conn).end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "1 streams are open on which no request has come") {
			t.Error(err)
		}
	})
}

// A stream that leaves its silent seat twice does not free the seat of the next stream on its connection.
func TestSilentSeatIsFreedOnce(t *testing.T) {
	s := newSilentStreams(newSeats(1, nil, nil))
	conn := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	a := s.enter(conn, nil)
	s.leave(a)
	b := s.enter(conn, nil)
	s.leave(a)
	if n := s.taken(); n != 1 {
		t.Errorf("SAFE-9 %d streams are silent, want 1", n)
	}
	s.leave(b)
	if n := s.taken(); n != 0 {
		t.Errorf("SAFE-9 %d streams are silent, want none", n)
	}
}

// A flood of silent streams is refused before gRPC starts goroutines for them. Other streams are not refused.
func TestTap(t *testing.T) {
	within(t, "SAFE-9 a stream without a silent seat is refused at once, and counted", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: 2}))
		conn, other := net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}), net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1})
		const method = "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"
		tapped := func(from net.Addr, method string) error {
			ctx := t.Context()
			if from == nil { // the call has a deadline
				timed, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				from, ctx = conn, timed
			}
			_, err := w.Tap(peer.NewContext(ctx, &peer.Peer{Addr: from}), &tap.Info{FullMethodName: method})
			return err
		}
		var all []*seat
		for range 3 { // the first silent stream of a connection is free
			if err := tapped(conn, method); err != nil {
				t.Fatal(err)
			}
			all = append(all, w.silent.enter(conn, newNotices()))
		}
		if err := tapped(conn, method); err != nil {
			t.Error("the log line of the refusal is not written yet:", err)
		}
		w.logNoSeat(peer.NewContext(t.Context(), &peer.Peer{Addr: conn}), w.silent.full)
		if err := tapped(conn, method); status.Code(err) != codes.ResourceExhausted || w.Stats().Throttled["silent_streams"] != 2 {
			t.Error(err, w.Stats().Throttled)
		}
		for what, err := range map[string]error{
			"another address": tapped(other, method), "another service": tapped(conn, "/grpc.health.v1.Health/Watch"), "a call with a timeout": tapped(nil, method),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		w.silent.leave(all[0])
		if err := tapped(conn, method); err != nil {
			t.Error("after the end of the first silent stream of the connection:", err)
		}
		for _, s := range all[1:] {
			w.silent.leave(s)
		}
		if err := tapped(conn, method); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * dedup.Within)
		if lines := w.log.lines("on which no request has come"); len(lines) != 2 || !strings.Contains(lines[1], "repeated=1") {
			t.Error(lines)
		}
	})
	within(t, "SAFE-14 so is a stream for which no seat is free", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 2}))
		from := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}})
		tapped := func(method string) error {
			_, err := w.Tap(from, &tap.Info{FullMethodName: "/envoy.service.cluster.v3.ClusterDiscoveryService/" + method})
			return err
		}
		all := []*seat{w.seats.enter(peerOf(from), newNotices()), w.seats.enter(peerOf(from), newNotices())}
		w.logNoSeat(from, w.seats.full)
		if err := tapped("StreamClusters"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "2 streams are open") {
			t.Error(err)
		}
		if err := tapped("FetchClusters"); err != nil {
			t.Error("a Fetch needs no seat of a stream:", err)
		}
		w.seats.leave(all[0])
		if err := tapped("StreamClusters"); err != nil {
			t.Error(err)
		}
	})
}

// A parting client closes its connection when the server reads its first request. Later reads wait for free.
type parting struct {
	grpc.ServerStream
	ctx   context.Context
	end   context.CancelFunc
	ask   []byte
	free  chan struct{}
	reads atomic.Int32
}

func (c *parting) Context() context.Context { return c.ctx }
func (c *parting) SendMsg(any) error        { return nil }

func (c *parting) RecvMsg(m any) error {
	if c.reads.Add(1) > 1 {
		<-c.free
		return status.FromContextError(c.ctx.Err()).Err()
	}
	c.end()
	return codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.ask)}, m)
}

// A client that has gone is not admitted: its first request is dropped.
func TestGoneClientIsNotAdmitted(t *testing.T) {
	ask, err := proto.Marshal(&discovery.DiscoveryRequest{Node: &core.Node{Id: "n"}, TypeUrl: xds.Cluster.URL})
	if err != nil {
		t.Fatal(err)
	}
	for name, early := range map[string]bool{"SAFE-14 gone before its stream begins": true, "SAFE-14 gone when its first request is read": false} {
		within(t, name, func(t *testing.T) {
			for range 100 { // the stream may also notice the end before the request
				src := newSource()
				s := New(src)
				ctx, end := context.WithCancel(t.Context())
				c := &parting{ctx: ctx, end: end, ask: ask, free: make(chan struct{})}
				if early {
					c.end()
				}
				close(c.free)
				err := s.serve(c, xds.SotW, nil, nil)
				synctest.Wait()
				if status.Code(err) != codes.Canceled || len(src.nodes) != 0 || early && c.reads.Load() != 0 {
					t.Fatalf("%v, %d are admitted, %d reads", err, len(src.nodes), c.reads.Load())
				}
			}
		})
	}
}

// A stream has its seat until both of its goroutines have ended: until then it takes memory.
func TestSeatIsTakenUntilReadEnds(t *testing.T) {
	within(t, "SAFE-14", func(t *testing.T) {
		s := New(newSource(), new(logbook).at(slog.LevelWarn))
		c := &parting{ask: []byte("\xff"), free: make(chan struct{}), end: func() {}, ctx: t.Context()}
		if err := s.serve(c, xds.SotW, nil, nil); status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
		synctest.Wait()
		if n := s.seats.taken(); n != 1 {
			t.Errorf("%d seats are taken while the server reads the stream", n)
		}
		close(c.free)
		synctest.Wait()
		if n := s.seats.taken(); n != 0 {
			t.Errorf("%d seats are taken", n)
		}
	})
}
