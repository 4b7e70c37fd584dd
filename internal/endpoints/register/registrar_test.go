package register

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// A testServer is a server at a fixed address that can be stopped and started.
type testServer struct {
	*testing.T
	path string
	*adminclient.Client
}

func at(t *testing.T) *testServer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	d, err := adminclient.Dial(adminclient.Target{URL: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	return &testServer{t, path, d}
}

// serve starts a server without registrations.
func (p *testServer) serve() (stop func()) {
	p.Helper()
	return p.keeping(memory(p.T))
}

func memory(t *testing.T) endpoints.Engine {
	t.Helper()
	engine, err := endpoints.Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func (p *testServer) keeping(engine endpoints.Engine) (stop func()) {
	p.Helper()
	reg := endpoints.New(engine, store.New(store.WithOverlays()), endpoints.Options{Log: quiet, PerCluster: 3})
	return p.with(&admin.Server{Log: quiet, Endpoints: reg})
}

func (p *testServer) with(s *admin.Server) (stop func()) {
	p.Helper()
	l, err := net.Listen("unix", p.path)
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context())
	var running sync.WaitGroup
	if s.Endpoints != nil {
		running.Go(func() { s.Endpoints.Run(ctx) })
		<-s.Endpoints.Loaded()
	}
	running.Go(func() { _ = s.Serve(ctx, l) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	p.Cleanup(stop)
	return stop
}

// has waits until a cluster has endpoints with these IDs.
func (p *testServer) has(cluster, want string) {
	p.Helper()
	got := "?"
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		got = ""
		if l, err := p.Endpoints(p.Context(), "", cluster); err == nil {
			var ids []string
			for _, c := range l.Items {
				for _, e := range c.Endpoints {
					ids = append(ids, e.ID)
				}
			}
			got = strings.Join(ids, " ")
		}
		if got == want {
			return
		}
	}
	p.Fatalf("%s has %q, want %q", cluster, got, want)
}

func (p *testServer) put(cluster, id, address string) {
	p.Helper()
	if _, err := p.PutEndpoint(p.Context(), "", cluster, id, api.Endpoint{Address: address, Port: 80}); err != nil {
		p.Fatal(err)
	}
}

func run(t *testing.T, r *Registrar) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func of(addresses ...string) (all []api.Endpoint) {
	for _, a := range addresses {
		all = append(all, api.Endpoint{Address: a, Port: 80})
	}
	return all
}

// Wanted endpoints are registered, and others of the owner are removed: at once, after a restart of the
// owner, and after one of the server. Registrations of others stay.
func TestRegistrar(t *testing.T) {
	t.Parallel()
	p := at(t)
	stopServer := p.serve()
	p.put("b", "x/10.0.0.8:80", "10.0.0.8")
	p.put("b", "xx/10.0.0.9:80", "10.0.0.9")
	r := New(p.Client, Options{Log: quiet})
	part := Part{Cluster: "b", Owner: "x"}
	if all, err := r.Registered(t.Context(), part); err != nil || len(all) != 1 || all[0].Address != "10.0.0.8" {
		t.Fatal(all, err)
	}
	r.Set(part, of("10.0.0.1"))
	stop := run(t, r)
	p.has("b", "x/10.0.0.1:80 xx/10.0.0.9:80")
	r.Set(part, of("10.0.0.2", "10.0.0.1"))
	p.has("b", "x/10.0.0.1:80 x/10.0.0.2:80 xx/10.0.0.9:80")
	r.Set(part, of("10.0.0.2"))
	r.Set(Part{"", "c/d", "x"}, of("10.0.0.3"))
	p.has("b", "x/10.0.0.2:80 xx/10.0.0.9:80")
	p.has("c/d", "x/10.0.0.3:80")
	for owner, want := range map[string]string{"x": "b c/d", "xx": "b", "y": ""} {
		if all, err := r.Clusters(t.Context(), "", owner); err != nil || strings.Join(all, " ") != want {
			t.Error(owner, all, err)
		}
	}

	stopServer()
	r.Set(part, of("10.0.0.4"))
	stopServer = p.serve() // the new server has no registrations
	p.has("b", "x/10.0.0.4:80")
	p.has("c/d", "x/10.0.0.3:80")

	stop()
	p.has("b", "x/10.0.0.4:80") // it has no lease
	r.Set(part, nil)
	stop = run(t, r)
	p.has("b", "")
	stop()
	stopServer()
}

// An answering stream answers each line, and records the lines.
type answering struct {
	lines   []api.EndpointLine
	answers chan api.EndpointLines // has one slot
}

func (a *answering) Send(lines []api.EndpointLine) (int, error) {
	a.lines = append(a.lines, lines...)
	a.answers <- api.EndpointLines{Line: len(a.lines), Errors: []api.LineError{{Line: len(a.lines), Message: "an older server does not know it"}}}
	return len(a.lines), nil
}

// A fault is sent when it changes, and on each new stream.
func TestFault(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		r := New(nil, Options{Log: quiet})
		for stream, want := range []string{`["a"]`, `["b",""]`} {
			a := &answering{answers: make(chan api.EndpointLines, 1)}
			s := &session{Registrar: r, stream: a, cancel: func(error) {}, answers: a.answers, has: map[Part]map[string]string{}, refused: map[Part]bool{}}
			for _, why := range [][]string{{"", "a", "a"}, {"b", "b", ""}}[stream] {
				r.Fault(why)
				if err := s.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var sent []string
			for _, line := range a.lines {
				sent = append(sent, *line.Fault)
			}
			if got, _ := json.Marshal(sent); string(got) != want {
				t.Errorf("stream %d: %s, want %s", stream, got, want)
			}
		}
	})
}

// A leases is an engine with a minimum duration of leases, which counts renewals, or ignores them.
type leases struct {
	endpoints.Engine
	least   atomic.Int64
	granted atomic.Int32
	renewed atomic.Int32
	forgets atomic.Bool
}

func (e *leases) Grant(ctx context.Context, ttl time.Duration) (endpoints.LeaseID, error) {
	e.granted.Add(1)
	return e.Engine.Grant(ctx, max(ttl, time.Duration(e.least.Load())))
}

func (e *leases) Renew(ctx context.Context, id endpoints.LeaseID) error {
	e.renewed.Add(1)
	if e.forgets.Load() {
		return nil
	}
	return e.Engine.Renew(ctx, id)
}

// If a lease is lost although it was renewed in time, as with an etcd that was away, all endpoints are
// registered again under another one.
func TestRegistrarLosesItsLease(t *testing.T) {
	t.Parallel()
	p := at(t)
	e := &leases{Engine: memory(t)}
	p.keeping(e)
	r := New(p.Client, Options{TTL: time.Second, Log: quiet})
	r.Set(Part{Cluster: "b", Owner: "x"}, of("10.0.0.1"))
	r.Set(Part{Cluster: "c", Owner: "x"}, of("10.0.0.2"))
	run(t, r)
	p.has("b", "x/10.0.0.1:80")
	p.has("c", "x/10.0.0.2:80")
	e.forgets.Store(true)
	p.has("b", "")
	p.has("c", "")
	e.forgets.Store(false)
	p.has("b", "x/10.0.0.1:80")
	p.has("c", "x/10.0.0.2:80")
}

// A lease is renewed while the registrar runs, and expires afterwards.
func TestRegistrarWithLease(t *testing.T) {
	t.Parallel()
	p := at(t)
	e := &leases{Engine: memory(t)}
	e.least.Store(int64(time.Hour))
	p.keeping(e)
	r := New(p.Client, Options{TTL: time.Second, Log: quiet})
	r.Set(Part{Cluster: "b", Owner: "x"}, of("10.0.0.1"))
	stop := run(t, r)
	p.has("b", "x/10.0.0.1:80")
	for until := time.Now().Add(20 * time.Second); e.renewed.Load() < 3; <-time.After(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("renewed %d times", e.renewed.Load())
		}
	}
	if n := e.granted.Load(); n != 1 {
		t.Errorf("%d leases", n)
	}
	stop()
	e.least.Store(0)
	r = New(p.Client, Options{TTL: time.Second, Log: quiet})
	r.Set(Part{Cluster: "c", Owner: "x"}, of("10.0.0.1"))
	stop = run(t, r)
	p.has("c", "x/10.0.0.1:80")
	stop()
	p.has("c", "")
}

