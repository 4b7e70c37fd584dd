package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/xds"
)

var abuseRows = []row{
	{name: "SAFE-1 SAFE-9 a flood of requests", fast: true, fault: flood},
	{name: "SAFE-9 rapid reset of streams", fast: true, fault: rapidReset},
	{name: "SAFE-9 open files exhausted", fast: true, fault: filesExhausted, setup: setup{server: func(_ *testing.T, s *server) { s.shell = "ulimit -n 512" }}},
	{name: "SAFE-9 out of the memory limit", fault: memoryExhausted, setup: setup{server: func(_ *testing.T, s *server) { s.env = []string{"GOMEMLIMIT=192MiB"} }}},
}

// from returns a dialer from another address of this machine: the address of a stranger.
func (r *rig) from(address string) func(context.Context, string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return func(ctx context.Context, _ string) (net.Conn, error) { return d.DialContext(ctx, "tcp", r.addr) }
}

// strangers runs n goroutines with trouble for a time. Meanwhile it commits, and the whole fleet
// must get each commit.
func (r *rig) strangers(n int, d time.Duration, trouble func(ctx context.Context, i int)) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for ctx.Err() == nil {
				trouble(ctx, i)
			}
		})
	}
	var longest time.Duration
	commits := 0
	for ; ctx.Err() == nil; commits++ {
		longest = max(longest, r.notices(20*time.Second, nil))
		r.served()
	}
	cancel()
	running.Wait()
	r.note("%d commits, each told to the whole fleet within %.1f s", commits, longest.Seconds())
	r.untouched()
}

// Twenty streams change their subscription as fast as they can, ten connections send invalid
// HTTP/2, and ten open silent streams.
func flood(r *rig) {
	var asked, junk, silent atomic.Int64
	r.strangers(40, long(30*time.Second, 3*time.Second), func(ctx context.Context, i int) {
		switch {
		case i < 20:
			r.asks(ctx, &asked)
		case i < 30:
			c, err := r.from("127.0.0.2")(ctx, "")
			if err != nil {
				return
			}
			c.Write(bytes.Repeat([]byte("junk"), 4096))
			c.Close()
			junk.Add(1)
			pause(ctx, 20*time.Millisecond)
		default:
			conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.from("127.0.0.2")))
			if err != nil {
				return
			}
			defer conn.Close()
			for range 100 {
				if _, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); err != nil {
					return
				}
				silent.Add(1)
				pause(ctx, 5*time.Millisecond)
			}
		}
	})
	r.note("%d requests, %d connections of junk, %d silent streams", asked.Load(), junk.Load(), silent.Load())
}

// asks is one stream that subscribes and unsubscribes.
func (r *rig) asks(ctx context.Context, n *atomic.Int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.from("127.0.0.2")))
	if err != nil {
		return
	}
	defer conn.Close()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return
	}
	go func() {
		for {
			if _, err := s.Recv(); err != nil {
				cancel()
				return
			}
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		names := []string{fmt.Sprint("filler-", i%fillers), fmt.Sprint("none-", i)}
		m := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "flood"}, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: names}
		if i%2 == 1 {
			m.ResourceNamesSubscribe, m.ResourceNamesUnsubscribe = nil, names
		}
		if s.Send(m) != nil {
			return
		}
		n.Add(1)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Ten connections open streams and reset them at once (CVE-2023-44487).
func rapidReset(r *rig) {
	var resets, conns atomic.Int64
	was, err := r.Metrics()
	r.must(err)
	r.strangers(10, long(30*time.Second, 3*time.Second), func(ctx context.Context, _ int) {
		c, err := r.from("127.0.0.2")(ctx, "")
		if err != nil {
			return
		}
		conns.Add(1)
		// A small buffer leaves few bytes in flight at the close, because the server reads them at
		// its limited rate.
		r.must(c.(*net.TCPConn).SetWriteBuffer(64 << 10))
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		resetting(c, &resets)
	})
	is, err := r.Metrics()
	r.must(err)
	cpu := is["process_cpu_seconds_total"] - was["process_cpu_seconds_total"]
	r.note("%d streams reset on %d connections; the server took %.0f µs of CPU for each, and all else that it did", resets.Load(), conns.Load(), 1e6*cpu/float64(resets.Load()))
}

