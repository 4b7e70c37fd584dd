package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/xds"
)

const (
	adsStream = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	adsDelta  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
)

func names(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprint("name-", i)
	}
	return s
}

// A wrong request ends only its own stream, with a clear status and a line in the log that names
// the client.
func TestBadRequests(t *testing.T) {
	node := &corev3.Node{Id: "culprit"}
	sotw := func(r *discovery.DiscoveryRequest) string { return encoded(t, r) }
	delta := func(r *discovery.DeltaDiscoveryRequest) string { return encoded(t, r) }
	long := func(n int) string { return strings.Repeat("x", n) }
	first := sotw(&discovery.DiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
	firstDelta := delta(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"e"}})
	routes := "/" + xds.Route.Service + "/" + xds.Route.Stream

	for _, c := range []struct {
		name   string
		method string
		sent   []string
		code   codes.Code
		says   string
		counts string // in Stats.Throttled; "": malformed
		nobody bool   // the server does not know the client
	}{
		{"torn", adsStream, []string{"\x1a\x05abc"}, codes.InvalidArgument, "malformed DiscoveryRequest", "", true},
		{"torn, delta", adsDelta, []string{"\x1a\x05abc"}, codes.InvalidArgument, "malformed DeltaDiscoveryRequest", "", true},
		{"no protobuf", adsStream, []string{"GET / HTTP/1.1\r\n\r\n"}, codes.InvalidArgument, "malformed", "", true},
		{"no protobuf, later", adsStream, []string{first, "GET / HTTP/1.1\r\n\r\n"}, codes.InvalidArgument, "malformed", "", false},
		{"a name that is not UTF-8", adsStream, []string{first, "\x1a\x02\xff\xfe"}, codes.InvalidArgument, "field 3: invalid UTF-8", "", false},
		{"a node that is not a message", adsStream, []string{"\x12\x03abc"}, codes.InvalidArgument, "malformed", "", true},
		{"a group that does not end", adsStream, []string{first, "\x7b\x7b\x7b"}, codes.InvalidArgument, "malformed", "", false},
		{"no type", adsStream, []string{sotw(&discovery.DiscoveryRequest{Node: node})}, codes.InvalidArgument, "type_url is missing", "", false},
		{"no type, delta", adsDelta, []string{delta(&discovery.DeltaDiscoveryRequest{Node: node})}, codes.InvalidArgument, "type_url is missing", "", false},
		{"another type than the service's", routes, []string{first}, codes.InvalidArgument, "does not belong on this stream", "", false},
		{"a type URL of 1 MiB", adsStream, []string{first, sotw(&discovery.DiscoveryRequest{TypeUrl: long(1 << 20)})}, codes.ResourceExhausted, "a type_url of 1048576 bytes, more than 1024", "request", false},
		{"a node of 8 MiB", adsStream, []string{sotw(&discovery.DiscoveryRequest{Node: &corev3.Node{Id: "n", UserAgentName: long(8 << 20)}})}, codes.ResourceExhausted, "more than 262144", "request", true},
		{"a node of 8 MiB, delta", adsDelta, []string{delta(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n", UserAgentName: long(8 << 20)}})}, codes.ResourceExhausted, "more than 262144", "request", true},
		{"a node id of 5,000 bytes", adsStream, []string{sotw(&discovery.DiscoveryRequest{Node: &corev3.Node{Id: long(5000)}})}, codes.ResourceExhausted, "a node id of 5000 bytes, more than 4096", "request", true},
		{"a request of 33 MiB", adsStream, []string{first, sotw(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, VersionInfo: long(33 << 20)})}, codes.ResourceExhausted, "larger than max", "request", false},
		{"a million names", adsStream, []string{first, sotw(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names(1_000_000)})}, codes.ResourceExhausted, "1000000 names, more than 100000", "request", false},
		{"a name of 1 MiB", adsStream, []string{first, sotw(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{long(1 << 20)}})}, codes.ResourceExhausted, "a name of 1048576 bytes, of type EDS: more than 4096", "subscription", false},
		{"a name of 1 MiB, delta", adsDelta, []string{firstDelta, delta(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{long(1 << 20)}})}, codes.ResourceExhausted, "a name of 1048576 bytes, of type EDS: more than 4096", "subscription", false},
		{"names of more than 4 MiB in all, where these are allowed", adsDelta, manyNames(t, node), codes.ResourceExhausted, "bytes on one stream, more than 4194304", "subscription", false},
		{"more than 64 types", adsStream, manyTypes(t, node), codes.ResourceExhausted, "more than 64 resource types", "subscription", false},
	} {
		within(t, "SAFE-1 "+c.name, func(t *testing.T) {
			w := serve(t, WithLimits(Limits{Held: 4 << 20}))
			w.set(xds.Endpoint, res("e", "1"))
			conn, other := w.dial(t), w.dial(t)
			neighbours := []*sotwClient{w.sotw(t, conn), w.sotw(t, other)}
			for _, n := range neighbours {
				n.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
				n.send(ack(n.want(), "e"))
			}
			synctest.Wait()
			started := time.Now()

			s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, c.method, rawCodec)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error)
			go func() {
				for {
					if err := s.RecvMsg(&message{}); err != nil {
						ended <- err
						return
					}
				}
			}()
			for _, b := range c.sent {
				if s.SendMsg(raw(b)) != nil {
					break // RecvMsg returns the reason
				}
			}
			stop := soon()
			err = <-ended
			stop()
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes: %.500v", len(err.Error()), err)
			}
			synctest.Wait()
			var log string // without the warnings about large responses, which missing names may cause
			for line := range strings.Lines(w.log.String()) {
				if !strings.Contains(line, "larger than clients accept") {
					log += line
				}
			}
			who := "node=culprit"
			if c.nobody {
				who = "peer="
			}
			if strings.Count(log, "\n") != 1 || !strings.Contains(log, "peer=bufconn") || !strings.Contains(log, who) || strings.Count(log, "code="+c.code.String()) != 1 || len(log) > 1000 {
				t.Errorf("logged\n%s", log)
			}
			stats := w.Stats()
			if c.counts == "" && stats.Malformed != 1 || c.counts != "" && stats.Throttled[c.counts] != 1 {
				t.Errorf("counted %+v", stats)
			}
			if stats.Open != len(neighbours) {
				t.Errorf("%d streams are open", stats.Open)
			}
			w.set(xds.Endpoint, res("e", "2"))
			for _, n := range neighbours {
				if r := n.want(); string(r.Resources[0].Value) != "2" {
					t.Error(r)
				}
			}
			if d := time.Since(started); d > 0 {
				t.Errorf("the neighbours waited %v", d)
			}
		})
	}
}

