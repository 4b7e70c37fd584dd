//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/chancery-xds/chancery/xds"
)

// A flooder is a client that sends requests and does not finish them.
type flooder struct {
	*http2.Framer
	conn net.Conn

	mu      sync.Mutex
	changed *sync.Cond
	window  map[uint32]int // by stream; 0: of the connection
	err     error
}

func flood(t *testing.T, address string) *flooder {
	t.Helper()
	f := &flooder{conn: idle(t, address), window: map[uint32]int{0: 65535}}
	f.changed = sync.NewCond(&f.mu)
	f.Framer = http2.NewFramer(f.conn, f.conn)
	go func() {
		for {
			frame, err := f.ReadFrame()
			f.mu.Lock()
			switch frame := frame.(type) {
			case *http2.WindowUpdateFrame:
				f.window[frame.StreamID] += int(frame.Increment)
			}
			f.err = err
			f.changed.Broadcast()
			f.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return f
}

// headers returns the headers with which a client opens a call of a method.
func headers(method string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", method},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return block.Bytes()
}

var aggregated = headers("/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources")

// open opens an aggregated stream.
func (f *flooder) open(stream uint32) { f.call(stream, aggregated) }

// call opens a stream with headers.
func (f *flooder) call(stream uint32, headers []byte) {
	f.mu.Lock()
	f.window[stream] = 65536
	f.mu.Unlock()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers, EndHeaders: true})
}

// begin sends n bytes of a request that announces more, and reports whether the connection is open.
func (f *flooder) begin(stream uint32, n, said int) bool {
	piece := make([]byte, 16<<10)
	copy(piece, []byte{0, byte(said >> 24), byte(said >> 16), byte(said >> 8), byte(said)})
	for left := 5 + n; left > 0; {
		f.mu.Lock()
		for f.err == nil && (f.window[0] <= 0 || f.window[stream] <= 0) {
			f.changed.Wait()
		}
		n, err := min(left, f.window[0], f.window[stream], len(piece)), f.err
		f.window[0] -= n
		f.window[stream] -= n
		f.mu.Unlock()
		if err != nil || f.WriteData(stream, false, piece[:n]) != nil {
			return false
		}
		clear(piece[:5]) // the bytes of the prefix; the rest belongs to the request
		left -= n
	}
	return true
}

// rss returns the present and the highest memory of a process, in bytes.
func (d *runningServer) rss() (now, most int) {
	d.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.Fatal(err)
	}
	number := func(key string) int {
		n, _ := strconv.Atoi(string(regexp.MustCompile(key + `:\s+(\d+) kB`).FindSubmatch(b)[1]))
		return n << 10
	}
	return number("VmRSS"), number("VmHWM")
}

// "100 unfinished 32 MiB requests (clients that send a length prefix and most of the body, then
// stop) cost < 64 MB", and a complete request of 32 MiB is handled meanwhile.
func TestUnfinishedMemory(t *testing.T) {
	t.Setenv("GOGC", "") // make mutants sets GOGC, which would let the server use more memory
	for _, c := range []struct {
		what           string
		conns, streams int
	}{
		{"SAFE-9 100 connections, each with a request that is never complete", 100, 1},
		{"SAFE-9 one connection with 100 such requests", 1, 100},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := serve(t, []string{"--metrics-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
			d.clusters().gets("a")
			before, _ := d.rss()
			var flooders sync.WaitGroup
			for range c.conns {
				f := flood(t, d.conn.Target())
				for i := range c.streams {
					f.open(uint32(2*i + 1))
				}
				for i := range c.streams {
					flooders.Go(func() { f.begin(uint32(2*i+1), 31<<20, 32<<20) })
					if c.conns == 1 {
						flooders.Wait() // one goroutine writes
					}
				}
			}
			time.Sleep(5 * time.Second)
			_, during := d.rss()
			begin := time.Now()
			d.conn = from("127.0.0.2", d.conn.Target(), t)
			large := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL}
			for i := range 90_000 {
				large.ResourceNames = append(large.ResourceNames, fmt.Sprintf("%s-%d", strings.Repeat("x", 360), i))
			}
			ctx, cancel := context.WithTimeout(d.ctx, 20*time.Second)
			defer cancel()
			s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(large); err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Errorf("a good request: %v", err)
			}
			took := time.Since(begin)
			cancel()
			_, after := d.rss()
			t.Logf("cost %d MB; the good one, %d MB more, took %v", (during-before)/1e6, (after-during)/1e6, took)
			if cost := during - before; cost > 64e6 && buildFlags == nil { // the race detector uses additional memory
				t.Errorf("%d MB", cost/1e6)
			}
			if line := d.logged("connection closed: unfinished requests exceed a limit"); line["peer"] == nil {
				t.Error(line)
			}
			if m := d.metrics(); !regexp.MustCompile(`xds_server_throttled_total{limit="unfinished"} [1-9]`).MatchString(m) || !strings.Contains(m, "xds_server_unfinished_bytes ") {
				t.Error("the metrics do not count it")
			}
			_ = d.cmd.Process.Kill()
			flooders.Wait()
		})
	}
}