// Refused endpoints are sent again until they are accepted, and do not delay others.
func TestRegistrarIsRefused(t *testing.T) {
	t.Parallel()
	p := at(t)
	p.serve()
	p.put("b", "x/a", "10.0.0.8")
	r := New(p.Client, Options{Log: quiet})
	for _, ip := range []string{"10.0.0.7", "10.0.0.9"} {
		p.put("b", "y/"+ip, ip)
	}
	r.Set(Part{Cluster: "a", Owner: "z"}, of("10.0.0.3"))
	run(t, r)
	p.has("a", "z/10.0.0.3:80") // the refused endpoint is not the first line
	r.Set(Part{Cluster: "b", Owner: "z"}, of("10.0.0.1"))
	r.Set(Part{Cluster: "c", Owner: "z"}, of("10.0.0.2"))
	p.has("c", "z/10.0.0.2:80")
	p.has("b", "x/a y/10.0.0.7 y/10.0.0.9") // there is no room for more
	if _, err := p.RemoveEndpoints(t.Context(), "", "b", "x/a", false); err != nil {
		t.Fatal(err)
	}
	p.has("b", "y/10.0.0.7 y/10.0.0.9 z/10.0.0.1:80")
}

// Lines in one batch are limited like single lines, also while the cluster is new.
func TestLimitsWithinOneBatch(t *testing.T) {
	t.Parallel()
	p := at(t)
	p.serve() // 3 endpoints of a cluster
	r := New(p.Client, Options{Log: quiet})
	r.Set(Part{Cluster: "b", Owner: "z"}, of("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"))
	run(t, r)
	p.has("b", "z/10.0.0.1:80 z/10.0.0.2:80 z/10.0.0.3:80")
}

