package server

import (
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// After Leave, a stream sends nothing new, waits some time for the answer of its client, and ends. Other streams continue.
func TestLeaveEndsStream(t *testing.T) {
	for name, answers := range map[string]bool{"answers": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &streams{}
				a := Age{Grace: 3 * time.Second}
				w, _ := agedWorld(t, a, a.GRPCOption(), WithObserver(o))
				w.set(xds.Cluster, res("a", "0"))
				c := w.sotw(t, w.dial(t))
				c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
				r := c.want()
				st := o.only(t)
				other := w.sotw(t, w.dial(t))
				other.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
				other.send(ack(other.want()))
				began := time.Now()
				if first, again := st.Leave(), st.Leave(); !first || !again {
					t.Error("it has ended")
				}
				synctest.Wait()
				w.set(xds.Cluster, res("a", "1")) // the leaving stream does not get this change
				synctest.Wait()
				if answers {
					c.send(ack(r))
				}
				err := c.end()
				if s := status.Convert(err); s.Code() != codes.Unavailable || s.Message() != "other servers have fewer streams: reconnect" {
					t.Error(err)
				}
				if took := time.Since(began); answers && took != 0 || !answers && took != a.Grace {
					t.Errorf("it took %v", took)
				}
				synctest.Wait()
				if st.Leave() || (*Stream)(nil).Leave() {
					t.Error("it is still open")
				}
				other.send(ack(other.want()))
			})
		})
	}
}