// resetting opens and resets streams as fast as it can, until the connection ends.
func resetting(c net.Conn, n *atomic.Int64) error {
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var busy sync.Mutex // answers are written, too
	go func() {
		in := http2.NewFramer(nil, c)
		for {
			frame, err := in.ReadFrame()
			if err != nil {
				c.Close()
				return
			}
			busy.Lock()
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					err = f.WriteSettingsAck()
				}
			case *http2.PingFrame:
				if !frame.IsAck() {
					err = f.WritePing(true, frame.Data)
				}
			}
			busy.Unlock()
			if err != nil {
				return
			}
		}
	}()
	var headers bytes.Buffer
	e := hpack.NewEncoder(&headers)
	for _, h := range []string{
		":method POST", ":scheme http", ":path /envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
		":authority server", "content-type application/grpc", "te trailers",
	} {
		name, value, _ := strings.Cut(h, " ")
		e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // not indexed: each block is the same
	}
	for id := uint32(1); id < 1<<31-1; id += 2 {
		busy.Lock()
		err := errors.Join(
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true}),
			f.WriteRSTStream(id, http2.ErrCodeCancel))
		busy.Unlock()
		if err != nil {
			return err
		}
		n.Add(1)
	}
	return errors.New("no more streams")
}

// A stranger opens two thousand connections to a server that may have 512 files open.
func filesExhausted(r *rig) {
	var opened, closed atomic.Int64
	r.strangers(1, long(20*time.Second, 3*time.Second), func(ctx context.Context, _ int) {
		var all []net.Conn
		defer func() {
			for _, c := range all {
				c.Close()
			}
		}()
		for range 2000 {
			c, err := r.from("127.0.0.2")(ctx, "")
			if err != nil {
				break
			}
			all = append(all, c)
			opened.Add(1)
			go func() {
				c.Read(make([]byte, 1<<10))
				c.Read(make([]byte, 1<<10))
				closed.Add(1)
			}()
		}
		<-ctx.Done()
	})
	m, err := r.Metrics()
	r.must(err)
	r.note("%d connections opened, %v of them closed by the server, which has %v files", opened.Load(), m["xds_server_connections_closed_total"], m["process_open_fds"])
	if n := m["xds_server_connections_closed_total"]; n < 1000 {
		r.t.Errorf("%v connections were closed: was there a limit?", n)
	}
}

// Strangers want to hold a hundred thousand names each, and begin large requests that
// they do not end. The server keeps to its memory limit.
func memoryExhausted(r *rig) {
	const limit = 192 // MiB
	names := make([]string, 50_000)
	for i := range names {
		names[i] = fmt.Sprintf("%0100d", i)
	}
	var held, begun atomic.Int64
	r.strangers(30, 20*time.Second, func(ctx context.Context, i int) {
		if i < 20 {
			r.holds(ctx, names, &held)
			return
		}
		c, err := r.from("127.0.0.3")(ctx, "")
		if err != nil {
			return
		}
		begun.Add(1)
		unfinished(ctx, c)
	})
	peak := r.peak()
	r.note("%d times 50,000 names, %d unfinished requests; peak of memory %.0f MiB with GOMEMLIMIT=%dMiB", held.Load(), begun.Load(), peak, limit)
	// The limit counts memory that Go manages, without the program itself.
	if peak > limit*5/4 {
		r.t.Errorf("the server took %.0f MiB", peak)
	}
}

// holds subscribes to names until the server ends its stream.
func (r *rig) holds(ctx context.Context, names []string, n *atomic.Int64) {
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.from("127.0.0.2")))
	if err != nil {
		return
	}
	defer conn.Close()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil || s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "holder"}, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: names}) != nil {
		return
	}
	n.Add(1)
	for {
		if _, err := s.Recv(); err != nil {
			pause(ctx, 200*time.Millisecond)
			return
		}
	}
}

// unfinished sends a request of 16 MiB without its end.
func unfinished(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	c.Write([]byte(http2.ClientPreface))
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	var headers bytes.Buffer
	e := hpack.NewEncoder(&headers)
	for _, h := range []string{
		":method POST", ":scheme http", ":path /envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
		":authority server", "content-type application/grpc", "te trailers",
	} {
		name, value, _ := strings.Cut(h, " ")
		e.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true})
	f.WriteData(1, false, []byte{0, 1, 0, 0, 0}) // 16 MiB will come
	windows := make(chan int, 1024)
	go func() {
		in := http2.NewFramer(nil, c)
		defer close(windows)
		for {
			frame, err := in.ReadFrame()
			if err != nil {
				return
			}
			if w, ok := frame.(*http2.WindowUpdateFrame); ok && w.StreamID == 1 {
				windows <- int(w.Increment)
			}
		}
	}()
	part := make([]byte, 16<<10)
	for room, sent := 65535-5, 0; sent < 1<<24-1; {
		n := min(len(part), room, 1<<24-1-sent)
		if n == 0 {
			more, ok := <-windows
			if !ok {
				return
			}
			room += more
			continue
		}
		if f.WriteData(1, false, part[:n]) != nil {
			return
		}
		room -= n
		sent += n
	}
	for range windows { // until the server ends it
	}
}
