package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A teller counts the responses sent on each stream.
type teller struct{ sent [100]atomic.Int64 }

func (o *teller) Opened(*Stream)        {}
func (o *teller) Closed(*Stream, error) {}
func (o *teller) Event(s *Stream, e protocol.Event) {
	if e.Kind == protocol.Sent {
		o.sent[s.ID].Add(1)
	}
}

// An agedWorld's gRPC server and streams age.
func agedWorld(t *testing.T, a Age, age grpc.ServerOption, opts ...Option) (*world, *teller) {
	o := &teller{}
	src, log := newSource(), &logbook{}
	w := &world{source: src, log: log, Server: New(src, append([]Option{log.at(0), WithObserver(o), WithAge(a)}, opts...)...), lis: bufconn.Listen(64 << 10)}
	w.grpc = grpc.NewServer(append(GRPCOptions(), age, grpc.WaitForHandlers(true))...)
	if err := w.Register(w.grpc); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); w.grpc.Serve(w.lis) }()
	t.Cleanup(func() { w.grpc.Stop(); <-done })
	return w, o
}

// agedClient returns a client of an agedWorld that has requested the clusters, and the time of the
// request.
func agedClient(t *testing.T, a Age) (*world, *sotwClient, time.Time) {
	t.Helper()
	w, _ := agedWorld(t, a, a.GRPCOption())
	w.set(xds.Cluster, res("a", "0"))
	c := w.sotw(t, w.dial(t))
	start := time.Now()
	c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
	return w, c, start
}

// reads answers each response after a while, until the stream ends. It returns the number of
// responses and the reason of the end.
func (c *client[Req, Res]) reads(takes time.Duration, answer func(*Res) *Req) (n int, err error) {
	for {
		r, err := c.s.Recv()
		if err != nil {
			return n, err
		}
		n++
		time.Sleep(takes)
		_ = c.s.Send(answer(r)) // it may have ended
	}
}

// lost returns how many of 20 streams did not get all sent responses, and at which ages the streams ended. Each has
// its own connection, and a change every 50 ms.
func lost(t *testing.T, a Age, age grpc.ServerOption) (lost int, ages []time.Duration) {
	w, o := agedWorld(t, a, age)
	w.set(xds.Cluster, res("a", "0"))
	type end struct {
		n   int
		err error
		at  time.Duration
	}
	const n = 20
	var ends [n + 1]end
	done := make(chan struct{})
	for i := range n {
		start := time.Now()
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		synctest.Wait() // streams are numbered in this order
		go func() {
			e := &ends[i+1]
			e.n, e.err = c.reads(10*time.Millisecond, func(r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest { return ack(r) })
			e.at = time.Since(start)
			done <- struct{}{}
		}()
	}
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop()
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			w.set(xds.Cluster, res("a", fmt.Sprint(i)))
			time.Sleep(50 * time.Millisecond)
		}
	})
	for range n {
		<-done
	}
	for i, e := range ends[1:] {
		if sent := int(o.sent[i+1].Load()); e.n < sent {
			lost++
		}
		if status.Code(e.err) != codes.Unavailable {
			t.Errorf("stream %d ended with %v", i+1, e.err)
		}
		ages = append(ages, e.at)
	}
	return lost, ages
}

// endsInTime fails the test unless a stream that began at start has just ended because of its age,
// without using its grace time.
func endsInTime(t *testing.T, a Age, start time.Time, end error) {
	t.Helper()
	if status.Code(end) != codes.Unavailable {
		t.Error(end)
	}
	if d := time.Since(start); d > a.Max*3/2 {
		t.Errorf("the stream ended after %v", d)
	}
}

