package server

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A leash is a connection whose client end can be made to fall silent.
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

func TestConnections(t *testing.T) {
	within(t, "SAFE-1 a half-open connection is noticed", func(t *testing.T) {
		w := serve(t)
		var cut atomic.Bool
		c := w.sotw(t, w.dial(t, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := w.lis.DialContext(ctx)
			return leash{conn, &cut}, err
		})))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		time.Sleep(time.Hour)
		if w.Stats().Open != 1 {
			t.Fatal("a client that says nothing, but lives, was dropped")
		}
		cut.Store(true)
		time.Sleep(40 * time.Second)
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
