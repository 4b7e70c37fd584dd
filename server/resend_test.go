package server

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// An operator has a stream send its resources again.
func TestResend(t *testing.T) {
	within(t, "sent again at once, also after a refusal", func(t *testing.T) {
		o := &streams{}
		w := serve(t, WithObserver(o))
		w.set(xds.Cluster, res("a", "1"), res("b", "1"))
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{"*"}})
		st := o.only(t)
		r := c.want()
		for name, want := range map[string]int{"": 2, "a": 1, "other": 0} {
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
			synctest.Wait()
			if n, err := st.Resend(t.Context(), xds.Cluster, name); n != want || err != nil {
				t.Errorf("%q: %d, %v; want %d", name, n, err, want)
			}
			if want > 0 {
				r = c.want()
			}
			if want > 0 && len(r.Resources) != want {
				t.Errorf("%q: sent %v", name, r)
			}
		}
		if n, err := st.Resend(t.Context(), xds.Listener, ""); n != 0 || err != nil {
			t.Error("a type without a subscription:", n, err)
		}
		c.s.CloseSend()
		c.end()
		synctest.Wait()
		if _, err := st.Resend(t.Context(), xds.Cluster, ""); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
	within(t, "after the answer, if a response is unanswered", func(t *testing.T) {
		o := &streams{}
		w := serve(t, WithObserver(o))
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if n, err := o.only(t).Resend(t.Context(), xds.Cluster, ""); n != 1 || err != nil {
			t.Error(n, err)
		}
		first := c.want()
		time.Sleep(time.Second)
		c.send(ack(first))
		if again := c.want(); again.Nonce == first.Nonce || len(again.Resources) != 1 {
			t.Error(again)
		}
	})
}

// An operator ends a stream: the client gets a status with the reason, and may reconnect.
func TestDisconnect(t *testing.T) {
	within(t, "UNAVAILABLE with the reason", func(t *testing.T) {
		o := &streams{}
		w := serve(t, WithObserver(o))
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		st := o.only(t)
		first := st.Disconnect()
		again := st.Disconnect()
		if !first || !again {
			t.Error("the stream has ended already")
		}
		if s := status.Convert(c.end()); s.Code() != codes.Unavailable || s.Message() != "an operator has ended the stream: reconnect" {
			t.Error(s)
		}
		synctest.Wait()
		if st.Disconnect() {
			t.Error("the stream is still open")
		}
	})
}