func encoded(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// manyNames are requests with names of 4,000 bytes in several types, 5 MiB together. Each request alone is within the limits.
func manyNames(t *testing.T, node *corev3.Node) (all []string) {
	pad := strings.Repeat("n", 4000)
	for i := range 13 {
		typ := []*xds.Type{xds.Cluster, xds.Endpoint, xds.Route}[i%3]
		r := &discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL}
		for j := range 100 {
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, fmt.Sprint(pad, i, "-", j))
		}
		all = append(all, encoded(t, r))
	}
	return all
}

func manyTypes(t *testing.T, node *corev3.Node) (all []string) {
	for i := range 65 {
		all = append(all, encoded(t, &discovery.DiscoveryRequest{Node: node, TypeUrl: fmt.Sprint("type.googleapis.com/my.Own", i)}))
	}
	return all
}

func TestLimits(t *testing.T) {
	w := serve(t)
	w.set(xds.Endpoint, res("e", "1"))
	conn := w.dial(t)

	refused := func(t *testing.T, err error) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted || len(err.Error()) > 400 {
			t.Errorf("got %v", err)
		}
	}
	t.Run("SAFE-1 a million names, bit by bit", func(t *testing.T) {
		c := w.delta(t, conn)
		end := make(chan error, 1)
		go func() { end <- c.end() }()
		for all := range slices.Chunk(names(1_000_000), 50_000) {
			if c.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: all}) != nil {
				break
			}
		}
		refused(t, <-end)
	})
	t.Run("SAFE-4 a request of 5 MiB", func(t *testing.T) {
		c := w.delta(t, conn)
		m := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, InitialResourceVersions: map[string]string{}, ResourceNamesSubscribe: []string{"e"}}
		for i := range 50_000 {
			m.InitialResourceVersions[fmt.Sprintf("a-name-as-long-as-names-are-%060d", i)] = "0123456789abcdef"
		}
		c.send(m)
		if r := c.want(); len(r.Resources) != 1 {
			t.Errorf("%d resources", len(r.Resources))
		}
	})
	within(t, "SAFE-1 names that are given up do not count", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Held: 1000}))
		conn := w.dial(t)
		c, d := w.sotw(t, conn), w.delta(t, conn)
		for i := range 20 { // 150 bytes each, and 64 added
			name := fmt.Sprintf("%0150d", i)
			w.set(xds.Endpoint, res(name, "1"))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{name}})
			c.send(ack(c.want(), name))
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{name}})
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: d.want().Nonce, ResourceNamesUnsubscribe: []string{name}})
		}
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: names(30)})
		refused(t, d.end())
	})
	within(t, "SAFE-9 names unsubscribed under a wildcard count until their removal is sent", func(t *testing.T) {
		for _, answers := range []bool{true, false} {
			w := serve(t, WithLimits(Limits{Held: 1000}))
			d := w.delta(t, w.dial(t))
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"*"}})
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: d.want().Nonce})
			rounds := 0
			for ; rounds < 20; rounds++ {
				name := []string{fmt.Sprintf("%0150d", rounds)} // and 64 added
				if d.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: name}) != nil {
					break
				}
				d.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesUnsubscribe: name})
				for range 2 {
					if answers {
						d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: d.want().Nonce})
					}
				}
				synctest.Wait()
			}
			if all := rounds == 20; all != answers {
				t.Fatalf("the stream ends after %d unsubscribed names, answers: %v", rounds, answers)
			}
			if answers {
				d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: names(30)})
			}
			refused(t, d.end())
		}
	})
	within(t, "SAFE-9 unsubscribed names of one byte count 65 bytes until their removal is sent", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Held: 1000}))
		d := w.delta(t, w.dial(t))
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"*"}})
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: d.want().Nonce}) // and answers nothing more
		rounds := 0
		for ; rounds < 30 && w.Stats().Open > 0; rounds++ {
			name := []string{string(rune('A' + rounds))}
			_ = d.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: name}) // end returns the reason
			_ = d.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesUnsubscribe: name})
			synctest.Wait()
		}
		if rounds < 15 || rounds == 30 { // an answer that is sent immediately is not kept, and neither are its names
			t.Fatalf("the stream ends after %d unsubscribed names", rounds)
		}
		refused(t, d.end())
	})
	within(t, "SAFE-1 names that a client states to have count", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Held: 1000}))
		w.set(xds.Endpoint, res("e", "1"))
		conn := w.dial(t)
		states := func(n int) *deltaClient {
			c := w.delta(t, conn)
			m := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, InitialResourceVersions: map[string]string{}, ResourceNamesSubscribe: []string{"e"}}
			for i := range n {
				m.InitialResourceVersions[fmt.Sprintf("%0100d", i)] = "1"
			}
			c.send(m)
			return c
		}
		refused(t, states(11).end())
		states(5).want()
	})
	t.Run("SAFE-1 limits can be set", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Types: 1, Names: 2}))
		conn := w.dial(t)
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names(3)})
		refused(t, c.end())
		c = w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names(2)})
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Secret.URL, ResourceNames: names(2)})
		refused(t, c.end())
	})
}