// A logSignal is a log that signals a line.
type logSignal chan struct{}

func (c logSignal) Write(b []byte) (int, error) {
	select {
	case c <- struct{}{}:
	default:
	}
	return len(b), nil
}

// The registrar waits for a server that does not answer.
func TestRegistrarWaits(t *testing.T) {
	t.Parallel()
	p := at(t)
	line := make(logSignal, 1)
	r := New(p.Client, Options{Log: slog.New(slog.NewTextHandler(line, nil))})
	r.Set(Part{Cluster: "b", Owner: "z"}, of("10.0.0.1"))
	run(t, r)
	<-line // the registrar has asked without success
	p.serve()
	p.has("b", "z/10.0.0.1:80")
}

// A server that does not accept endpoints is an error, and is not asked again.
func TestRegistrarAtTheWrongServer(t *testing.T) {
	t.Parallel()
	p := at(t)
	p.with(&admin.Server{Log: quiet})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := New(p.Client, Options{Log: quiet})
	_, clusters := r.Clusters(ctx, "", "x")
	for _, err := range []error{r.Run(ctx), clusters} {
		if refused, is := errors.AsType[*adminclient.Refused](err); !is || refused.Code != http.StatusForbidden || !Refusing(err) {
			t.Error(err)
		}
	}
	for code, want := range map[int]bool{http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusTooManyRequests: false, http.StatusServiceUnavailable: false} {
		if Refusing(&adminclient.Refused{Code: code}) != want {
			t.Error(code)
		}
	}
}

type silent struct{}

func (silent) Send([]api.EndpointLine) (int, error) { return 1, nil }

// A server that does not answer loses its stream after 30 s: another one may be in its place.
func TestServerWithoutAnswerLosesStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{stream: silent{}, answers: make(chan api.EndpointLines)}
		s.cancel = func(err error) { s.end = err; close(s.answers) }
		began := time.Now()
		if _, _, err := s.send(nil); !errors.Is(err, errLate) || time.Since(began) != 30*time.Second {
			t.Error(err, time.Since(began))
		}
	})
}

// Removals come after additions.
func TestRemovalsComeLast(t *testing.T) {
	p := Part{Cluster: "b", Owner: "x"}
	s := &session{has: map[Part]map[string]string{p: {"x/a": "", "x/b": ""}}}
	all := s.steps(p, map[string]api.Endpoint{"x/b": {}, "x/c": {}})
	if len(all) != 3 || all[0].line.Put == nil || all[1].line.Put == nil || all[2].line.Remove != "x/a" {
		t.Errorf("%+v", all)
	}
}
