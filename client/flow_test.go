package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/xds"
)

// gRPC's client receives the next response only after all watches have finished with the previous one
// (behaviours 35 to 37), so a watch that hangs stops all others. Here a slow watch does not stop
// others. If it misses events of a name, it gets the last one.
func TestSlowWatchDelaysNoOther(t *testing.T) {
	for _, c := range []struct{ name, first, last, want string }{
		{"behaviour 35: one resource", "a=1", "a=9", "a updated=9"},
		{"behaviour 37: an error", "a=1", "a=bad", "a refused=8: bad"},
		{"behaviour 37: a removal", "a=1", "-a", "a removed"},
	} {
		both(t, c.name+": a watch that does not read gets the last event, and does not delay others", func(t *testing.T, v xds.Variant) {
			cl, f := one(t, v)
			hold, events := make(chan bool), make(chan string, 100)
			go func() {
				for ev, err := range cl.Watch(t.Context(), xds.Cluster, "a") {
					events <- tellEvent(ev, err)
					<-hold
				}
			}()
			other := watch(t, cl, xds.Cluster, "a", "b")
			s := f.stream()
			s.respond(xds.Cluster, "v1", c.first, "b=1")
			for i := 2; i < 9; i++ {
				s.respond(xds.Cluster, fmt.Sprint("v", i), fmt.Sprint("a=", i), "b=1")
			}
			if c.last == "-a" {
				if v == xds.SotW {
					s.respond(xds.Cluster, "v9", "b=1")
				} else {
					s.respond(xds.Cluster, "v9", "-a")
				}
			} else {
				s.respond(xds.Cluster, "v8", "a=8", "b=1")
				s.respond(xds.Cluster, "v9", c.last, "b=1")
			}
			if n := len(other.take()); n < 9 {
				t.Errorf("the other watch heard of %d steps", n)
			}
			if got := <-events; got != "a updated=1" {
				t.Error(got)
			}
			close(hold)
			synctest.Wait()
			if c.last == "a=bad" {
				if got := <-events; got != "a updated=8" {
					t.Error(got)
				}
			}
			if got := <-events; got != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
			select {
			case got := <-events:
				t.Errorf("then %q", got)
			default:
			}
		})
	}

	both(t, "behaviour 36: each watch gets the last event of each of several resources", func(t *testing.T, v xds.Variant) {
		cl, f := one(t, v)
		hold, events := make(chan bool), make(chan string, 100)
		for range 3 {
			go func() {
				<-hold
				for ev, err := range cl.Watch(t.Context(), xds.Cluster, "a", "b") {
					<-hold
					events <- tellEvent(ev, err)
				}
			}()
		}
		hold <- true
		hold <- true
		hold <- true
		s := f.stream()
		for i := range 10 {
			s.respond(xds.Cluster, fmt.Sprint("v", i), fmt.Sprint("a=", i), fmt.Sprint("b=", i))
		}
		close(hold)
		synctest.Wait()
		last := map[string]int{}
		for len(events) > 0 {
			last[<-events]++
		}
		if last["a updated=9"] != 3 || last["b updated=9"] != 3 || len(last) > 4 {
			t.Errorf("%v", last)
		}
	})

	both(t, "a server that reads nothing loses its stream", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Servers: []client.Server{{Transport: &deaf{f}}}})
		w := watch(t, c, xds.Endpoint, "a")
		s := f.stream()
		for i := range 100 {
			select {
			case s.responses <- response(xds.Endpoint, "v", "n", fmt.Sprint("a=", i)):
			case <-time.After(time.Second):
			}
		}
		<-f.opened
		w.take()
		time.Sleep(31 * time.Second)
		w.want("a stale=63: xds://a cannot be reached by node \"n\": the server has read nothing for 30s")
	})
}

// deaf blocks the sender.
type deaf struct{ *fake }

func (d *deaf) Open(ctx context.Context, only *xds.Type) (client.Stream, error) {
	s, err := d.fake.Open(ctx, only)
	return deafStream{s.(*fakeStream)}, err
}

type deafStream struct{ *fakeStream }

func (s deafStream) Send(*xds.Request) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

