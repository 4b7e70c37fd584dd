package registrar

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/endpoints"
	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// A place is where a server can be.
type place struct {
	*testing.T
	path string
	*adminapi.Daemon
}

func at(t *testing.T) *place {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	d, err := adminapi.Dial(adminapi.Target{URL: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	return &place{t, path, d}
}

// serve starts a server that has nothing registered.
func (p *place) serve() (stop func()) {
	p.Helper()
	engine, err := endpoints.Open("", nil)
	if err != nil {
		p.Fatal(err)
	}
	reg := endpoints.New(engine, store.New(store.WithOvers()), endpoints.Options{Log: quiet, PerCluster: 3})
	return p.with(&admin.Server{Log: quiet, Endpoints: reg})
}

func (p *place) with(s *admin.Server) (stop func()) {
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
func (p *place) has(cluster, want string) {
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

func (p *place) put(cluster, id, address string) {
	p.Helper()
	if _, err := p.PutEndpoint(p.Context(), "", cluster, id, adminapi.Endpoint{Address: address, Port: 80}); err != nil {
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

func of(addresses ...string) (all []adminapi.Endpoint) {
	for _, a := range addresses {
		all = append(all, adminapi.Endpoint{Address: a, Port: 80})
	}
	return all
}

// What an owner wants is registered and what it no longer wants goes: at once, after a start of the owner's, and after one of
// the server's. What others have registered is theirs.
func TestRegistrar(t *testing.T) {
	t.Parallel()
	p := at(t)
	stopServer := p.serve()
	p.put("b", "x/10.0.0.8:80", "10.0.0.8")
	p.put("b", "xx/10.0.0.9:80", "10.0.0.9")
	r := New(p.Daemon, Options{Log: quiet})
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

	stopServer()
	r.Set(part, of("10.0.0.4"))
	stopServer = p.serve() // it has lost all
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

// With a lease, what is registered goes when nobody renews it any more, and not before.
func TestRegistrarWithLease(t *testing.T) {
	t.Parallel()
	p := at(t)
	p.serve()
	r := New(p.Daemon, Options{TTL: time.Second, Log: quiet})
	r.Set(Part{Cluster: "b", Owner: "x"}, of("10.0.0.1"))
	stop := run(t, r)
	p.has("b", "x/10.0.0.1:80")
	for end := time.Now().Add(1100 * time.Millisecond); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		p.has("b", "x/10.0.0.1:80")
	}
	stop()
	p.has("b", "")
}

// What the server does not take is sent again until it does, and keeps nothing else waiting.
func TestRegistrarIsRefused(t *testing.T) {
	t.Parallel()
	p := at(t)
	p.serve()
	p.put("b", "x/a", "10.0.0.8")
	r := New(p.Daemon, Options{Log: quiet})
	for _, ip := range []string{"10.0.0.7", "10.0.0.9"} {
		p.put("b", "y/"+ip, ip)
	}
	r.Set(Part{Cluster: "b", Owner: "z"}, of("10.0.0.1"))
	run(t, r)
	r.Set(Part{Cluster: "c", Owner: "z"}, of("10.0.0.2"))
	p.has("c", "z/10.0.0.2:80")
	p.has("b", "x/a y/10.0.0.7 y/10.0.0.9") // there is no room for more
	if _, err := p.RemoveEndpoints(t.Context(), "", "b", "x/a", false); err != nil {
		t.Fatal(err)
	}
	p.has("b", "y/10.0.0.7 y/10.0.0.9 z/10.0.0.1:80")
}

// A server that takes no endpoints says so, and nobody asks it for ever. One that is away is waited for.
func TestRegistrarAtTheWrongServer(t *testing.T) {
	t.Parallel()
	p := at(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := New(p.Daemon, Options{Log: quiet}).Run(ctx); err != nil {
		t.Error(err)
	}
	p.with(&admin.Server{Log: quiet})
	err := New(p.Daemon, Options{Log: quiet}).Run(t.Context())
	if refused, is := errors.AsType[*adminapi.Refused](err); !is || refused.Code != http.StatusNotFound || !Refusing(err) {
		t.Error(err)
	}
}