// A connection on which a large request stops is closed after the time of the flag, not after the default.
func TestReadTimeoutFlag(t *testing.T) {
	t.Run("SAFE-9 --read-timeout", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--read-timeout", "200ms"}, "a.yaml", cluster("a"))
		start := time.Now()
		f := flood(t, d.conn.Target())
		f.open(1)
		f.begin(1, 100<<10, 1<<20)
		if line := d.logged("connection closed: unfinished requests exceed a limit"); line["error"] != "a request arrived too slowly" {
			t.Error(line)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// live returns the memory in use after a collection, in bytes.
func (d *runningServer) live() (n int) {
	d.Helper()
	r, err := http.Get("http://" + d.http + "/debug/pprof/heap?gc=1")
	if err != nil {
		d.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	for _, m := range regexp.MustCompile(`(?m)^go_memstats_(?:heap|stack)_inuse_bytes (.*)`).FindAllStringSubmatch(d.metrics(), -1) {
		f, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			d.Fatal(err)
		}
		n += int(f)
	}
	return n
}

// "10 connections × 10,000 silent streams are gone after the first-request deadline and cost < 100 MB", and
// other clients are served meanwhile.
func TestSilentStreamsMemory(t *testing.T) {
	t.Setenv("GOGC", "") // make mutants sets GOGC, which would let the server use more memory
	if len(buildFlags) > 0 {
		t.Skip("the race detector uses additional memory")
	}
	for _, c := range []struct{ what, method string }{
		{"streams", "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"},
		{"fetches", "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"},
		{"checks of health", "/grpc.health.v1.Health/Check"},
	} {
		t.Run("SAFE-9 silent "+c.what+" cost little, do not lock out others, and end after a while", func(t *testing.T) {
			// Refused streams would arrive one after the other, which costs less.
			d := serve(t, []string{"--metrics-listen", "127.0.0.1:0", "--first-request-timeout", "8s", "--max-stream-rate", "0"}, "a.yaml", cluster("a"))
			d.clusters().gets("a")
			before := d.live()
			idle, _ := d.rss()
			block := headers(c.method)
			for range 10 {
				f := flood(t, d.conn.Target())
				go func() {
					for i := range uint32(10_000) {
						f.call(2*i+1, block)
					}
				}()
			}
			refused := regexp.MustCompile(`xds_server_throttled_total{limit="silent_streams"} 9[789]\d{3}\n`)
			for !refused.MatchString(d.metrics()) {
				time.Sleep(10 * time.Millisecond)
			}
			d.conn = from("127.0.0.2", d.conn.Target(), t)
			d.clusters().gets("a")
			for !strings.Contains(d.metrics(), "xds_server_streams_silent 0\n") {
				time.Sleep(100 * time.Millisecond)
			}
			_, most := d.rss()
			left := d.live() - before
			t.Logf("the requests cost %d MB, and %d MB after their end", (most-idle)/1e6, left/1e6)
			if (most-idle > 100e6 || left > 50e6) && buildFlags == nil { // the race detector uses additional memory
				t.Errorf("the streams cost %d bytes, and %d after their end", most-idle, left)
			}
		})
	}
}

// "HTTP/2 rapid reset": a client that opens streams and resets them at once is noticed, and other clients
// are served. Unit tests check the delay.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	t.Run("SAFE-9 --max-stream-rate", func(t *testing.T) {
		d := serve(t, []string{"--metrics-listen", "127.0.0.1:0", "--max-stream-rate", "10"}, "a.yaml", cluster("a"))
		f := flood(t, d.conn.Target())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range uint32(100_000) { // more than fit into the buffers of a connection
				f.open(2*i + 1)
				if f.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
					return
				}
			}
		}()
		for !strings.Contains(d.metrics(), `xds_server_throttled_total{limit="stream_rate"} 1`+"\n") {
			time.Sleep(10 * time.Millisecond)
		}
		d.clusters().gets("a")
		f.conn.Close()
		<-done
	})
}