// A server that does not wait for ACKs may send small responses without an effect faster than its ACKs are sent. So the
// client takes the change behind them soon.
func TestUnreadResponsesDelayNoChange(t *testing.T) {
	for _, typ := range []*xds.Type{xds.Cluster, xds.Listener} {
		both(t, "SAFE-1 the same "+typ.String(), func(t *testing.T, v xds.Variant) {
			c, f := one(t, v)
			w := watch(t, c, xds.Cluster, "a")
			s := f.stream()
			start := time.Now()
			for i := range 10_000 {
				r := response(typ, "v", fmt.Sprint(i), "a=1")
				r.Size = 100
				s.responses <- r
				if len(s.requests) > 5000 {
					s.skip()
				}
			}
			s.respond(xds.Cluster, "w", "a=2")
			if d := time.Since(start); d < 5*time.Second || d > 20*time.Second {
				t.Errorf("10,000 responses were read in %v", d)
			}
			if got := w.take(); len(got) == 0 || got[len(got)-1] != "a updated=2" {
				t.Errorf("%q", got)
			}
		})
	}
	both(t, "SAFE-1 large responses", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		s := f.stream()
		start := time.Now()
		for i := range 100 {
			r := response(xds.Cluster, "v", fmt.Sprint(i), "a=1")
			r.Size = 10 << 20
			s.responses <- r
		}
		if d := time.Since(start); d < 50*time.Second {
			t.Errorf("100 responses of 10 MiB were read in %v", d)
		}
	})
	both(t, "SAFE-1 a server that waits for ACKs", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.skip()
		n := 0
		for start := time.Now(); time.Since(start) < 10*time.Minute; n++ {
			r := response(xds.Cluster, "v", fmt.Sprint(n), "a=1")
			r.Size = 100
			s.responses <- r
			<-s.requests
		}
		if n < 400 || n > 800 {
			t.Errorf("%d responses were sent in ten minutes", n)
		}
	})
}

// A server sends responses without an effect, and ends the stream while they are unread. The next ACK or NACK cannot be
// sent, so the client reads on without a delay, but not without end.
func TestEndBehindDelayedResponsesIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name, resource string
		unread         int
		want           string
	}{
		{"that change nothing", "a=1", 50, "the reason"},
		{"that are refused", "a=bad", 50, "the reason"},
		{"without end", "a=1", 1 << 20, "the stream has ended"},
	} {
		both(t, "SAFE-1 responses "+c.name, func(t *testing.T, v xds.Variant) {
			f := &ending{fake: newFake(t, "xds://a", v), resource: c.resource, unread: c.unread}
			cl := begin(t, client.Config{Servers: []client.Server{{Transport: f}}})
			watch(t, cl, xds.Cluster, "*")
			<-f.opened
			time.Sleep(time.Minute) // until each response is delayed for a second
			f.ended.Store(true)
			end := time.Now()
			<-f.opened
			if d := time.Since(end); d > 2*time.Second {
				t.Errorf("the end of the stream is noticed after %v", d)
			}
			if got := cl.Servers()[0].Err; got == nil || !strings.Contains(got.Error(), c.want) {
				t.Errorf("the error is %v, want %q", got, c.want)
			}
			if n := f.read.Load(); n > 70 {
				t.Errorf("%d responses are read after the end", n)
			}
		})
	}
}

// An ending has streams that send a response again and again. After the end, some responses are unread.
type ending struct {
	*fake
	resource string
	unread   int
	ended    atomic.Bool
	read     atomic.Int64 // responses after the end
}

func (e *ending) Open(ctx context.Context, only *xds.Type) (client.Stream, error) {
	e.ended.Store(false)
	s, err := e.fake.Open(ctx, only)
	return endingStream{s.(*fakeStream), e}, err
}

type endingStream struct {
	*fakeStream
	of *ending
}

func (s endingStream) Send(*xds.Request) error {
	if s.of.ended.Load() {
		return errors.New("the stream has ended")
	}
	return nil
}

func (s endingStream) Recv() (*xds.Response, error) {
	if s.of.ended.Load() && s.of.read.Add(1) > int64(s.of.unread) {
		return nil, errors.New("the reason")
	}
	return response(xds.Cluster, "v", "n", s.of.resource), nil
}