func TestFlood(t *testing.T) {
	within(t, "SAFE-1 a flood of requests waits at the client", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Endpoint, res("a", "of a"), res("b", "of b"))
		c, neighbour := w.sotw(t, w.dial(t)), w.sotw(t, w.dial(t))
		neighbour.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"a"}})
		neighbour.send(ack(neighbour.want(), "a"))
		start := time.Now()
		var last time.Duration
		neighbours := make(chan struct{})
		defer func() { <-neighbours }()
		go func() {
			defer close(neighbours)
			for i := range 5 {
				time.Sleep(2 * time.Second)
				sent := time.Now()
				w.set(xds.Endpoint, res("a", fmt.Sprint(i)))
				neighbour.send(ack(neighbour.want(), "a"))
				last = max(last, time.Since(sent))
			}
		}()
		// The client neither reads nor waits, so only its last request matters. The stream takes
		// 10,000 requests at once, and then 1,000 a second.
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"a"}, Node: &corev3.Node{Id: "culprit"}})
		for i := range 20_000 {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: [][]string{{"a"}, {"b"}, {}}[i%3]})
		}
		if d := time.Since(start); d < 8*time.Second || d > 10*time.Second {
			t.Errorf("the flood was over after %v", d)
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"a", "b"}})
		seen := map[string]bool{}
		for n := 0; len(seen) < 2; n++ {
			r := c.want()
			for _, a := range r.Resources {
				seen[string(a.Value)] = true
			}
			if n > 20_000 {
				t.Fatalf("%d responses with only %v", n, seen)
			}
			c.send(ack(r, "a", "b"))
		}
		synctest.Wait()
		if log := w.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "client sends requests too fast") || !strings.Contains(log, "node=culprit") || !strings.Contains(log, "peer=") {
			t.Errorf("logged\n%s", log)
		}
		<-neighbours
		if n := w.Stats().Throttled["rate"]; n != 1 || last > 0 {
			t.Errorf("counted %d; the neighbour waited %v", n, last)
		}
	})
	within(t, "SAFE-1 large requests count as several", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Rate: 10}))
		c := w.sotw(t, w.dial(t))
		start := time.Now()
		for range 20 { // of ten times 64 KiB each
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: strings.Repeat("n", 600<<10)})
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
		if d := time.Since(start); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("the requests were taken within %v", d)
		}
	})
	within(t, "SAFE-1 any number, if the operator wants", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Rate: -1}))
		c := w.sotw(t, w.dial(t))
		start := time.Now()
		for range 20_000 {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL})
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("the requests were taken within %v", d)
		}
	})
}

