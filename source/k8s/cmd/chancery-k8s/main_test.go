package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/chancery-xds/chancery/internal/admin"
	adminapi "github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/source/k8s/internal/apitest"
	"github.com/chancery-xds/chancery/store"
)

// chancery starts a server that accepts endpoints, and returns its URL.
func chancery(t *testing.T, takes bool) (*adminclient.Client, string) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &admin.Server{Log: quiet, Tracker: clients.New(clients.Options{}), Config: func() adminapi.Config { return adminapi.Config{} }, Groups: func() []adminapi.Group { return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	if takes {
		engine, err := endpoints.Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Endpoints = endpoints.New(engine, store.New(store.WithOverlays()), endpoints.Options{Log: quiet})
		running.Go(func() { s.Endpoints.Run(ctx) })
		<-s.Endpoints.Loaded()
	}
	running.Go(func() { _ = s.Serve(ctx, l) })
	t.Cleanup(func() { cancel(); running.Wait() })
	d, err := adminclient.Dial(adminclient.Target{URL: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	return d, "unix://" + path
}

// slice returns a slice of service shop/b, with a port http.
func slice(name string, addresses ...string) *discovery.EndpointSlice {
	port, http, zone := int32(80), "http", "a"
	s := &discovery.EndpointSlice{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discovery.LabelServiceName: "b"}}, AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Name: &http, Port: &port}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{a}, Zone: &zone})
	}
	return s
}

// has waits until a cluster has endpoints with these IDs.
func has(t *testing.T, d *adminclient.Client, cluster, want string) {
	t.Helper()
	got := ""
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); <-time.After(5 * time.Millisecond) {
		got = ""
		if l, err := d.Endpoints(t.Context(), "", cluster); err == nil {
			for _, e := range l.Items[0].Endpoints {
				got += e.ID + " "
			}
			if got = strings.TrimSpace(got); got == want {
				return
			}
		}
	}
	t.Fatalf("%s has %q, want %q", cluster, got, want)
}

// faults waits until the status of the server has a fault of the sources of endpoints; "": none (SAFE-17).
func faults(t *testing.T, d *adminclient.Client, want string) {
	t.Helper()
	var st *adminapi.Status
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); <-time.After(5 * time.Millisecond) {
		var err error
		st, err = d.Status(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && len(st.Troubles) == 0 || want != "" && len(st.Troubles) == 1 && strings.HasPrefix(st.Troubles[0].Text, want) {
			return
		}
	}
	t.Fatalf("%+v, want %q", st.Troubles, want)
}

// Slices of an API server become endpoints at a Chancery server. Endpoints that disappeared while the
// program was not running are removed at the next start. Endpoints of other owners stay.
func TestFollow(t *testing.T) {
	d, url := chancery(t, true)
	api := apitest.Start(t)
	api.Put(slice("s", "10.0.0.1", "10.0.0.2"))
	if _, err := d.PutEndpoint(t.Context(), "", "backend", "mine", adminapi.Endpoint{Address: "10.9.9.9", Port: 1}); err != nil {
		t.Fatal(err)
	}
	args := []string{"--admin", url, "--kubeconfig", api.Kubeconfig(t), "--region", "eu"}
	start := func(more ...string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int, 1)
		go func() { done <- run(ctx, append(more, args...), io.Discard) }()
		return sync.OnceFunc(func() {
			cancel()
			if code := <-done; code != ok {
				t.Errorf("exit code %d", code)
			}
		})
	}
	stop := start("backend=shop/b:http", "old=shop/b")
	defer stop()
	has(t, d, "backend", "k8s/10.0.0.1:80 k8s/10.0.0.2:80 mine")
	has(t, d, "old", "k8s/10.0.0.1:80 k8s/10.0.0.2:80")
	l, err := d.Endpoints(t.Context(), "", "old")
	if err != nil || *l.Items[0].Endpoints[0].Locality != (adminapi.Locality{Region: "eu", Zone: "a"}) || l.Items[0].Endpoints[0].Health != "HEALTHY" {
		t.Error(l, err)
	}
	api.Put(slice("t", "10.0.0.3"))
	has(t, d, "backend", "k8s/10.0.0.1:80 k8s/10.0.0.2:80 k8s/10.0.0.3:80 mine")
	stop()
	api.Delete("shop", "s")
	has(t, d, "backend", "k8s/10.0.0.1:80 k8s/10.0.0.2:80 k8s/10.0.0.3:80 mine")

	api.Refuse(http.StatusServiceUnavailable) // a start without an API server removes nothing
	stop = start("backend=shop/b:http")
	defer stop()
	api.AwaitRefusal()
	faults(t, d, "chancery-k8s (k8s) cannot watch endpoint slices, so the last endpoints stay: ")
	has(t, d, "backend", "k8s/10.0.0.1:80 k8s/10.0.0.2:80 k8s/10.0.0.3:80 mine")
	api.Refuse(0)
	has(t, d, "backend", "k8s/10.0.0.3:80 mine")
	faults(t, d, "")
	has(t, d, "old", "") // it is not followed any more
}

func TestWrongUsage(t *testing.T) {
	_, url := chancery(t, false)
	api := apitest.Start(t)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{ok, "Usage:", []string{"--help"}},
		{misuse, "unknown flag", []string{"--x"}},
		{misuse, "write CLUSTER=", []string{"b"}},
		{misuse, "nothing to follow", nil},
		{misuse, "--owner", []string{"--all", "--owner", "a/b"}},
		{misuse, "--ttl", []string{"--all", "--ttl", "1ms"}},
		{misuse, "not the URL", []string{"--all", "--admin", "x"}},
		{failed, "no such file", []string{"--all", "--kubeconfig", "/x"}},
		{noServer, "takes no endpoints", []string{"--all", "--admin", url}},
	} {
		var said strings.Builder
		if code := run(t.Context(), append([]string{"--kubeconfig", api.Kubeconfig(t)}, c.args...), &said); code != c.code || !strings.Contains(said.String(), c.says) {
			t.Errorf("%v: exit code %d, want %d with %q\n%s", c.args, code, c.code, c.says, &said)
		}
	}
}
