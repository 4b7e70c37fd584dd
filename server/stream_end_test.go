package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// split opens a delta stream whose client has accepted a resource, and then changes 10 resources, in 10 responses. The
// client does not read them, so a write waits.
func split(t *testing.T, o *witness) (*world, *deltaClient, context.CancelFunc) {
	t.Helper()
	w := serve(t, WithLimits(Limits{Response: 64 << 10}), WithObserver(o))
	w.set(xds.Cluster, res("a", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	s, err := discovery.NewAggregatedDiscoveryServiceClient(w.dial(t)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := &deltaClient{t, s}
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: c.want().Nonce})
	synctest.Wait()
	var rs []*xds.Resource
	for i := range 10 {
		rs = append(rs, res(fmt.Sprint("large", i), strings.Repeat("x", 60<<10)))
	}
	w.set(xds.Cluster, rs...)
	synctest.Wait()
	return w, c, cancel
}

// received reads responses until the stream ends, and returns the number of their resources.
func received(c *deltaClient) (n int, err error) {
	defer soon()()
	for {
		r, err := c.s.Recv()
		if err != nil {
			return n, err
		}
		n += len(r.Resources)
	}
}

// A client that sends no more requests gets all responses that are due, and then the stream ends.
func TestEndAfterLastResponse(t *testing.T) {
	within(t, "the responses of one change", func(t *testing.T) {
		_, c, cancel := split(t, &witness{})
		defer cancel()
		if err := c.s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n, err := received(c); n != 10 || !errors.Is(err, io.EOF) {
			t.Errorf("%d resources, then %v", n, err)
		}
	})
	within(t, "without an end, each response comes without an ACK of the one before", func(t *testing.T) {
		_, c, cancel := split(t, &witness{})
		defer cancel()
		for n := 0; n < 10; {
			n += len(c.want().Resources)
		}
	})
	within(t, "the first response, which waits for a place", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{FirstAnswers: 1}))
		w.set(xds.Cluster, res("a", "1"))
		conn := w.dial(t)
		first, second := w.sotw(t, conn), w.sotw(t, conn)
		first.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		first.want()
		second.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if err := second.s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if r := second.want(); len(r.Resources) != 1 {
			t.Error(r)
		}
		if err := second.end(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	within(t, "a client that leaves without reading them", func(t *testing.T) {
		o := &witness{}
		_, c, cancel := split(t, o)
		if err := c.s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(o.closed) != 1 || status.Code(o.why) != codes.Canceled {
			t.Errorf("%d streams closed, with %v", len(o.closed), o.why)
		}
	})
}

// A stream that works when it gets a notice obeys it after the step.
func TestNoticesDuringAStep(t *testing.T) {
	lost := status.Error(codes.ResourceExhausted, "lost")
	for what, tt := range map[string]struct {
		notify func(*Stream)
		want   error
	}{
		"Leave":              {func(st *Stream) { st.Leave() }, errSurplus},
		"the loss of a seat": {func(st *Stream) { st.inspections.wake.lose(lost) }, lost},
	} {
		within(t, what, func(t *testing.T) {
			g, o := &gated{Store: store.New()}, &streams{}
			put(t, g.Store, xds.Cluster, res("a", "1"))
			w := serveFrom(t, New(g, new(logbook).at(0), WithObserver(o)))
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			c.send(ack(c.want()))
			st := o.only(t)
			shut := make(chan struct{})
			g.shut.Store(&shut)
			put(t, g.Store, xds.Cluster, res("a", "2"))
			synctest.Wait() // the stream is in Next
			tt.notify(st)
			g.shut.Store(nil)
			close(shut)
			if err := c.end(); status.Convert(err).Message() != status.Convert(tt.want).Message() {
				t.Error(err)
			}
		})
	}
}
