package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// headers are the headers of a call that opens a stream.
func headers() []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "x"},
		{":path", "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"}, {"content-type", "application/grpc"},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return block.Bytes()
}

// raw opens a stream on a connection of its own, and returns a function that writes to the connection.
func (w *world) raw(t *testing.T) *http2.Framer {
	t.Helper()
	conn, err := w.lis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go io.Copy(io.Discard, conn)
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, nil)
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers(), EndHeaders: true})
	return f
}

// begun opens a stream and sends the first 70 KiB of a request of 1 MiB. It returns a function that sends more.
func (w *world) begun(t *testing.T) func(n int) {
	t.Helper()
	f := w.raw(t)
	_ = f.WriteData(1, false, []byte{0, 0, 0x10, 0, 0})
	more := func(n int) {
		for ; n > 0; n -= 1 << 10 {
			_ = f.WriteData(1, false, make([]byte, 1<<10))
		}
		synctest.Wait()
	}
	synctest.Wait() // the server gives the request its window
	more(70 << 10)
	return more
}

func TestUnfinished(t *testing.T) {
	within(t, "SAFE-9 the server waits for a first request that arrives slowly but steadily, until it stops", func(t *testing.T) {
		w := serve(t)
		more := w.begun(t)
		if s := w.Stats(); s.Unfinished != 70<<10 || s.Open != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(16 * time.Second)
		more(65 << 10)
		time.Sleep(15 * time.Second)
		if s := w.Stats(); s.Unfinished != 135<<10 || s.Open != 1 || s.Silent != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if s := w.Stats(); s.Unfinished != 0 || s.Open != 0 || s.Throttled["unfinished"] != 1 || s.Throttled["first_request"] != 0 {
			t.Errorf("%+v", s)
		}
		if log := w.log.String(); !strings.Contains(log, "connection closed: ") || !strings.Contains(log, "limit=read") {
			t.Error(w.log)
		}
	})
	within(t, "SAFE-9 an ended stream has no unfinished requests", func(t *testing.T) {
		w := serve(t, WithReadTimeout(time.Hour))
		w.begun(t)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if s := w.Stats(); s.Unfinished != 0 || s.Open != 0 || s.Throttled["first_request"] != 1 || s.Throttled["unfinished"] != 0 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-9 a large first request does not extend the time of other streams of its connection", func(t *testing.T) {
		w := serve(t)
		f := w.raw(t)
		for id := uint32(3); id < 203; id += 2 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers(), EndHeaders: true})
		}
		_ = f.WriteData(5, false, []byte{0, 0}) // the request has begun, and its rest does not arrive
		_ = f.WriteData(1, false, []byte{0, 1, 0, 0, 0})
		synctest.Wait()
		for i := range 100 {
			if s := w.Stats(); i == 5 && (s.Open != 101 || s.Throttled["first_request"] != 0) || i == 20 && (s.Open != 1 || s.Throttled["first_request"] != 100) {
				t.Fatalf("after %d KiB: %+v", 16*i, s)
			}
			for range 16 {
				_ = f.WriteData(1, false, make([]byte, 1<<10))
			}
			time.Sleep(time.Second)
		}
	})
	within(t, "SAFE-9 even a steadily arriving first request must be complete in the end", func(t *testing.T) {
		w := serve(t)
		f := w.raw(t)
		_ = f.WriteData(1, false, []byte{0, 1, 0, 0, 0})
		start := time.Now()
		for w.Stats().Throttled["first_request"] == 0 {
			synctest.Wait()
			for range 16 {
				_ = f.WriteData(1, false, make([]byte, 1<<10))
			}
			time.Sleep(time.Second)
		}
		synctest.Wait() // it is counted and logged
		if d := time.Since(start); d < 300*time.Second || d > 301*time.Second || !strings.Contains(w.log.String(), "the first request was not complete after 5m0s") {
			t.Errorf("after %v:\n%s", d, w.log)
		}
	})
	within(t, "SAFE-9 a large request that waits to be handled is counted", func(t *testing.T) {
		w := serveFrom(t, New(store.New())) // the content is not known yet, so the second is not handled
		c := w.sotw(t, w.dial(t))
		names := make([]string, 100)
		for i := range names {
			names[i] = strings.Repeat("n", 1000) + strconv.Itoa(i)
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: names})
		synctest.Wait()
		if n := w.Stats().Unfinished; n < 100_000 {
			t.Errorf("%d bytes", n)
		}
		_ = c.s.CloseSend()
		w.grpc.Stop()
		synctest.Wait()
		if n := w.Stats().Unfinished; n != 0 {
			t.Errorf("%d bytes stay", n)
		}
	})
	within(t, "SAFE-9 a begun request that the server does not read has time", func(t *testing.T) {
		w := serveFrom(t, New(store.New())) // the content is not known yet
		conn := w.dial(t)
		for range 3 {
			c := w.sotw(t, conn)
			for range 5 { // one request is handled, one waits, and one has not arrived completely
				c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: []string{strings.Repeat("n", 3000), strings.Repeat("m", 37_000)}})
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := w.Stats(); s.Open != 3 || s.Unfinished != 0 || s.Throttled["unfinished"] != 0 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-9 a small request that has begun must continue to arrive, whatever came before", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
		f := w.raw(t)
		ask, err := proto.Marshal(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if err != nil {
			t.Fatal(err)
		}
		_ = f.WriteData(1, false, append([]byte{0, 0, 0, 0, byte(len(ask))}, ask...))
		_ = f.WriteData(1, false, []byte{0, 0, 1, 0, 0})
		_ = f.WriteData(1, false, make([]byte, 10<<10))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s := w.Stats(); s.Open != 2 || s.Throttled["unfinished"] != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if s := w.Stats(); s.Open != 1 || s.Throttled["unfinished"] != 1 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-9 a body whose client has no address is refused like others", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Unfinished: 200 << 10}))
		b := w.Server.Body(t.Context(), bytes.NewReader(make([]byte, 1<<20)), nil, func() {})
		defer b.Close()
		if _, err := io.Copy(io.Discard, b); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		if s := w.Stats(); s.Throttled["unfinished"] != 1 || !strings.Contains(w.log.String(), "limit=unfinished") {
			t.Errorf("%+v, %s", s, w.log)
		}
	})
	t.Run("copies of credentials count, too", func(t *testing.T) {
		if _, ok := New(store.New()).Credentials(nil).Clone().(counting); !ok {
			t.Error("connections of a copy do not count")
		}
	})
	within(t, "SAFE-9 a complete request is counted until it is handled", func(t *testing.T) {
		w := serve(t)
		more := w.begun(t)
		more(954 << 10)
		if s := w.Stats(); s.Unfinished != 0 || s.Open != 0 || s.Malformed != 1 { // a request of zeros is malformed
			t.Errorf("%+v", s)
		}
	})
}