// A server that repeats an invalid response after each NACK gets its answers at growing intervals, and
// the log has few lines. The delay applies to the server's other types, too.
func TestRepeatedNACKsOfOneTypeAreDelayed(t *testing.T) {
	both(t, "two types", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		watch(t, c, xds.Listener, "a")
		s, start := f.stream(), time.Now()
		for i := range 20 {
			s.respond(xds.Cluster, fmt.Sprint("v", i), fmt.Sprint("a=", i))
			s.respond(xds.Listener, fmt.Sprint("v", i), "a=bad")
		}
		if d := time.Since(start); d < 5*time.Second {
			t.Errorf("20 refusals took %v", d)
		}
	})
}

// A server that repeats its response after each ACK, or sends a type without a subscription, gets its
// answers at growing intervals. A response with a change is answered at once again.
func TestRepeatedResponsesAreDelayed(t *testing.T) {
	for _, typ := range []*xds.Type{xds.Cluster, xds.Listener} {
		both(t, "SAFE-1 the same "+typ.String(), func(t *testing.T, v xds.Variant) {
			c, f := one(t, v)
			watch(t, c, xds.Cluster, "*")
			s := f.stream()
			n, stop := 0, time.After(10*time.Minute)
		storm:
			for {
				select {
				case s.responses <- response(typ, "v", fmt.Sprint(n), "a=1"):
					n++
					s.skip()
				case <-stop:
					break storm
				}
			}
			if n < 400 || n > 800 {
				t.Errorf("%d responses were taken in ten minutes", n)
			}
			s.respond(xds.Cluster, "v", "a=2")
			s.respond(xds.Cluster, "v", "a=3")
			before := time.Now()
			s.respond(xds.Cluster, "v", "a=4")
			if d := time.Since(before); d > 0 {
				t.Errorf("a response with a change waits %v", d)
			}
		})
	}
}

func TestRepeatedRefusalsAreDelayed(t *testing.T) {
	both(t, "storm", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		var log logtest.Log
		c := begin(t, client.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
		watch(t, c, xds.Cluster, "*")
		s := f.stream()
		n := 0
		stop := time.After(10 * time.Minute)
	storm:
		for {
			select {
			case s.responses <- response(xds.Cluster, "v", fmt.Sprint(n), fmt.Sprintf("a%d=bad %d", n, n), "a=1"):
				n++
				s.skip()
			case <-stop:
				break storm
			}
		}
		if n < 400 || n > 800 {
			t.Errorf("%d responses were taken in ten minutes", n)
		}
		if l := len(log.Lines("refused resources of")); l < 8 || l > 20 {
			t.Errorf("%d lines", l)
		}
		s.respond(xds.Cluster, "v", "a=2")
		s.respond(xds.Cluster, "v", "a=3")
		before := time.Now()
		s.respond(xds.Cluster, "v", "a=4")
		if d := time.Since(before); d > 0 {
			t.Errorf("good responses wait %v", d)
		}
	})
}

// A hostile server sends many names, long names and bad resources, and no watch takes its events. The
// client's memory is bounded.
func TestMemoryOfHostileServer(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("the race detector uses memory itself")
	}
	both(t, "hostile", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Check: func(r *xds.Resource) error {
			if strings.HasPrefix(textOf(r), "bad") {
				return errors.New(strings.Repeat("x", 1<<12))
			}
			return nil
		}}, f)
		hold := make(chan bool)
		for range 3 {
			go func() {
				for range c.Watch(t.Context(), xds.Cluster, "*") {
					<-hold
				}
			}()
		}
		watch(t, c, xds.Endpoint, "e")
		s := f.stream()
		before := heap()
		huge := strings.Repeat("h", 1<<12)
		for i := range 500 {
			n := fmt.Sprint(i)
			s.send(response(xds.Cluster, huge+n, n, n+huge+"=bad", n+"=1", "x=bad"+n))
			s.send(response(xds.Cluster, huge+n, n, "-"+n, "-"+n+huge, "y=bad"))
			s.send(response(xds.Endpoint, huge+n, n, n+huge+"=1", "~"+n+"="+huge, "?"+n, "!"+huge))
			s.send(response(xds.TypeOf("type.googleapis.com/"+n), n, n, n+"=1"))
			s.send(response(xds.Cluster, n, n, "x=1"))
			s.skip()
		}
		used := heap() - before
		t.Logf("%d KiB", used>>10)
		if used > 16<<20 {
			t.Errorf("the client uses %d KiB", used>>10)
		}
		close(hold)
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