func TestManyStreams(t *testing.T) {
	t.Run("SAFE-7 2,000 streams on one connection", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Endpoint, res("e", "1"))
		conn := w.dial(t)
		var all []*sotwClient
		for range 2000 {
			c := bidi[discovery.DiscoveryRequest, discovery.DiscoveryResponse](t, conn, "/"+xds.Endpoint.Service+"/"+xds.Endpoint.Stream)
			c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"e"}})
			all = append(all, c)
		}
		for _, c := range all {
			c.send(ack(c.want(), "e"))
		}
		w.set(xds.Endpoint, res("e", "2"))
		for _, c := range all {
			if r := c.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "2" {
				t.Fatal(r)
			}
		}
		if n := w.Stats().Open; n != 2000 {
			t.Errorf("%d streams open", n)
		}
	})
}

func TestStreamLimits(t *testing.T) {
	within(t, "SAFE-1 streams in all", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 3}))
		w.set(xds.Endpoint, res("e", "1"))
		open := func() *sotwClient {
			c := w.sotw(t, w.dial(t))
			_ = c.s.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}}) // it may be refused
			return c
		}
		first := open()
		first.want()
		open().want()
		open().want()
		if err := open().end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "3 streams are open") {
			t.Errorf("told %v", err)
		}
		synctest.Wait()
		if log := w.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "peer=") {
			t.Errorf("logged\n%s", log)
		}
		if s := w.Stats(); s.Throttled["streams"] != 1 || s.Open != 3 || s.Streams != 3 {
			t.Errorf("counted %+v", s)
		}
		first.s.CloseSend()
		first.end()
		synctest.Wait()
		open().want()
	})
	within(t, "SAFE-7 streams beyond those of a connection wait at the client", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: MaxStreams}))
		w.set(xds.Endpoint, res("e", "1"))
		conn := w.dial(t)
		open := func() *sotwClient {
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
			return c
		}
		first := open()
		for range MaxStreams - 1 {
			w.sotw(t, conn)
		}
		synctest.Wait()
		more := make(chan *sotwClient)
		go func() { more <- open() }()
		synctest.Wait()
		select {
		case <-more:
			t.Fatalf("%d streams are open", w.Stats().Open)
		default:
		}
		first.s.CloseSend()
		first.end()
		(<-more).want()
		if s := w.Stats(); s.Open != MaxStreams {
			t.Errorf("%d streams are open", s.Open)
		}
	})
}

// A stream ends when the server cannot read a request while it sends a response.
type choked struct {
	grpc.ServerStream
	ctx     context.Context
	end     context.CancelFunc
	asks    [][]byte
	sending chan struct{}
}

func (c *choked) Context() context.Context { return c.ctx }

func (c *choked) RecvMsg(m any) error {
	if len(c.asks) > 0 {
		_ = codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.asks[0])}, m)
		c.asks = c.asks[1:]
		return nil
	}
	<-c.sending
	c.end()
	time.Sleep(time.Millisecond) // the write fails first
	return status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
}

func (c *choked) SendMsg(any) error {
	close(c.sending)
	<-c.ctx.Done()
	return status.FromContextError(c.ctx.Err()).Err()
}

func TestRefusedWhileSending(t *testing.T) {
	within(t, "SAFE-1 a too large request is counted, and its log line names the limit, also while a response is being sent", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		ask, err := proto.Marshal(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		err = w.serve(&choked{ctx: ctx, end: end, asks: [][]byte{ask}, sending: make(chan struct{})}, xds.SotW, nil, nil)
		if n := w.Stats().Throttled["request"]; status.Code(err) != codes.ResourceExhausted || n != 1 {
			t.Errorf("%d are counted: %v", n, err)
		}
		if lines := w.log.lines("limit=request\n"); len(lines) != 1 {
			t.Error(w.log)
		}
	})
}
