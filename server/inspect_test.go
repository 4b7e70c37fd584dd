package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// streams keeps the streams that an observer gets.
type streams struct {
	mu  sync.Mutex
	all []*Stream
}

func (s *streams) Opened(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, st)
}
func (s *streams) Event(*Stream, protocol.Event) {}
func (s *streams) Closed(*Stream, error)         {}

// only returns the single open stream.
func (s *streams) only(t *testing.T) *Stream {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) != 1 {
		t.Fatalf("%d streams have begun", len(s.all))
	}
	return s.all[0]
}

// says describes the clusters of a session: "a:synced b:sent".
func says(t *testing.T, st *Stream) string {
	t.Helper()
	var all []string
	if err := st.Inspect(t.Context(), func(s *protocol.Session) {
		for n := range s.NameStates(xds.Cluster) {
			all = append(all, n.Name+":"+n.State.String())
		}
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func wantSays(t *testing.T, st *Stream, want string) {
	t.Helper()
	if got := says(t, st); got != want {
		t.Errorf("the session has %q, want %q", got, want)
	}
}

func TestInspect(t *testing.T) {
	begin := func(t *testing.T, body string) (*world, *sotwClient, *Stream) {
		o := &streams{}
		w := serve(t, WithObserver(o))
		w.set(xds.Cluster, res("a", body))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		return w, c, o.only(t)
	}
	within(t, "f gets an up-to-date session", func(t *testing.T) {
		w, c, st := begin(t, "1")
		wantSays(t, st, "a:sent")
		w.source.mu.Lock() // no bell rings
		w.view = xds.Tables{xds.Cluster.URL: with(w.view.Table(xds.Cluster), of(xds.Cluster, res("b", "1")))}
		w.source.mu.Unlock()
		wantSays(t, st, "a:sent b:due")
		c.send(ack(c.want()))
		synctest.Wait()
		wantSays(t, st, "a:synced b:sent")
		c.send(ack(c.want()))
		synctest.Wait()
		time.Sleep(time.Hour)
		wantSays(t, st, "a:synced b:synced")
	})
	within(t, "also while a write is blocked", func(t *testing.T) {
		_, c, st := begin(t, strings.Repeat("x", 8<<20))
		began := time.Now()
		wantSays(t, st, "a:sent")
		if time.Since(began) > 0 {
			t.Error("Inspect waits for the write")
		}
		c.send(ack(c.want()))
		synctest.Wait()
		wantSays(t, st, "a:synced")
	})
	within(t, "before the session has begun Inspect returns an error", func(t *testing.T) {
		o, st := &streams{}, store.New(store.WithGroups(func(context.Context, *xds.Node) ([]string, error) { return []string{"later"}, nil }))
		w := serveFrom(t, New(st, new(logbook).at(0), WithObserver(o)))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
		if err := o.only(t).Inspect(t.Context(), func(*protocol.Session) { t.Error("there is a session") }); !errors.Is(err, ErrNotBegun) {
			t.Error(err)
		}
		if _, err := st.Update(func(tx *store.Tx) error { tx.Group("later").Set(of(xds.Cluster, res("a", "1"))...); return nil }); err != nil {
			t.Fatal(err)
		}
		c.want()
		wantSays(t, o.only(t), "a:sent")
	})
	within(t, "an ended stream and a poll return an error", func(t *testing.T) {
		_, c, st := begin(t, "1")
		c.want()
		c.s.CloseSend()
		c.end()
		synctest.Wait()
		for _, st := range []*Stream{st, nil, {}} {
			if err := st.Inspect(t.Context(), func(*protocol.Session) { t.Error("there is a session") }); !errors.Is(err, ErrEnded) {
				t.Error(err)
			}
		}
	})
	within(t, "while the server drains", func(t *testing.T) {
		w, c, st := begin(t, "1")
		c.send(ack(c.want()))
		go w.Drain(t.Context())
		synctest.Wait()
		wantSays(t, st, "a:synced")
		c.end()
		synctest.Wait()
		if err := st.Inspect(t.Context(), nil); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
	within(t, "a client that leaves meanwhile: a running f sees the session to the end, and a waiting one gets an error", func(t *testing.T) {
		o := &streams{}
		w := serve(t, WithObserver(o))
		w.set(xds.Cluster, res("a", "1"))
		conn := w.dial(t)
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
		st, goOn, errs := o.only(t), make(chan struct{}), make(chan error)
		go func() { errs <- st.Inspect(t.Context(), func(s *protocol.Session) { <-goOn; s.States() }) }()
		synctest.Wait()
		go func() { errs <- st.Inspect(t.Context(), func(s *protocol.Session) { s.States() }) }()
		conn.Close()
		synctest.Wait()
		close(goOn)
		if a, b := <-errs, <-errs; a != nil || b != nil && !errors.Is(b, ErrEnded) {
			t.Error(a, b)
		}
	})
	within(t, "a waiting call gets an error when the stream ends", func(t *testing.T) {
		a, errs := inspections{wake: newNotices()}, make(chan error)
		for range 3 {
			go func() { errs <- a.add(t.Context(), nil) }()
		}
		synctest.Wait()
		if len(a.wake) != 1 {
			t.Errorf("%d notices for three that ask", len(a.wake))
		}
		a.end()
		for range 3 {
			if err := <-errs; !errors.Is(err, ErrEnded) {
				t.Error(err)
			}
		}
	})
	within(t, "a call takes no room from notices that end the stream", func(t *testing.T) {
		l := newNotices()
		l.notify(notice{what: noticeInspect})
		l.notify(notice{errDraining, noticeDrain})
		l.lose(errRefused)
		for _, want := range []byte{noticeInspect, noticeDrain, noticeLost} {
			select {
			case n := <-l:
				if n.what != want {
					t.Errorf("%d, not %d", n.what, want)
				}
			default:
				t.Errorf("%d is lost", want)
			}
		}
	})
	within(t, "a panic in f is logged, and the stream continues", func(t *testing.T) {
		w, c, st := begin(t, "1")
		r := c.want()
		if err := st.Inspect(t.Context(), func(*protocol.Session) { panic(goesOff) }); err == nil || errors.Is(err, ErrEnded) {
			t.Error(err)
		}
		if n := strings.Count(w.log.String(), goesOff); n == 0 {
			t.Error("the log says nothing")
		}
		c.send(ack(r))
		synctest.Wait()
		wantSays(t, st, "a:synced")
	})
	within(t, "no call waits longer than its context", func(t *testing.T) {
		_, c, st := begin(t, "1")
		c.want()
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errRefused)
		if err := st.Inspect(gone, nil); !errors.Is(err, errRefused) {
			t.Error(err)
		}
		goOn, done := make(chan struct{}), make(chan error)
		go func() { done <- st.Inspect(t.Context(), func(*protocol.Session) { <-goOn }) }()
		synctest.Wait()
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		if err := st.Inspect(soon, func(*protocol.Session) { t.Error("f is called although its caller no longer waits") }); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Error(err)
		}
		close(goOn)
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantSays(t, st, "a:sent")
		if err := st.Inspect(nil, func(*protocol.Session) {}); err != nil { //nolint:staticcheck // a nil context is never done
			t.Error(err)
		}
	})
	within(t, "a running f is not interrupted", func(t *testing.T) {
		_, c, st := begin(t, "1")
		c.want()
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		seen := false // no race: Inspect returns after f
		if err := st.Inspect(soon, func(*protocol.Session) { time.Sleep(time.Minute); seen = true }); err != nil || !seen {
			t.Error(err, seen)
		}
	})
	within(t, "calls run in the order of their arrival", func(t *testing.T) {
		_, c, st := begin(t, "1")
		c.want()
		goOn, done := make(chan struct{}), make(chan error)
		go func() { done <- st.Inspect(t.Context(), func(*protocol.Session) { <-goOn }) }()
		var order []int
		for i := range 5 {
			synctest.Wait()
			go func() { done <- st.Inspect(t.Context(), func(*protocol.Session) { order = append(order, i) }) }()
		}
		synctest.Wait()
		close(goOn)
		for range 6 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for i, n := range order {
			if i != n {
				t.Fatal(order)
			}
		}
	})
}

// A search is charged its real cost: the advance payment is returned.
func TestTextBudgetChargesRealCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x textBudget
		for _, takes := range []time.Duration{0, 10 * time.Millisecond, 0} {
			before := x.owed
			x.at = time.Now() // nothing comes in
			if text := x.look(false, func() string { time.Sleep(takes); return "text" }); text != "text" {
				t.Fatal(text)
			}
			if got := x.owed - before; got != takes {
				t.Errorf("%v are paid for %v", got, takes)
			}
		}
		x.owed = 0
		if x.pay(-textMinimum); x.owed != 0 {
			t.Errorf("%v are owed", x.owed)
		}
	})
}

