package server

import (
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// SOTW-18: an ACK of the newest response ends a refusal, if the client has then accepted everything that it refused before.
func TestRefusalEndsWithACK(t *testing.T) {
	for _, c := range []struct {
		name     string
		ack      protocol.Event
		refusing bool
	}{
		{"SOTW-18 the newest response", protocol.Event{Settled: true}, false},
		{"SOTW-18 an earlier response", protocol.Event{}, true},
		{"DELTA-15 the newest response, while another is refused", protocol.Event{Settled: true, Refuses: true}, true},
		{"DELTA-15 an earlier response, while another is refused", protocol.Event{Refuses: true}, true},
	} {
		s := New(newSource(), new(logbook).at(0))
		st := &Stream{Node: &xds.Node{ID: "n"}}
		s.event(st, protocol.Event{Kind: protocol.Nacked, Type: xds.Endpoint, Nonce: "1", Error: &xds.Status{Message: "no"}}, nil)
		c.ack.Kind, c.ack.Type, c.ack.Nonce = protocol.Acked, xds.Endpoint, "2"
		s.event(st, c.ack, nil)
		if got := s.refused.has("n", xds.Endpoint.URL); got != c.refusing {
			t.Errorf("%s: the node counts as refusing: %v", c.name, got)
		}
		if s.refused.has("n", xds.Cluster.URL) || s.refused.has("m", xds.Endpoint.URL) {
			t.Errorf("%s: another type, or another node, counts as refusing", c.name)
		}
	}
}

// SOTW-18: the end of a refusal is an ACK only if the client has accepted a response after its last NACK. A client
// that has unsubscribed has not.
func TestEndOfRefusalIsNoACK(t *testing.T) {
	for _, settled := range []bool{true, false} {
		s := New(newSource(), new(logbook).at(0))
		st := &Stream{Node: &xds.Node{ID: "n"}}
		s.event(st, protocol.Event{Kind: protocol.Nacked, Type: xds.Endpoint, Nonce: "1", Error: &xds.Status{Message: "no"}}, nil)
		s.event(st, protocol.Event{Kind: protocol.Recovered, Type: xds.Endpoint, Settled: settled}, nil)
		if got := s.refused.has("n", xds.Endpoint.URL); got == settled {
			t.Errorf("SOTW-18 accepted since: %v, it counts as refusing: %v", settled, got)
		}
	}
}

// A witness records the events of one stream.
type witness struct {
	opened, closed []*Stream
	nacks          []string
	why            error
}

func (w *witness) Opened(st *Stream)            { w.opened = append(w.opened, st) }
func (w *witness) Closed(st *Stream, why error) { w.closed, w.why = append(w.closed, st), why }
func (w *witness) Event(_ *Stream, e protocol.Event) {
	if e.Error != nil {
		w.nacks = append(w.nacks, e.Error.Message)
	}
}

func TestWitness(t *testing.T) {
	within(t, "an observer gets the stream, its start and the reason of its end", func(t *testing.T) {
		var o witness
		w := serve(t, WithObserver(&o), WithLimits(Limits{Node: 100}))
		w.set(xds.Secret, res("key", "1"))
		time.Sleep(time.Second)
		c := w.sotw(t, w.dial(t))
		time.Sleep(time.Second)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Secret.URL, ResourceNames: []string{"key"}})
		c.send(nack(c.want(), "hunter2 is no key", "key"))
		synctest.Wait()
		if len(o.opened) != 1 || len(o.closed) != 0 || len(o.nacks) != 1 || o.nacks[0] != withheld {
			t.Fatalf("%+v", o)
		}
		if st := o.opened[0]; st.Peer == nil || !st.Since.Equal(time.Now()) {
			t.Errorf("%+v", st)
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: string(make([]byte, 1<<20))})
		if err := c.end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		synctest.Wait()
		if len(o.closed) != 1 || o.closed[0] != o.opened[0] || status.Code(o.why) != codes.ResourceExhausted {
			t.Errorf("%+v", o)
		}
	})
	within(t, "an observer gets no event of a stream without a request", func(t *testing.T) {
		var o witness
		w := serve(t, WithObserver(&o))
		c := w.sotw(t, w.dial(t))
		c.s.CloseSend()
		c.end()
		synctest.Wait()
		if len(o.opened)+len(o.closed) != 0 {
			t.Errorf("%+v", o)
		}
	})
}
