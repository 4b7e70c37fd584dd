package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A visitor polls like Envoy: on one connection, with the version that it has applied.
type visitor struct {
	t       *testing.T
	s       *Server
	typ     *xds.Type
	node    string
	names   []string
	version string
	machine byte // that it runs on
	port    int  // of its connection
	mixed   bool // which carries several polls at a time
	refuses bool
}

func (v *visitor) request() xds.Request {
	return xds.Request{Node: &xds.Node{ID: v.node}, Names: v.names, Version: v.version}
}

func (v *visitor) caller() Caller {
	return Caller{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, v.machine, 1), Port: 1000 + v.port}, Sequential: !v.mixed}
}

// poll returns the answer to a request and how long it took.
func (v *visitor) poll(req xds.Request) (*xds.Response, time.Duration) {
	v.t.Helper()
	start := time.Now()
	p, err := v.s.Poll(v.t.Context(), v.typ, req, v.caller())
	if err != nil {
		v.t.Fatal(err)
	}
	r, err := p.Wait(v.t.Context(), MaxHold)
	p.Close(err)
	if err != nil {
		v.t.Fatal(err)
	}
	if r != nil && !v.refuses {
		v.version = r.Version
	}
	return r, time.Since(start)
}

// gets polls and expects these resources after the given time.
func (v *visitor) gets(after time.Duration, names ...string) *xds.Response {
	v.t.Helper()
	r, took := v.poll(v.request())
	if r == nil || took != after {
		v.t.Fatalf("got %v after %v, want %v after %v", r, took, names, after)
	}
	got := []string{}
	for _, u := range r.Upserts {
		got = append(got, u.Name)
	}
	if !slices.Equal(got, names) || r.Type != v.typ || r.Version == "" {
		v.t.Fatalf("got %v of %v at %q, want %v", got, r.Type, r.Version, names)
	}
	return r
}

// waits polls and expects no answer before the hold time ends.
func (v *visitor) waits() {
	v.t.Helper()
	if r, took := v.poll(v.request()); r != nil || took != MaxHold {
		v.t.Fatalf("got %v after %v", r, took)
	}
}

// A pollWorld is a server with its source, its log and its observer.
type pollWorld struct {
	*source
	*Server
	t    *testing.T
	log  *logbook
	seen *chronicle
}

func newPollWorld(t *testing.T, opts ...Option) *pollWorld {
	w := &pollWorld{source: newSource(), t: t, log: &logbook{}, seen: &chronicle{}}
	w.Server = New(w.source, append([]Option{w.log.at(slog.LevelWarn), WithObserver(w.seen)}, opts...)...)
	t.Cleanup(func() {
		if n := len(w.watches); n > 0 {
			t.Errorf("%d watches are open", n)
		}
		if n := w.Stats().Open; n != 0 || w.polls.held.taken() != 0 || w.seen.open != 0 {
			t.Errorf("%d polls are open, %d are held, %d are observed", n, w.polls.held.taken(), w.seen.open)
		}
	})
	return w
}

func (w *pollWorld) visitor(typ *xds.Type, names ...string) *visitor {
	return &visitor{t: w.t, s: w.Server, typ: typ, node: "envoy-1", names: names}
}

// later does something while a poll is held.
func (w *pollWorld) later(f func()) { time.AfterFunc(10*time.Second, f) }

// A chronicle is an Observer that records events. Polls in a bubble run one at a time.
type chronicle struct {
	open   int
	events []protocol.Event
}

func (c *chronicle) Opened(*Stream)                    { c.open++ }
func (c *chronicle) Closed(*Stream, error)             { c.open-- }
func (c *chronicle) Event(_ *Stream, e protocol.Event) { c.events = append(c.events, e) }

func (c *chronicle) of(k protocol.EventKind) (all []protocol.Event) {
	for _, e := range c.events {
		if e.Kind == k {
			all = append(all, e)
		}
	}
	return all
}

