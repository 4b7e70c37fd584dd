package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	limitfair "github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/xds"
)

// called reports whether the ticket's turn has come.
func (t *ticket) called() bool {
	if t.turn == nil {
		return true
	}
	select {
	case <-t.turn:
		return true
	default:
		return false
	}
}

// empty reports whether the admission is in its first state: nothing remembered, all places free.
func (a *admission) empty(places int) bool {
	return a.free == places && a.n == 0 && len(a.root.lines) == 0 && a.root.waiting.Len() == 0
}

// from returns an address with a port. Each port of an address is a connection.
func from(host, port int) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(host)), Port: port}
}

func TestAdmission(t *testing.T) {
	x, y, z := from(1, 1), from(2, 1), from(3, 1)
	x2 := from(1, 2) // another connection of the first address
	for _, c := range []struct {
		name  string
		queue []string // connection, node and a number of its own
		want  string   // the numbers, in the order in which they get one of two places
	}{
		{"the streams of a node are served in order", []string{"x n 1", "x n 2", "x n 3", "x n 4"}, "1 2 3 4"},
		{"nodes take turns", []string{"x n 1", "x n 2", "x n 3", "x m 4", "x n 5", "x m 6"}, "1 2 4 3 6 5"},
		{"connections take turns, however many nodes they state", []string{"x a 1", "x b 2", "x c 3", "x d 4", "w e 5", "w e 6"}, "1 2 5 3 6 4"},
		{"addresses take turns, however many connections they have", []string{"x a 1", "w b 2", "x c 3", "w d 4", "y e 5", "y e 6"}, "1 2 5 3 6 4"},
		{"of equals, the longest waiting", []string{"x a 1", "y b 2", "z c 3", "y b 4", "x a 5", "z c 6"}, "1 2 3 4 5 6"},
	} {
		t.Run("SAFE-9 "+c.name, func(t *testing.T) {
			a := newAdmission(2)
			waiting := map[*ticket]string{}
			var called []string
			var in []*ticket
			look := func() {
				for k, name := range waiting {
					if k.called() {
						called, in = append(called, name), append(in, k)
						delete(waiting, k)
					}
				}
			}
			for _, q := range c.queue {
				f := strings.Fields(q)
				waiting[a.enter(map[string]net.Addr{"x": x, "w": x2, "y": y, "z": z}[f[0]], f[1])] = f[2]
				look()
			}
			for len(in) > 0 { // each stream leaves after all streams that entered before it
				k := in[0]
				in = in[1:]
				a.leave(k)
				a.leave(k)
				look()
			}
			if got := strings.Join(called, " "); got != c.want {
				t.Errorf("the order was %s, want %s", got, c.want)
			}
			if !a.empty(2) {
				t.Errorf("at the end: %+v", a)
			}
		})
	}
	t.Run("SAFE-9 no place is lost or given twice, and each place goes to the line with the fewest places", func(t *testing.T) {
		for seed := range uint64(300) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			places := 1 + rnd.IntN(6)
			a := newAdmission(places)
			conns := []net.Addr{x, x2, y, z}
			type stream struct {
				*ticket
				in   bool
				path [3]any
			}
			var open []*stream
			// places of the lines above the stream: address, connection and node
			has := func(of *stream, depth int) (n int) {
				for _, k := range open {
					if k.in && slices.Equal(k.path[:depth], of.path[:depth]) {
						n++
					}
				}
				return n
			}
			fair := func(got *stream) {
				for _, k := range open {
					for d := range 3 {
						if !k.in && slices.Equal(k.path[:d], got.path[:d]) && has(k, d+1) < has(got, d+1) {
							t.Fatalf("seed %d: a place went to %v, and %v has fewer", seed, got.path, k.path)
						}
					}
				}
			}
			for range 200 {
				if n := len(open); n > 0 && rnd.IntN(2) == 0 {
					i := rnd.IntN(n)
					k := open[i]
					open[i] = open[n-1]
					open = open[:n-1]
					a.leave(k.ticket)
				} else {
					conn, node := conns[rnd.IntN(len(conns))], fmt.Sprint(rnd.IntN(3))
					open = append(open, &stream{a.enter(conn, node), false, [3]any{limitfair.Owner(conn), conn, node}})
				}
				in := 0
				for _, k := range open {
					if k.called() && !k.in {
						fair(k)
						k.in = true
					}
					if k.in {
						in++
					}
				}
				if want := min(places, len(open)); in != want || a.waiting() != len(open)-in {
					t.Fatalf("seed %d: %d of %d are in, %d wait; there are %d places", seed, in, len(open), a.waiting(), places)
				}
			}
			for _, k := range open {
				a.leave(k.ticket)
			}
			if !a.empty(places) {
				t.Fatalf("seed %d: at the end: %+v", seed, a)
			}
		}
	})
}

// An arrival is a stream that has sent its first request.
type arrival struct {
	*sotwClient
	at chan time.Duration // when it was answered, since the start
}

// arrive opens streams of a node at the same time. With accept set, the client acknowledges its
// responses.
func (w *world) arrive(t *testing.T, n int, node string, accept bool) (all []arrival) {
	start := time.Now()
	for range n {
		a := arrival{w.sotw(t, w.dial(t)), make(chan time.Duration, 1)}
		a.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}, Node: &corev3.Node{Id: node}})
		synctest.Wait()
		go func() {
			r, err := a.s.Recv()
			if err != nil {
				return
			}
			a.at <- time.Since(start)
			if accept {
				_ = a.s.Send(ack(r, "e")) // the test may be over
			}
		}()
		all = append(all, a)
	}
	return all
}

// answered returns the time at which the stream got its answer, or an hour without an answer.
func (a arrival) answered() time.Duration {
	select {
	case d := <-a.at:
		return d
	case <-time.After(time.Hour):
		return time.Hour
	}
}

