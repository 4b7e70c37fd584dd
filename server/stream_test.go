package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// within runs a test in a bubble, where time costs nothing.
func within(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// idle fails the test if a message comes within a second. The test cannot use the stream after that.
func (c *client[Req, Res]) idle(why string) {
	c.t.Helper()
	got := make(chan *Res, 1)
	go func() {
		if r, err := c.s.Recv(); err == nil {
			got <- r
		}
	}()
	select {
	case r := <-got:
		c.t.Fatalf("%s, but got %v", why, r)
	case <-time.After(time.Second):
	}
}

func ack(r *discovery.DiscoveryResponse, names ...string) *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{TypeUrl: r.TypeUrl, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce, ResourceNames: names}
}

func nack(r *discovery.DiscoveryResponse, text string, names ...string) *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ResourceNames: names, ErrorDetail: status.New(codes.Internal, text).Proto()}
}

func TestADS(t *testing.T) {
	within(t, "TYP-3 SotW: types side by side", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		w.set(xds.Endpoint, res("e", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
		r := c.want()
		if len(r.Resources) != 1 || r.TypeUrl != xds.Cluster.URL || string(r.Resources[0].Value) != "1" {
			t.Fatal(r)
		}
		c.send(ack(r))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
		if r := c.want(); r.TypeUrl != xds.Endpoint.URL || len(r.Resources) != 1 {
			t.Fatal(r)
		}
		w.set(xds.Cluster, res("b", "2"))
		if r := c.want(); len(r.Resources) != 2 {
			t.Fatal(r)
		}
	})
	within(t, "TYP-3 delta: upserts and removals", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"), res("b", "1"))
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
		r := c.want()
		if len(r.Resources) != 2 || r.Resources[0].Name != "a" {
			t.Fatal(r)
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
		w.update(xds.Cluster, []*xds.Resource{res("c", "1")}, "a")
		if r := c.want(); len(r.Resources) != 1 || r.Resources[0].Name != "c" || len(r.RemovedResources) != 1 {
			t.Fatal(r)
		}
	})
	within(t, "TYP-4 a type that the table does not list", func(t *testing.T) {
		w := serve(t)
		own := xds.TypeOf("type.googleapis.com/my.Own")
		w.set(own, res("x", "opaque"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: own.URL})
		if r := c.want(); len(r.Resources) != 1 || r.Resources[0].TypeUrl != own.URL || string(r.Resources[0].Value) != "opaque" {
			t.Fatal(r)
		}
	})
	within(t, "TYP-5 no type", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		c, d := w.sotw(t, conn), w.delta(t, conn)
		c.send(&discovery.DiscoveryRequest{})
		d.send(&discovery.DeltaDiscoveryRequest{})
		for _, err := range []error{c.end(), d.end()} {
			if status.Code(err) != codes.InvalidArgument {
				t.Error(err)
			}
		}
	})
	within(t, "SAFE-5 the control plane identifier is sent", func(t *testing.T) {
		rev := "replica-1/rev-1"
		w := serve(t, WithIdentifier(func() string { return rev }))
		conn := w.dial(t)
		c, d := w.sotw(t, conn), w.delta(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if a, b := c.want().ControlPlane.GetIdentifier(), d.want().ControlPlane.GetIdentifier(); a != rev || b != rev {
			t.Errorf("got %q and %q", a, b)
		}
	})
	within(t, "a client that half-closes gets the due responses", func(t *testing.T) {
		w := serve(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.s.CloseSend()
		c.want()
		if err := c.end(); err.Error() != "EOF" {
			t.Error(err)
		}
		c = w.sotw(t, w.dial(t))
		c.s.CloseSend()
		if err := c.end(); err.Error() != "EOF" {
			t.Error(err)
		}
	})
	within(t, "the watch gets the client's interests, and is closed", func(t *testing.T) {
		w := serve(t)
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"x", "y"}, Node: &corev3.Node{Id: "n"}})
		c.want()
		for wa := range w.watches {
			if got := fmt.Sprint(wa.interests[xds.Endpoint.URL]); got != "[x y]" {
				t.Error(got)
			}
		}
		if len(w.watches) != 1 || len(w.nodes) != 1 || w.nodes[0].ID != "n" {
			t.Error(w.watches, w.nodes)
		}
		c.s.CloseSend()
		c.end()
		synctest.Wait()
		if len(w.watches) != 0 || w.Stats().Open != 0 || w.Stats().Streams != 1 {
			t.Error(w.watches, w.Stats())
		}
	})
}