func TestPoll(t *testing.T) {
	within(t, "REST-2 a poll at the current version is held until a change", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Cluster, res("a", "1"))
		v := w.visitor(xds.Cluster)
		v.gets(0, "a")
		v.waits()
		w.later(func() { w.set(xds.Cluster, res("b", "1")) })
		v.gets(10*time.Second, "a", "b")
		w.later(func() { w.update(xds.Cluster, nil, "a") })
		v.gets(10*time.Second, "b")
		w.update(xds.Cluster, nil, "b")
		v.gets(0)
		v.waits()
		if n := len(w.seen.of(protocol.Acked)); n != 4 {
			t.Errorf("%d ACKs", n)
		}
	})
	within(t, "REST-2 a change of other names causes no answer, but a new name does", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Endpoint, res("a", "1"), res("b", "1"))
		v := w.visitor(xds.Endpoint, "a")
		v.gets(0, "a")
		w.later(func() { w.set(xds.Endpoint, res("b", "2"), res("c", "1")); w.set(xds.Cluster, res("a", "1")) })
		v.waits()
		v.names = []string{"a", "none"}
		v.gets(0, "a")
		v.names = []string{"none", "a", "none"} // Envoy sends names in any order
		v.waits()
		w.later(func() { w.set(xds.Endpoint, res("none", "1")) })
		v.gets(10*time.Second, "a", "none")
		v.names = []string{"none"}
		v.gets(0, "none")
		w.later(func() { w.update(xds.Endpoint, nil, "none") })
		v.gets(10 * time.Second)
		v.waits()
	})
	within(t, "REST-2 REST-7 a resource on demand is found by name and not by a wildcard", func(t *testing.T) {
		w := newPollWorld(t)
		lazy := res("lazy", "1")
		lazy.OnDemand = true
		w.set(xds.Cluster, res("a", "1"), lazy)
		v := w.visitor(xds.Cluster)
		v.gets(0, "a")
		v.names = []string{"*"}
		v.waits() // the same, spelled out
		v.names = []string{"lazy", "*"}
		v.gets(0, "a", "lazy")
		v.waits()
		w.later(func() { w.update(xds.Cluster, nil, "lazy") })
		v.gets(10*time.Second, "a")
	})
	within(t, "REST-7 a poll without names", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Endpoint, res("a", "1"))
		v := w.visitor(xds.Endpoint) // for this type an empty list does not mean all resources
		v.gets(0)
		v.waits()
	})
	within(t, "REST-2 only a commit to a requested name is looked at", func(t *testing.T) {
		st := store.New()
		commit := func(rs ...*xds.Resource) {
			if _, err := st.Update(func(tx *store.Tx) error { tx.Set(of(xds.Endpoint, rs...)...); return nil }); err != nil {
				t.Error(err)
			}
		}
		commit(res("a", "1"))
		s := New[*store.Watch](st)
		v := &visitor{t: t, s: s, typ: xds.Endpoint, node: "n", names: []string{"a"}}
		v.gets(0, "a")
		p, err := s.Poll(t.Context(), v.typ, v.request(), Caller{})
		if err != nil {
			t.Fatal(err)
		}
		commit(res("b", "1"))
		synctest.Wait()
		select {
		case <-p.watch.C():
			t.Error("a change of another name signals")
		default:
		}
		time.AfterFunc(time.Second, func() { commit(res("a", "2")) })
		if r, err := p.Wait(t.Context(), MaxHold); r == nil || len(r.Upserts) != 1 || string(r.Upserts[0].Body) != "2" {
			t.Error(r, err)
		}
		p.Close(nil)
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		if v, _ := watchtest.Next(t, w); v.Table(xds.Endpoint).Len() != 2 {
			t.Error("the commits were not made")
		}
	})
	within(t, "REST-2 a view that has not decided yet", func(t *testing.T) {
		w := newPollWorld(t)
		look := &looking{c: make(chan struct{}, 1)}
		w.Server = New(look)
		v := w.visitor(xds.Endpoint, "a")
		w.later(func() { look.decide() })
		v.gets(10*time.Second, "a")
		v.waits()
	})
	within(t, "REST-2 a view that has a resource although it is undecided", func(t *testing.T) {
		w := newPollWorld(t)
		w.Server = New(&looking{c: make(chan struct{}, 1), found: true})
		w.visitor(xds.Endpoint, "a").gets(0, "a")
	})
}