func TestAge(t *testing.T) {
	within(t, "SAFE-12 a response sent at the end arrives", func(t *testing.T) {
		a := Age{Max: 20 * time.Second, Grace: 10 * time.Second}
		n, ages := lost(t, a, a.GRPCOption())
		if n > 0 {
			t.Errorf("%d of %d streams did not get all", n, len(ages))
		}
		early := 0
		for _, d := range ages {
			if d < a.Max || d > a.Max*3/2+time.Second {
				t.Errorf("a stream ended after %v", d)
			}
			if d < a.Max*5/4 {
				early++
			}
		}
		if early == 0 || early == len(ages) {
			t.Errorf("the streams ended together: %v", ages)
		}
	})
	within(t, "with only gRPC's age, responses are lost", func(t *testing.T) {
		k := Keepalive()
		k.MaxConnectionAge, k.MaxConnectionAgeGrace = 20*time.Second, time.Second
		if n, ages := lost(t, Age{}, grpc.KeepaliveParams(k)); n != len(ages) {
			t.Errorf("%d of %d streams lost a response: this test shows nothing", n, len(ages))
		}
	})
	within(t, "SAFE-12 the next stream is on another connection", func(t *testing.T) {
		a := Age{Max: 20 * time.Second}
		w, _ := agedWorld(t, a, a.GRPCOption())
		var dialed atomic.Int32
		conn := w.dial(t, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			dialed.Add(1)
			return w.lis.DialContext(ctx)
		}))
		for i := range 5 {
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			if n, err := c.reads(0, func(r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest { return ack(r) }); status.Code(err) != codes.Unavailable || n != 1 {
				t.Error(n, err)
			}
			if n := int(dialed.Load()); n != i+1 {
				t.Errorf("%d streams were on %d connections", i+1, n)
			}
		}
	})
	within(t, "SAFE-12 an old stream waits for an answer, not for ever, and sends nothing new", func(t *testing.T) {
		for _, takes := range []time.Duration{5 * time.Second, time.Hour} {
			a := Age{Max: 20 * time.Second, Grace: 10 * time.Second}
			w, o := agedWorld(t, a, a.GRPCOption())
			w.set(xds.Cluster, res("a", "0"))
			c := w.sotw(t, w.dial(t))
			start := time.Now()
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			c.send(ack(c.want()))
			tick := time.AfterFunc(a.Max-time.Millisecond, func() { w.set(xds.Cluster, res("a", "1")) })
			defer tick.Stop()
			r := c.want() // just before the stream is old
			timer := time.AfterFunc(a.Max/2+takes, func() {
				_ = c.s.Send(ack(r))
				w.set(xds.Cluster, res("a", "2"))
			})
			if err := c.end(); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
			timer.Stop()
			if d, late := time.Since(start), a.Max*3/2+a.Grace; d > late || takes < time.Minute && d > a.Max*3/2+takes {
				t.Errorf("with an answer after %v, the stream ended after %v", takes, d)
			}
			if n := o.sent[1].Load(); n != 2 {
				t.Errorf("%d responses", n)
			}
		}
	})
	within(t, "SAFE-12 a refusal is an answer", func(t *testing.T) {
		a := Age{Max: 20 * time.Second, Grace: time.Minute}
		_, c, start := agedClient(t, a)
		r := ack(c.want())
		r.ErrorDetail = &rpcstatus.Status{Message: "no"}
		c.send(r)
		endsInTime(t, a, start, c.end())
	})
	within(t, "SAFE-12 one answer also answers earlier responses", func(t *testing.T) {
		a := Age{Max: 40 * time.Second, Grace: 2 * time.Minute}
		w, c, start := agedClient(t, a)
		c.send(ack(c.want()))
		w.set(xds.Cluster, res("a", "1"))
		c.want() // not answered
		time.Sleep(6 * time.Second)
		w.set(xds.Cluster, res("a", "2"))
		c.send(ack(c.want()))
		endsInTime(t, a, start, c.end())
	})
	within(t, "SAFE-12 gRPC leaves the connection to a stream whose client takes its time", func(t *testing.T) {
		a := Age{Max: 20 * time.Second, Grace: 4 * time.Minute}
		_, c, _ := agedClient(t, a)
		r := c.want()
		timer := time.AfterFunc(a.Max*3/2+a.Grace-10*time.Second, func() { _ = c.s.Send(ack(r)) })
		defer timer.Stop()
		start := time.Now()
		if err := c.end(); status.Convert(err).Message() != status.Convert(errOld).Message() {
			t.Error(err)
		}
		if d := time.Since(start); d < a.Max*3/2+a.Grace-10*time.Second {
			t.Errorf("the stream ended after %v", d)
		}
	})
	within(t, "SAFE-1 a half-open connection is noticed by a server whose streams age", func(t *testing.T) {
		a := Age{Max: time.Hour}
		w, _ := agedWorld(t, a, a.GRPCOption())
		var cut atomic.Bool
		c := w.sotw(t, w.dial(t, onLeash(w, &cut)))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		cut.Store(true)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := w.Stats().Open; n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
	within(t, "SAFE-12 a stream whose client does not answer ends, too", func(t *testing.T) {
		a := Age{Max: 8 * time.Second}
		w, _ := agedWorld(t, a, a.GRPCOption())
		if err := w.sotw(t, w.dial(t)).end(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
	within(t, "SAFE-12 a stream whose client does not read ends, too", func(t *testing.T) {
		a := Age{Max: 20 * time.Second, Grace: time.Second}
		w, _ := agedWorld(t, a, a.GRPCOption(), WithWriteTimeout(time.Hour))
		w.set(xds.Cluster, res("a", strings.Repeat("x", 10<<20)))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		time.Sleep(a.Max*3/2 + a.Grace + lastWrite)
		synctest.Wait()
		if n := w.Stats().Open; n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
	within(t, "SAFE-12 draining comes first", func(t *testing.T) {
		a := Age{Max: time.Minute, Grace: 10 * time.Second}
		w, c, _ := agedClient(t, a)
		c.want() // and no answer
		start := time.Now()
		if err := w.Drain(t.Context()); err != nil || time.Since(start) > 5*time.Second {
			t.Error(err, time.Since(start))
		}
		if err := c.end(); !strings.Contains(err.Error(), "shutting down") {
			t.Error(err)
		}
	})
}

// SAFE-12: a stream that leaves waits for answers and for its last write, but not for ever. An earlier time to leave
// replaces a later one.
func TestLeave(t *testing.T) {
	now := time.Now()
	var l departure
	l.plan(now, errOld, time.Minute)
	if l.done(now, false, true) || !l.deadline(now).Equal(now) {
		t.Error("the departure is done before it has begun")
	}
	l.advance(now)
	end := now.Add(time.Minute)
	for _, c := range []struct {
		after    time.Duration
		answered bool
		writing  bool
		over     bool
	}{
		{0, true, false, true},
		{0, false, false, false},
		{0, true, true, false},
		{time.Minute, false, false, true},
		{time.Minute, false, true, false},
		{time.Minute + lastWrite, false, true, true},
	} {
		at := now.Add(c.after)
		if got := l.done(at, c.answered, c.writing); got != c.over {
			t.Errorf("%+v: over %v", c, got)
		}
		if next := l.deadline(at); !c.over && !next.After(at) {
			t.Errorf("%+v: the deadline is not in the future", c)
		}
	}
	l.plan(now.Add(time.Second), errDraining, time.Hour)
	if !l.deadline(now).Equal(end) {
		t.Errorf("a later end counts: %v", l.deadline(now).Sub(now))
	}
	l.plan(now.Add(time.Second), errDraining, 0)
	if !l.deadline(now).Equal(now.Add(time.Second)) {
		t.Errorf("a sooner end does not count: %v", l.deadline(now).Sub(now))
	}
	if !errors.Is(l.why, errOld) {
		t.Error(l.why)
	}
}