func TestNode(t *testing.T) {
	within(t, "SUB-5 no node at first", func(t *testing.T) {
		w := serve(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
		if len(w.nodes) != 1 || w.nodes[0] != nil {
			t.Error(w.nodes)
		}
	})
	within(t, "SUB-5 another id later is ignored, counted and logged once", func(t *testing.T) {
		w := serve(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "first"}})
		c.want()
		for range 3 {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, Node: &corev3.Node{Id: "second"}})
		}
		synctest.Wait()
		if len(w.nodes) != 1 || w.Stats().NodeChanges != 1 || strings.Count(w.log.String(), "now=second") != 1 {
			t.Error(w.nodes, w.Stats(), w.log)
		}
	})
	within(t, "SUB-5 SAFE-6 many streams with another id make one line with a count", func(t *testing.T) {
		w := serve(t)
		for i := range 50 {
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: fmt.Sprint("first-", i)}})
			c.want()
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, Node: &corev3.Node{Id: fmt.Sprint("second-", i)}})
		}
		time.Sleep(dedup.Within)
		synctest.Wait()
		if got := strings.Count(w.log.String(), "changed its node id"); got != 2 || !strings.Contains(w.log.String(), "repeated=49") || w.Stats().NodeChanges != 50 {
			t.Errorf("%d lines, %+v: %s", got, w.Stats(), w.log)
		}
	})
}

// Changes are combined while a client does not read. Other clients do not notice.
func TestSlowClient(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	within(t, "SAFE-2 a client that never reads", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", big))
		slow, quick := w.sotw(t, w.dial(t)), w.sotw(t, w.dial(t))
		for _, c := range []*sotwClient{slow, quick} {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		}
		quick.send(ack(quick.want()))
		start := time.Now()
		for i := range 40 {
			time.Sleep(time.Second)
			at := time.Now()
			w.set(xds.Cluster, res("b", fmt.Sprint(i)))
			quick.send(ack(quick.want()))
			if d := time.Since(at); d > 0 {
				t.Fatalf("the quick client waited %v", d)
			}
			if w.Stats().Blocked == 1 && w.Stats().Open == 1 {
				break
			}
		}
		// The first response was taken by the transport's buffers. The second
		// leaves after 5 s without an answer, and is blocked.
		if d := time.Since(start); d < 25*time.Second || d > 27*time.Second || w.Stats().Blocked != 1 {
			t.Fatalf("after %v: %+v", d, w.Stats())
		}
		if err := slow.end(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the slow client got %v", err)
		}
	})
	within(t, "SAFE-2 a client that reads late skips to the newest state", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", big))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		for i := range 15 {
			time.Sleep(time.Second)
			w.set(xds.Cluster, res("a", big+fmt.Sprint(i)))
		}
		var last *discovery.DiscoveryResponse
		n := 0
		for last == nil || !strings.HasSuffix(string(last.Resources[0].Value), "14") {
			last = c.want()
			c.send(ack(last))
			n++
		}
		if n > 3 {
			t.Errorf("%d responses, want the first, the blocked and the newest response", n)
		}
		c.idle("the newest state was sent")
	})
}

func TestTiming(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Second} { // longer than the stream keeps its place among the first answers
		within(t, fmt.Sprint("SAFE-2 a change during a slow write follows it ", slow), func(t *testing.T) {
			big := strings.Repeat("x", 1<<20)
			w := serve(t)
			w.set(xds.Cluster, res("a", big))
			w.set(xds.Endpoint, res("e", big))
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Runtime.URL, ResourceNames: []string{"r"}})
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			synctest.Wait()
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
			synctest.Wait() // the second response is blocked by the first
			w.set(xds.Runtime, res("r", "1"))
			time.Sleep(slow)
			synctest.Wait()
			start := time.Now()
			for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint, xds.Runtime} {
				if r := c.want(); r.TypeUrl != typ.URL {
					t.Fatalf("got %s, want %s", r.TypeUrl, typ)
				}
			}
			if d := time.Since(start); d > 0 {
				t.Errorf("the change followed after %v", d)
			}
		})
	}
	within(t, "SAFE-2 a subscription during a slow write is answered after it", func(t *testing.T) {
		big := strings.Repeat("x", 1<<20)
		w := serve(t)
		w.set(xds.Cluster, res("a", big))
		w.set(xds.Endpoint, res("e", big))
		w.set(xds.Runtime, res("r", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Runtime.URL, ResourceNames: []string{"absent"}})
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		synctest.Wait()
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
		time.Sleep(time.Second) // the stream has no place among the first answers any more, and no change rings
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Runtime.URL, ResourceNames: []string{"absent", "r"}})
		synctest.Wait()
		start := time.Now()
		for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint, xds.Runtime} {
			if r := c.want(); r.TypeUrl != typ.URL || time.Since(start) > 0 {
				t.Fatalf("got %s after %v, want %s at once", r.TypeUrl, time.Since(start), typ)
			}
		}
	})
	within(t, "SAFE-2 a client that reads but does not answer gets the newest state after a while", func(t *testing.T) {
		w := serve(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
		start := time.Now()
		w.set(xds.Cluster, res("a", "1"))
		w.set(xds.Cluster, res("a", "2"))
		if r := c.want(); string(r.Resources[0].Value) != "2" || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), r)
		}
	})
}

// An observer that records the story of a stream.
type story struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *story) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.b, format+"\n", args...)
}