// looking is a source that does not know one name at first.
type looking struct {
	decided atomic.Bool
	found   bool // the table has the name although the view has not decided
	c       chan struct{}
}

func (l *looking) Watch(context.Context, *xds.Node) (*looking, error) { return l, nil }
func (l *looking) C() <-chan struct{}                                 { return l.c }
func (l *looking) Close()                                             {}
func (l *looking) Next() (xds.View, []xds.Names, error) {
	return l, nil, nil
}
func (l *looking) Interested(*xds.Type, bool, []string, []string) {}
func (l *looking) Undecided(*xds.Type, string) bool               { return !l.decided.Load() }
func (l *looking) decide()                                        { l.decided.Store(true); l.c <- struct{}{} }
func (l *looking) Table(t *xds.Type) *xds.Table {
	if !l.decided.Load() && !l.found {
		return xds.NewTable(t)
	}
	return with(xds.NewTable(t), []*xds.Resource{res("a", "1")})
}

// Versions are equal on replicas and after a restart. Otherwise all clients would get an answer
// without any change.
func TestPollVersion(t *testing.T) {
	src := newSource()
	src.set(xds.Endpoint, res("a", "1"), res("b", "1"), res("c", "1"))
	s := New(src)
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"a"}, "66c6578d33e2ba2b"},
		{[]string{"a", "b"}, "6aaa9b1ef79c3f6d"},
		{[]string{"a", "none"}, "ac484e7a89b10780"},
		{[]string{"*"}, src.view.Table(xds.Endpoint).Version()},
		{[]string{"*", "a"}, "62975266f2041216"},
		{nil, "fcdb4b423f4e5283"},
	} {
		t.Run(fmt.Sprint("REST-2 ", c.names), func(t *testing.T) {
			p, err := s.Poll(t.Context(), xds.Endpoint, xds.Request{Names: c.names}, Caller{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(nil)
			if r, err := p.Wait(t.Context(), 0); err != nil || r.Version != c.want || r.Nonce != r.Version {
				t.Errorf("%v: version %q, nonce %q, want %q", err, r.Version, r.Nonce, c.want)
			}
		})
	}
}

// A refused answer is sent once, whether the client sends a NACK or not.
func TestPollRefused(t *testing.T) {
	setup := func(t *testing.T) (*pollWorld, *visitor) {
		w := newPollWorld(t)
		w.set(xds.Cluster, res("a", "1"))
		v := w.visitor(xds.Cluster)
		v.gets(0, "a")
		w.later(func() { w.set(xds.Cluster, res("bad", "1")) })
		v.refuses = true
		v.gets(10*time.Second, "a", "bad")
		return w, v
	}
	// recorded wants that many NACKs to be observed, and one in the log.
	recorded := func(t *testing.T, w *pollWorld, n int, texts ...string) {
		t.Helper()
		all := w.seen.of(protocol.Nacked)
		if len(all) != n {
			t.Errorf("%d NACKs: %v", len(all), all)
		}
		synctest.Wait()
		if got := strings.Count(w.log.String(), "client refused a response (NACK)"); got != min(n, 1) {
			t.Errorf("%d lines of the log:\n%s", got, w.log)
		}
		for _, text := range texts {
			if !strings.Contains(w.log.String(), text) {
				t.Errorf("no %s in the log:\n%s", text, w.log)
			}
		}
	}

	within(t, "REST-3 the client continues to poll with the old version", func(t *testing.T) {
		w, v := setup(t)
		v.waits()
		v.waits()
		v.waits()
		recorded(t, w, 3, "not applied", "node=envoy-1", "type=CDS", "in_use="+v.version)
		if e := w.seen.of(protocol.Nacked)[0]; e.Version != w.view.Table(xds.Cluster).Version() || e.InUse != v.version || e.Took != 0 {
			t.Errorf("%+v", e)
		}
		w.later(func() { w.set(xds.Cluster, res("bad", "2")) })
		v.refuses = false
		v.gets(10*time.Second, "a", "bad")
		v.waits()
	})
	within(t, "REST-3 SOTW-21 the change is reverted while the poll is held", func(t *testing.T) {
		w, v := setup(t)
		w.later(func() { w.update(xds.Cluster, nil, "bad") })
		v.gets(10*time.Second, "a") // although the client states this version
		v.waits()
		recorded(t, w, 1)
	})
	within(t, "REST-3 SOTW-21 reverted between polls", func(t *testing.T) {
		w, v := setup(t)
		w.update(xds.Cluster, nil, "bad")
		v.gets(0, "a")
		v.waits()
		recorded(t, w, 0)
	})
	within(t, "REST-3 fixed between polls", func(t *testing.T) {
		w, v := setup(t)
		v.refuses = false
		w.set(xds.Cluster, res("bad", "2"))
		v.gets(0, "a", "bad")
		v.waits()
		recorded(t, w, 0)
	})
	within(t, "REST-3 the first answer is refused", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Cluster, res("bad", "1"))
		v := w.visitor(xds.Cluster)
		v.refuses = true
		v.gets(0, "bad")
		v.waits()
		recorded(t, w, 1)
		v.port++ // another process with the same node id must not wait
		v.gets(0, "bad")
	})
	within(t, "REST-3 a node with the same id on another machine does not count as refusing", func(t *testing.T) {
		w, v := setup(t)
		old := v.version
		v.waits()
		other := w.visitor(xds.Cluster)
		other.version, other.machine, other.refuses = old, 2, true
		other.gets(0, "a", "bad")
		v.waits()
		other.waits()
	})
	within(t, "REST-3 error_detail", func(t *testing.T) {
		w, v := setup(t)
		refused := w.view.Table(xds.Cluster).Version()
		for range 3 {
			req := v.request()
			req.Nonce, req.Error = refused, &xds.Status{Code: 3, Message: `bad: inline_string: "pw"`}
			if r, took := v.poll(req); r != nil || took != MaxHold {
				t.Fatal(r, took)
			}
		}
		recorded(t, w, 3, "bad: inline_string", "code=3", "version="+refused)
		for _, e := range w.seen.of(protocol.Nacked) {
			if e.Version != refused || e.Nonce != refused || strings.Contains(e.Error.Message, "pw") {
				t.Errorf("%+v %+v", e, e.Error)
			}
		}
		// The client need not send the NACK again.
		v.waits()
		// The refused version is not current any more.
		req := v.request()
		req.Nonce, req.Error = refused, &xds.Status{Code: 3}
		w.update(xds.Cluster, nil, "bad")
		if r, took := v.poll(req); r == nil || took != 0 {
			t.Fatal(r, took)
		}
	})
	within(t, "REST-3 error_detail without nonce, to a server that has just started", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Cluster, res("bad", "1"))
		v := w.visitor(xds.Cluster)
		req := v.request()
		req.Version, req.Error = "older", &xds.Status{Message: "bad"}
		if r, took := v.poll(req); r != nil || took != MaxHold {
			t.Fatal(r, took)
		}
		recorded(t, w, 1, "in_use=older")
	})
	within(t, "REST-3 a lost answer is repeated", func(t *testing.T) {
		w, v := setup(t)
		v.port++ // the other connection broke
		v.waits()
		v.gets(0, "a", "bad")
		v.port++
		v.waits()
		v.waits()
		v.gets(0, "a", "bad") // 60 s after the last time
		recorded(t, w, 3)
	})
	within(t, "REST-3 a pool of connections", func(t *testing.T) {
		w, v := setup(t)
		// Envoy's next poll comes on another connection. Since then it has used the first
		// connection for another poll, which shows that it has the answer.
		other := w.visitor(xds.Listener)
		other.gets(0)
		for range 5 {
			v.port++
			v.waits()
		}
		recorded(t, w, 5)
	})
	within(t, "REST-3 a pool of connections, and the first answer is refused", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Cluster, res("bad", "1"))
		other := w.visitor(xds.Listener)
		other.port = 1
		other.gets(0)
		v := w.visitor(xds.Cluster)
		v.refuses = true
		v.gets(0, "bad")
		v.port = 1 // this connection is older than the answer, so it is the same process
		v.waits()
		recorded(t, w, 1)
		v.port = 2 // this may be another process, which has just started
		v.gets(0, "bad")
	})
	within(t, "REST-3 a connection that carries several at a time", func(t *testing.T) {
		_, v := setup(t)
		v.mixed = true
		v.waits()
		v.gets(0, "a", "bad") // nothing shows that the client received the answer
		v.waits()
		v.waits()
		v.gets(0, "a", "bad")
		for range 4 {
			v.waits()
		}
		v.gets(0, "a", "bad")
		// Only a NACK of the client shows that the client received the answer.
		req := v.request()
		req.Error = &xds.Status{Message: "bad"}
		if r, _ := v.poll(req); r != nil {
			t.Error(r)
		}
		for range 20 {
			v.waits()
		}
	})
	within(t, "REST-3 an answer that could not be sent is repeated", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Cluster, res("a", "1"))
		v := w.visitor(xds.Cluster)
		v.version = "older"
		for range 2 {
			p, err := w.Poll(t.Context(), v.typ, v.request(), v.caller())
			if err != nil {
				t.Fatal(err)
			}
			if r, err := p.Wait(t.Context(), 0); !p.Ready() || r == nil {
				t.Error("no answer", err)
			}
			p.Close(errors.New("broken pipe"))
		}
		recorded(t, w, 0)
	})
	within(t, "REST-3 the refusal does not delay other clients", func(t *testing.T) {
		w, v := setup(t)
		for what, change := range map[string]func(*visitor){
			"another node":    func(v *visitor) { v.node = "envoy-2" },
			"another type":    func(v *visitor) { v.typ = xds.Listener },
			"other names":     func(v *visitor) { v.names = []string{"a"} },
			"no node id":      func(v *visitor) { v.node = "" },
			"another version": func(v *visitor) { v.version = "another" },
		} {
			o := *v
			change(&o)
			if r, took := o.poll(o.request()); r == nil || took != 0 {
				t.Errorf("%s: %v after %v", what, r, took)
			}
		}
		v.node = ""
		for range 3 {
			v.gets(0, "a", "bad") // the client has no node id, so nothing is remembered
		}
		recorded(t, w, 0)
	})
	within(t, "REST-3 a poller for each name", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Endpoint, res("a", "bad"), res("b", "bad"))
		a, b := w.visitor(xds.Endpoint, "a"), w.visitor(xds.Endpoint, "b")
		a.refuses, b.refuses, b.port = true, true, 1
		a.gets(0, "a")
		b.gets(0, "b")
		a.waits()
		b.waits()
	})
	within(t, "REST-3 the memory is bounded", func(t *testing.T) {
		w := newPollWorld(t, WithLimits(Limits{Polls: 10}))
		w.set(xds.Cluster, res("a", "1"))
		for i := range 100 {
			v := w.visitor(xds.Cluster)
			v.node, v.port = fmt.Sprint(i), i
			v.gets(0, "a")
		}
		if n, c := w.polls.answers.order.Len(), w.polls.conns.order.Len(); n != 10 || len(w.polls.answers.index) != 10 || c > 10 {
			t.Errorf("%d answers and %d connections are remembered", n, c)
		}
	})
}