func TestFirstAnswers(t *testing.T) {
	one := WithLimits(Limits{FirstAnswers: 1})
	within(t, "SAFE-1 a client that accepts makes room at once", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Endpoint, res("e", "1"))
		for _, a := range w.arrive(t, 10, "n", true) {
			if at := a.answered(); at > 0 {
				t.Errorf("answered after %v", at)
			}
		}
	})
	within(t, "SAFE-1 a client that does not accept makes room after a while, and a node with many streams waits longer", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Endpoint, res("e", "1"))
		many := w.arrive(t, 10, "many", false)
		few := w.arrive(t, 1, "few", false)
		if s := w.Stats(); s.Waiting != 10 || s.Throttled["first_answers"] != 10 {
			t.Errorf("counted %+v", s)
		}
		if at := few[0].answered(); at != 2*placeTime {
			t.Errorf("the other node was answered after %v", at)
		}
		for i, a := range many {
			if at, want := a.answered(), time.Duration(i)*placeTime; at != want && at != want+placeTime {
				t.Errorf("stream %d was answered after %v", i, at)
			}
		}
		if s := w.Stats(); s.Waiting != 0 {
			t.Errorf("%d wait", s.Waiting)
		}
	})
	within(t, "SAFE-1 a client that accepts makes room, even with older unanswered responses", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Cluster, res("a", "1"))
		w.set(xds.Endpoint, res("e", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want() // not answered
		time.Sleep(2 * placeTime)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
		r := ack(c.want())
		r.ResourceNames = []string{"e"}
		c.send(r)
		synctest.Wait()
		if at := w.arrive(t, 1, "n", true)[0].answered(); at > 0 {
			t.Errorf("answered after %v", at)
		}
	})
	within(t, "SAFE-1 the first request of each type waits its turn", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Cluster, res("a", "1"))
		w.set(xds.Endpoint, res("e", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		synctest.Wait()
		w.arrive(t, 1, "n", false)
		synctest.Wait()
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
		synctest.Wait()
		if n := w.Stats().Waiting; n != 1 {
			t.Errorf("%d wait", n)
		}
		c.want()
	})
	t.Run("SAFE-1 streams without a node do not share a turn", func(t *testing.T) {
		stream := func(id uint64, node string) *stream {
			return &stream{info: Stream{ID: id, Node: &xds.Node{ID: node}}}
		}
		if stream(1, "").queueKey() == stream(2, "").queueKey() || stream(1, "n").queueKey() != stream(2, "n").queueKey() {
			t.Error("a node has one line, and each stream without a node has its own")
		}
	})
	within(t, "SAFE-1 no stream waits for ever", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Endpoint, res("e", "1"))
		all := w.arrive(t, 150, "n", false)
		if at := all[90].answered(); at != 90*placeTime {
			t.Errorf("stream 90 was answered after %v", at)
		}
		for _, a := range all[110:] {
			if at := a.answered(); at != queueTime {
				t.Errorf("answered after %v", at)
			}
		}
		time.Sleep(2 * placeTime) // only the last stream whose turn came has a place
		synctest.Wait()
		if !w.first.empty(1) || w.Stats().Waiting != 0 {
			t.Errorf("%+v", w.first)
		}
	})
	within(t, "SAFE-2 streams that have had theirs do not wait", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Endpoint, res("e", "1"))
		old := w.arrive(t, 1, "old", true)[0]
		old.answered()
		synctest.Wait()
		w.arrive(t, 100, "new", false)
		at := time.Now()
		w.set(xds.Endpoint, res("e", "2"))
		if r := old.want(); string(r.Resources[0].Value) != "2" || time.Since(at) > 0 {
			t.Errorf("after %v: %v", time.Since(at), r)
		}
	})
	within(t, "SAFE-2 a client that never reads does not delay others", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Cluster, res("a", strings.Repeat("x", 1<<20)))
		w.set(xds.Endpoint, res("e", strings.Repeat("x", 1<<20)))
		stuck := w.sotw(t, w.dial(t))
		for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint} { // the second write is blocked by the first
			stuck.send(&discovery.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: []string{"a", "e"}})
		}
		synctest.Wait()
		a := w.arrive(t, 1, "n", true)[0]
		if at := a.answered(); at > placeTime {
			t.Errorf("answered after %v", at)
		}
	})
	within(t, "SAFE-1 a request during the wait counts", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Endpoint, res("e", "1"), res("f", "1"))
		w.arrive(t, 1, "n", false)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"f"}})
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.s.CloseSend()
		synctest.Wait()
		w.set(xds.Endpoint, res("f", "2"))
		if r := c.want(); r.TypeUrl != xds.Cluster.URL {
			t.Error(r)
		}
		if r := c.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "2" {
			t.Error(r)
		}
		if err := c.end(); err.Error() != "EOF" {
			t.Error(err)
		}
	})
	within(t, "SAFE-1 a client that disconnects makes room, answered or waiting", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Endpoint, res("e", "1"))
		conn := w.dial(t)
		for range 5 {
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
		}
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		if at := w.arrive(t, 1, "n", true)[0].answered(); at > 0 {
			t.Errorf("answered after %v", at)
		}
		synctest.Wait()
		if !w.first.empty(1) || w.Stats().Waiting != 0 {
			t.Errorf("%+v", w.first)
		}
	})
	within(t, "SAFE-1 an up-to-date client needs no place", func(t *testing.T) {
		w := serve(t, one)
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		r := c.want()
		c.send(ack(r))
		for range 10 {
			w.sotw(t, w.dial(t)).send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: r.VersionInfo})
			synctest.Wait()
		}
		if !w.first.empty(1) {
			t.Errorf("%+v", w.first)
		}
	})
}
