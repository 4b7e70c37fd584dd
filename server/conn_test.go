package server

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A leash is a connection whose client end can be made silent.
type leash struct {
	net.Conn
	cut *atomic.Bool
}

func (l leash) Write(b []byte) (int, error) {
	if l.cut.Load() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// onLeash connects a client to the server by leashes.
func onLeash(w *world, cut *atomic.Bool) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := w.lis.DialContext(ctx)
		return leash{conn, cut}, err
	})
}

func TestConnections(t *testing.T) {
	within(t, "SAFE-1 a half-open connection is noticed", func(t *testing.T) {
		w := serve(t)
		var cut atomic.Bool
		c := w.sotw(t, w.dial(t, onLeash(w, &cut)))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		time.Sleep(time.Hour)
		if w.Stats().Open != 1 {
			t.Fatal("a silent client that still answers pings was dropped")
		}
		cut.Store(true)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := w.Stats().Open; n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
	within(t, "SAFE-1 a client may ping an idle connection", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}))
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		time.Sleep(10 * time.Minute)
		w.set(xds.Cluster, res("a", "1"))
		if r := c.want(); len(r.Resources) != 1 {
			t.Error(r)
		}
	})
	within(t, "SAFE-1 a connection that does not begin is closed", func(t *testing.T) {
		w := serve(t)
		for what, sent := range map[string]string{"silence": "", "another protocol": "GET / HTTP/1.1\r\n\r\n", "half a preface": "PRI * HTTP/2.0\r\n"} {
			conn, err := w.lis.Dial()
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if _, err := conn.Write([]byte(sent)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d > handshake {
				t.Errorf("%s: closed after %v", what, d)
			}
		}
	})
	within(t, "SAFE-1 SAFE-9 a connection without a stream is closed after a minute, and opens again when a stream needs it", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		conn.Connect()
		time.Sleep(50 * time.Second)
		if s := conn.GetState(); s != connectivity.Ready {
			t.Errorf("it is %v", s)
		}
		time.Sleep(20 * time.Second)
		if s := conn.GetState(); s != connectivity.Idle {
			t.Errorf("it is %v", s)
		}
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
	})
	within(t, "SAFE-1 headers larger than the limit", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		for n, want := range map[int]codes.Code{32 << 10: codes.OK, 65 << 10: codes.Internal} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "token", strings.Repeat("x", n))
			if _, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{}); status.Code(err) != want {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	})
	within(t, "a client that goes away frees its stream", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", string(make([]byte, 1<<20))))
		conn := w.dial(t)
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL}) // and never reads
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		if len(w.watches) != 0 || w.Stats().Open != 0 {
			t.Error(w.watches, w.Stats())
		}
		if err := c.end(); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
}