func TestPollEnds(t *testing.T) {
	hold := func(t *testing.T, w *pollWorld) *Poll {
		t.Helper()
		v := w.visitor(xds.Cluster)
		v.node = ""
		v.version = w.view.Table(xds.Cluster).Version()
		p, err := w.Poll(t.Context(), v.typ, v.request(), v.caller())
		if err != nil {
			t.Fatal(err)
		}
		if p.Ready() {
			t.Error("a poll waits although its answer is known")
		}
		return p
	}
	within(t, "REST-4 a client that disconnects frees everything", func(t *testing.T) {
		w := newPollWorld(t)
		p := hold(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := p.Wait(ctx, MaxHold)
		if r != nil || status.Code(err) != codes.DeadlineExceeded {
			t.Error(r, err)
		}
		p.Close(err)
	})
	within(t, "REST-4 polls that are held are limited", func(t *testing.T) {
		w := newPollWorld(t, WithLimits(Limits{Polls: 2}))
		w.set(xds.Cluster, res("a", "1"))
		a, b := hold(t, w), hold(t, w)
		v := w.visitor(xds.Cluster)
		v.gets(0, "a")
		if _, err := w.Poll(t.Context(), v.typ, v.request(), Caller{Addr: a.info.Peer}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "2 polls are held, the maximum of this server") {
			t.Error(err)
		}
		a.Close(nil)
		hold(t, w).Close(nil)
		b.Close(nil)
	})
	within(t, "REST-4 a server that ends answers at once", func(t *testing.T) {
		w := newPollWorld(t)
		p := hold(t, w)
		time.AfterFunc(time.Second, func() {
			if r, err := p.Wait(t.Context(), MaxHold); r != nil || status.Code(err) != codes.Unavailable {
				t.Error(r, err)
			}
			time.Sleep(time.Second) // the answer is written
			p.Close(nil)
		})
		start := time.Now()
		if err := w.Drain(t.Context()); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := w.Poll(t.Context(), xds.Cluster, xds.Request{}, Caller{}); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
	within(t, "REST-5 invalid requests", func(t *testing.T) {
		w := newPollWorld(t, WithLimits(Limits{Names: 2, NameLen: 5, Held: 130, Node: 10}))
		for _, c := range []struct {
			req  xds.Request
			code codes.Code
			says string
		}{
			{xds.Request{Type: xds.Route}, codes.InvalidArgument, "does not belong"},
			{xds.Request{Names: []string{"a", "b", "c"}}, codes.ResourceExhausted, "more than 2"},
			{xds.Request{Names: []string{"longer"}}, codes.ResourceExhausted, "more than 5"},
			{xds.Request{Names: []string{"aaaaa", "bbbbb"}}, codes.ResourceExhausted, "more than 130"},
			{xds.Request{Node: &xds.Node{ID: "n", Metadata: make([]byte, 10)}}, codes.ResourceExhausted, "a node of 11 bytes, more than 10"},
			{xds.Request{Node: &xds.Node{ID: "longer"}}, codes.ResourceExhausted, "a node id of 6 bytes, more than 5"},
		} {
			before := w.log.String()
			_, err := w.Poll(t.Context(), xds.Cluster, c.req, Caller{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1000}})
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: %v", c.req, err)
			}
			if line := strings.TrimPrefix(w.log.String(), before); !strings.Contains(line, "client exceeded a limit") || !strings.Contains(line, "peer=10.0.0.1:1000") || !strings.Contains(line, c.says) {
				t.Errorf("logged %s", line)
			}
		}
		if s := w.Stats(); s.Malformed != 1 || s.Throttled["request"] != 2 || s.Throttled["subscription"] != 3 {
			t.Errorf("counted %+v", s)
		}
	})
}

func TestHoldTime(t *testing.T) {
	for _, c := range []struct {
		expected string
		want     time.Duration
		err      string
	}{
		{"", 30 * time.Second, ""},
		{"1000", 900 * time.Millisecond, ""},
		{"60000", 30 * time.Second, ""},
		{"100", 0, ""},
		{"0", 0, ""},
		{"4294967295", 30 * time.Second, ""},
		{"soon", 0, `"soon" is not a number of milliseconds`},
		{"-1", 0, `"-1" is not a number of milliseconds`},
	} {
		t.Run("REST-2 "+cmp.Or(c.expected, "no header"), func(t *testing.T) {
			var all []string
			if c.expected != "" {
				all = append(all, c.expected)
			}
			got, err := HoldTime(all...)
			if got != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