var errRefused = errors.New("the caller gave up")

// Many goroutines inspect many streams while the streams are served and end.
func TestInspectStorm(t *testing.T) {
	o := &streams{}
	w := serve(t, WithObserver(o))
	w.set(xds.Cluster, res("a", "0"))
	conn := w.dial(t)
	ctx, stop := context.WithCancel(t.Context())
	var asking, served sync.WaitGroup
	looked := make(chan struct{}, 1000)
	for range 8 {
		asking.Go(func() {
			for ctx.Err() == nil {
				o.mu.Lock()
				all := append([]*Stream(nil), o.all...)
				o.mu.Unlock()
				for _, st := range all {
					short, cancel := context.WithTimeout(ctx, 100*time.Microsecond)
					if st.Inspect(short, func(s *protocol.Session) { s.States() }) == nil {
						select {
						case looked <- struct{}{}:
						default:
						}
					}
					cancel()
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for range 4 {
		served.Go(func() {
			for range 10 {
				c := w.sotw(t, conn)
				c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
				for range 5 {
					w.set(xds.Cluster, res("a", time.Now().String()))
					c.send(ack(c.want()))
				}
				c.s.CloseSend()
				c.end()
			}
		})
	}
	served.Wait()
	stop()
	asking.Wait()
	if len(looked) == 0 {
		t.Error("no session was inspected")
	}
}
