package server

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// narrow is a connection with a limited number of bytes per second.
type narrow struct {
	net.Conn
	rate int
}

func (n narrow) Read(b []byte) (int, error) {
	got, err := n.Conn.Read(b)
	time.Sleep(time.Duration(got) * time.Second / time.Duration(n.rate))
	return got, err
}

// "A slow client never delays another, and skips straight to the newest state; a write blocked for 20 s ends its stream". A write that
// is slow but not blocked does not end it.
func TestSlowClients(t *testing.T) {
	for what, clusters := range map[string][]*xds.Resource{
		"one large resource": {res("a", strings.Repeat("x", 8<<20))},
		"many small ones":    many(8<<10, 1000),
		"many large ones":    many(100, 80_000),
	} {
		within(t, "SAFE-2 SAFE-9 a slow but steady client gets everything: "+what, func(t *testing.T) {
			w := serve(t, WithWriteTimeout(3*time.Second))
			w.set(xds.Cluster, clusters...)
			w.set(xds.Listener, res("l", "1"))
			begin := time.Now()
			c := w.sotw(t, w.dial(t, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				conn, err := w.lis.DialContext(ctx)
				return narrow{conn, 100_000}, err
			})))
			for _, typ := range []*xds.Type{xds.Cluster, xds.Listener} {
				c.send(&discovery.DiscoveryRequest{TypeUrl: typ.URL})
			}
			for range 2 {
				c.send(ack(c.want()))
			}
			if took := time.Since(begin); took < time.Minute {
				t.Errorf("the response took %v: the connection is not slow", took)
			}
			// The client has read everything, and no more data comes for a while.
			time.Sleep(time.Minute)
			w.set(xds.Listener, res("l", "2"))
			c.wants(c.want(), xds.Listener, "2")
			if s := w.Stats(); s.Blocked != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
	for what, types := range map[string][]*xds.Type{
		"more waits":        {xds.Cluster, xds.Listener},
		"the last response": {xds.Cluster}, // gRPC has taken the last response, and reports it as sent
	} {
		within(t, "SAFE-2 a client that stops in the middle does not: "+what, func(t *testing.T) {
			w := serve(t, WithWriteTimeout(3*time.Second))
			w.set(xds.Cluster, res("a", strings.Repeat("x", 8<<20)))
			w.set(xds.Listener, res("l", "1"))
			stop := time.Now().Add(10 * time.Second)
			c := w.sotw(t, w.dial(t, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				conn, err := w.lis.DialContext(ctx)
				return stopping{narrow{conn, 100_000}, stop}, err
			})))
			for _, typ := range types {
				c.send(&discovery.DiscoveryRequest{TypeUrl: typ.URL})
			}
			ended := make(chan error, 1)
			go func() {
				for {
					if _, err := c.s.Recv(); err != nil {
						ended <- err
						return
					}
				}
			}()
			begin := time.Now()
			for w.Stats().Blocked == 0 && time.Since(begin) < time.Minute {
				time.Sleep(time.Second)
			}
			if took := time.Since(begin); took < 10*time.Second || took > 20*time.Second {
				t.Errorf("its stream ended after %v", took)
			}
			if err := <-ended; status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "has read nothing for 3s") {
				t.Error(err)
			}
		})
	}
}

func many(n, size int) (rs []*xds.Resource) {
	for i := range n {
		rs = append(rs, res("cluster-"+string(rune('a'+i%26))+strings.Repeat("i", i/26%100)+time.Duration(i).String(), strings.Repeat("x", size)))
	}
	return rs
}

// stopping does not read for 25 s from a given time on.
type stopping struct {
	narrow
	at time.Time
}

func (s stopping) Read(b []byte) (int, error) {
	if now := time.Now(); now.After(s.at) && now.Before(s.at.Add(25*time.Second)) {
		time.Sleep(25 * time.Second)
	}
	return s.narrow.Read(b)
}

// Marks change no byte, and report when the data before them was read.
func TestMarks(t *testing.T) {
	for _, sizes := range [][]int{{10}, {step}, {step + 1}, {1 << 20}, {1, step, 5, 3 * step, 7}, {step - 1, 1, 1}} {
		var data mem.BufferSlice
		var want []byte
		for i, n := range sizes {
			b := []byte(strings.Repeat(string(rune('a'+i)), n))
			data = append(data, mem.SliceBuffer(b))
			want = append(want, b...)
		}
		var p progress
		m := p.marked(&message{data: data})
		if got := m.data.Materialize(); string(got) != string(want) {
			t.Fatalf("%v: %d bytes, want %d", sizes, len(got), len(want))
		}
		r := m.data.Reader()
		m.data.Free()
		for read := 0; read < len(want); {
			n, err := r.Discard(min(1000, len(want)-read))
			if read += n; err != nil {
				t.Fatal(err)
			}
			if read < len(want) && len(want) > step { // an empty buffer is freed when more is read
				if left := int(p.left.Load()); left > read/step || left < (read-1)/step-1 {
					t.Fatalf("%v: %d bytes were read, and %d marks left", sizes, read, left)
				}
			}
		}
		r.Close()
		if len(want) > step && int(p.left.Load()) != len(want)/step {
			t.Errorf("%v: %d marks left", sizes, p.left.Load())
		}
		if !p.done() {
			t.Errorf("%v: something has not left", sizes)
		}
	}
}