// resets opens streams on a connection and resets each of them at once, as fast as possible.
func (w *world) resets(t *testing.T, n int) {
	t.Helper()
	conn, err := w.lis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.Copy(io.Discard, conn)
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, nil)
	_ = f.WriteSettings()
	for id := uint32(1); n > 0; n, id = n-1, id+2 {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers(), EndHeaders: true})
		_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	synctest.Wait()
}

func TestStreamRate(t *testing.T) {
	within(t, "SAFE-9 a client that opens and resets streams is slowed down, but others are not", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{StreamRate: 100}))
		conn := w.dial(t)
		w.sotw(t, conn)
		var last time.Duration
		neighbours := make(chan struct{})
		go func() {
			defer close(neighbours)
			for range 100 {
				start := time.Now()
				c := w.sotw(t, conn)
				c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
				c.want()
				last = max(last, time.Since(start))
				time.Sleep(100 * time.Millisecond)
			}
		}()
		start := time.Now()
		w.resets(t, 2000)
		// At most: ten seconds at once, the rate of the time since, one read, and the streams of
		// the neighbours.
		if d, n := time.Since(start), w.Stats().Streams; float64(n) > 1000+100*d.Seconds()+50+100 || d < time.Second {
			t.Errorf("%d streams were begun within %v", n, d)
		}
		<-neighbours
		if last > 0 {
			t.Errorf("a neighbour waited %v", last)
		}
		if n := w.Stats().Throttled["stream_rate"]; n != 1 {
			t.Errorf("counted %d", n)
		}
		if log := w.log.String(); !strings.Contains(log, "opens and ends streams too fast") || !strings.Contains(log, "peer=") || !strings.Contains(log, "per_second=100") {
			t.Errorf("logged\n%s", log)
		}
	})
}

// gone is a stream that has ended.
type gone struct{ grpc.ServerStream }

func (gone) Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A request that will not be handled any more takes no memory.
func TestUnhandled(t *testing.T) {
	s := New(newSource())
	m := &message{data: mem.BufferSlice{mem.SliceBuffer(make([]byte, 2*largeRequest))}}
	s.countWhole(m.data.Len())
	inbox := make(chan *message, 1)
	inbox <- m
	close(inbox)
	st := &stream{server: s, rpc: gone{}, inbox: inbox, failure: io.EOF}
	if why := st.unsent(io.ErrClosedPipe); !errors.Is(why, io.ErrClosedPipe) {
		t.Error(why)
	}
	if n := s.Stats().Unfinished; n != 0 {
		t.Errorf("SAFE-9 %d bytes are held", n)
	}
}