func (s *story) Opened(st *Stream) { s.add("%d opened by %s, %v", st.ID, st.Node.ID, st.Variant) }
func (s *story) Event(st *Stream, e protocol.Event) {
	text := ""
	if e.Error != nil {
		text = ": " + e.Error.Message
	}
	s.add("%d %s %v%s", st.ID, e.Type, e.Kind, text)
}
func (s *story) Closed(st *Stream, err error) { s.add("%d closed: %v", st.ID, err) }

func TestObserver(t *testing.T) {
	within(t, "events come in order", func(t *testing.T) {
		var s story
		w := serve(t, WithObserver(&s))
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
		c.send(ack(c.want()))
		w.set(xds.Cluster, res("a", "2"))
		c.send(nack(c.want(), "no   such\nthing"))
		c.s.CloseSend()
		c.end()
		synctest.Wait()
		want := `1 opened by n, sotw
1 CDS opened
1 CDS subscribed
1 CDS sent
1 CDS acked
1 CDS sent
1 CDS nacked: no such thing
1 closed: <nil>
`
		if got := s.b.String(); got != want {
			t.Errorf("got\n%s", got)
		}
	})
}

func TestRefused(t *testing.T) {
	within(t, "SOTW-18 a NACK outlives its stream", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		conn := w.dial(t)
		node := &corev3.Node{Id: "n"}
		reopen := func(version string) *sotwClient {
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: version, Node: node})
			return c
		}
		first := reopen("")
		good := first.want()
		first.send(ack(good))
		w.set(xds.Cluster, res("a", "bad"))
		first.send(nack(first.want(), "no"))
		synctest.Wait()
		w.set(xds.Cluster, res("a", "1"))

		// The client states the version that is current now. But it may have applied parts of the
		// refused version.
		c := reopen(good.VersionInfo)
		c.send(ack(c.want()))
		synctest.Wait()
		// As long as the history of the first stream is kept, another client of the node may have
		// accepted the refused version.
		first.s.CloseSend()
		time.Sleep(historyTime)
		reopen(good.VersionInfo).idle("the client is up to date, and has accepted since")
	})
	within(t, "SOTW-18 a NACK on a stream of delta counts for the next of SotW", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		conn := w.dial(t)
		node := &corev3.Node{Id: "n"}
		first := w.sotw(t, conn)
		first.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: node})
		good := first.want()
		first.send(ack(good))
		first.s.CloseSend()
		synctest.Wait()
		w.set(xds.Cluster, res("a", "bad"))
		d := w.delta(t, conn)
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: node})
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: d.want().Nonce, ErrorDetail: &rpcstatus.Status{Message: "no"}})
		synctest.Wait()
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: good.VersionInfo, Node: node})
		if r := c.want(); r.VersionInfo != good.VersionInfo {
			t.Errorf("told %v", r)
		}
	})
	within(t, "SOTW-18 an ACK of an older response does not end a refusal", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "bad"))
		conn := w.dial(t)
		open := func() *deltaClient {
			c := w.delta(t, conn)
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
			return c
		}
		c := open()
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: c.want().Nonce, ErrorDetail: &rpcstatus.Status{Message: "no"}})
		synctest.Wait()
		c = open()
		early := c.want()
		time.Sleep(10 * time.Second) // after this time changes do not wait for the answer
		w.set(xds.Cluster, res("b", "1"))
		late := c.want()
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: early.Nonce})
		synctest.Wait()
		if !w.refused.has("n", xds.Cluster.URL) {
			t.Error("the refusal is forgotten")
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: late.Nonce})
		synctest.Wait()
		if w.refused.has("n", xds.Cluster.URL) {
			t.Error("the refusal outlives the ACK of the newest")
		}
	})
	within(t, "SOTW-18 a late ACK of the response before does not make up for a NACK", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
		early := c.want()
		time.Sleep(10 * time.Second) // after this time changes do not wait for the answer
		w.set(xds.Cluster, res("b", "1"))
		late := c.want()
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: late.Nonce, ErrorDetail: &rpcstatus.Status{Message: "no"}})
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: early.Nonce})
		synctest.Wait()
		if !w.refused.has("n", xds.Cluster.URL) {
			t.Error("the refusal is forgotten")
		}
	})
	t.Run("SOTW-18 bounded", func(t *testing.T) {
		r, now := newRefusals(2), time.Now()
		r.add("a", "x", now)
		r.add("b", "x", now)
		r.add("a", "x", now.Add(time.Hour))
		r.add("c", "x", now)
		if !r.has("a", "x") || r.has("b", "x") || !r.has("c", "x") || len(r.index) != 2 || r.order.Len() != 2 {
			t.Error(r.index)
		}
		if since, ok := r.remove(refusal{"a", "x"}); !ok || !since.Equal(now) {
			t.Error("it refuses since", since, ok)
		}
		if _, ok := r.remove(refusal{"a", "y"}); ok || r.has("a", "x") || len(r.index) != 1 || r.order.Len() != 1 {
			t.Error(r.index)
		}
	})
}
