package etcd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/endpoints"
	endpointsetcd "github.com/chancery-xds/chancery/internal/endpoints/etcd"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A registry is the endpoint registry of one server.
type registry struct {
	*endpoints.Registry
	st  *store.Store
	log logtest.Log
}

// registries starts some of an etcd.
func registries(t *testing.T, n int, members ...string) (all []*registry, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range n {
		conn := connect(t, etcdkv.Options{Endpoints: members, Prefix: "p"})
		r := &registry{st: store.New(store.WithOverlays())}
		log := slog.New(slog.NewTextHandler(&r.log, nil))
		r.Registry = endpoints.New(endpointsetcd.New(conn, log), r.st, endpoints.Options{Log: log})
		running.Go(func() { r.Run(ctx) })
		all = append(all, r)
		if err := conn.Do(ctx, "", func(_ context.Context, c *clientv3.Client) error { client = c; return nil }); err != nil {
			t.Fatal(err)
		}
		<-r.Loaded()
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return all, client
}

func (r *registry) sees(name string) (n int, version string) {
	r.Flush()
	a := r.st.Snapshot().View(store.OverlayOf("default")).Table(xds.Endpoint).Lookup(name)
	if a == nil {
		return -1, ""
	}
	return bytes.Count(a.Body, []byte("10.0.")), a.Version
}

// agree waits until all see as many endpoints, at one version.
func agree(t *testing.T, all []*registry, name string, want int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		same := true
		_, first := all[0].sees(name)
		for _, r := range all {
			n, version := r.sees(name)
			same = same && n == want && version == first
		}
		if same {
			return
		}
		if time.Now().After(end) {
			for i, r := range all {
				n, version := r.sees(name)
				t.Errorf("%d sees %d at %s, want %d", i, n, version, want)
			}
			t.FailNow()
		}
	}
}

func one(n int) endpoints.Registered {
	return endpoints.Registered{Endpoint: endpoints.Endpoint{Address: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), Port: 80}}
}

// All servers serve an endpoint registered at one of them, at equal versions. Leases end for all servers, and a server
// that starts later has the endpoint, too. Foreign keys and invalid values are logged and change nothing. A compaction
// during a watch loses nothing.
func TestRegisteredEndpoints(t *testing.T) {
	ctx := background(t)
	_, endpoint := start(t, nil)
	all, client := registries(t, 3, endpoint)
	c := endpoints.Cluster{Name: "a/b|c"}
	for i := range 9 {
		if _, err := all[i%3].Put(ctx, c, []endpoints.Registered{one(i)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	agree(t, all, c.Name, 9)
	if res, err := all[1].Put(ctx, c, []endpoints.Registered{one(9), one(10)}, 2*time.Second); err != nil || res.Set != 2 {
		t.Fatal(res, err)
	}
	agree(t, all, c.Name, 11)
	for range 3 { // another server renews it
		time.Sleep(time.Second)
		if res, err := all[2].Put(ctx, c, []endpoints.Registered{one(9), one(10)}, 2*time.Second); err != nil || res.Unchanged != 2 {
			t.Fatal(res, err)
		}
	}
	agree(t, all, c.Name, 11)
	agree(t, all, c.Name, 9)

	// Keys of other programs.
	for key, value := range map[string]string{"p/endpoints/x": "1", "p/endpoints/default/a%2Fb%7Cc/10.0.0.1:80": "{", "p/endpoints/default/%zz": "1", "p/endpoints/default/n/i": `{"address":"nowhere","port":1}`} {
		if _, err := client.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := all[0].Put(ctx, c, []endpoints.Registered{one(20)}, 0); err != nil {
		t.Fatal(err)
	}
	agree(t, all, c.Name, 10)
	if n, _ := all[0].sees("n"); n > 0 {
		t.Error("what cannot be read is served")
	}
	if said := all[0].log.String(); !strings.Contains(said, "unknown key below the registered endpoints") {
		t.Error(said)
	}

	if res, err := all[1].Put(ctx, c, []endpoints.Registered{one(0)}, 0); err != nil || res.Set != 1 { // a new put of the endpoint replaces the invalid value
		t.Fatal(res, err)
	}

	// Many changes, compacted at once.
	for i := range 50 {
		if _, err := all[i%3].Put(ctx, c, []endpoints.Registered{one(100 + i)}, 0); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			r, err := client.Get(ctx, "p")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Compact(ctx, r.Header.Revision); err != nil {
				t.Fatal(err)
			}
		}
	}
	agree(t, all, c.Name, 60)
	late, _ := registries(t, 1, endpoint)
	agree(t, append(late, all...), c.Name, 60)
	if res, err := all[0].Replace(ctx, c, []endpoints.Registered{one(0)}, 0); err != nil || res.Removed != 59 {
		t.Fatal(res, err)
	}
	agree(t, append(late, all...), c.Name, 1)
	if _, err := all[0].Release(ctx, c); err != nil {
		t.Fatal(err)
	}
	agree(t, append(late, all...), c.Name, -1)
}

// When the etcd ends, the served endpoints stay, and registrations get an error.
func TestEndpointsWithoutEtcd(t *testing.T) {
	ctx := background(t)
	e, endpoint := start(t, nil)
	all, _ := registries(t, 1, endpoint)
	if _, err := all[0].Put(ctx, endpoints.Cluster{Name: "x"}, []endpoints.Registered{one(1)}, 0); err != nil {
		t.Fatal(err)
	}
	agree(t, all, "x", 1)
	dir := t.TempDir()
	keeping(t, dir, endpoint)() // the registry ends after it has stored the endpoint
	e.Server.Stop()
	if _, err := all[0].Put(ctx, endpoints.Cluster{Name: "x"}, []endpoints.Registered{one(2)}, 0); err == nil {
		t.Error("it is registered")
	}
	agree(t, all, "x", 1)
	keeping(t, dir, endpoint)() // its disk has the endpoint
}

// While the etcd does not answer, the last registrations are served, and the fault is known.
func TestEndpointsOfAnEtcdThatIsAway(t *testing.T) {
	_, endpoint := start(t, nil)
	p := newProxy(t, endpoint)
	all, client := registries(t, 1, p.Addr().String())
	r := all[0]
	put := func(n int) {
		t.Helper()
		if _, err := r.Put(background(t), endpoints.Cluster{Name: "x"}, []endpoints.Registered{one(n)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	is := func(fault bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); (len(r.Faults()) > 0) != fault; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("faults %v, want %v", r.Faults(), fault)
			}
		}
		agree(t, all, "x", 1)
	}
	for name, change := range map[string]func(bool){"cut": p.set, "hang": p.hang} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			is(false)
			change(true)
			is(true)
			change(false)
			is(false)
		})
	}
	t.Run("SAFE-17 denied", func(t *testing.T) {
		for _, err := range []error{second(client.UserAdd(t.Context(), "root", "root")), second(client.UserGrantRole(t.Context(), "root", "root")), second(client.AuthEnable(t.Context()))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		is(true)
		if !strings.Contains(r.Faults()[0].Text, "user") {
			t.Error(r.Faults())
		}
	})
	if n := strings.Count(r.log.String(), "etcd watch failed"); n < 3 {
		t.Errorf("%d lines:\n%s", n, r.log.String())
	}
}

func second[T any](_ T, err error) error { return err }

// keeping starts a registry with a copy on disk, and waits until it serves cluster x.
func keeping(t *testing.T, dir, endpoint string) (end func()) {
	t.Helper()
	conn := connect(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "p"})
	r := &registry{st: store.New(store.WithOverlays())}
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	kept, err := endpoints.NewDiskShadow(endpointsetcd.New(conn, log), dir, time.Second, log)
	if err != nil {
		t.Fatal(err)
	}
	r.Registry = endpoints.New(kept, r.st, endpoints.Options{Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	<-r.Loaded()
	agree(t, []*registry{r}, "x", 1)
	return func() {
		cancel()
		running.Wait()
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The etcd has no more leases than endpoints, whichever server registers them, and ending a lease removes no key.
func TestLeasesAreBounded(t *testing.T) {
	ctx := background(t)
	_, endpoint := start(t, nil)
	all, client := registries(t, 2, endpoint)
	c := endpoints.Cluster{Name: "x"}
	for i := range 20 {
		if _, err := all[i%2].Put(ctx, c, []endpoints.Registered{one(0)}, time.Hour+time.Duration(i)*time.Second); err != nil {
			t.Fatal(err)
		}
		agree(t, all, c.Name, 1)
		s, err := all[i%2].Session(time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		e := one(1).Endpoint
		if i%3 == 0 {
			_, err = s.Apply(ctx, []endpoints.Op{{Cluster: c, Endpoint: &e}, {Cluster: c, ID: "10.0.0.2:80"}})
		} else {
			_, err = s.Apply(ctx, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.End(ctx)
	}
	r, err := client.Leases(ctx)
	if err != nil || len(r.Leases) != 1 {
		t.Fatal(len(r.Leases), err)
	}
	has, err := client.TimeToLive(ctx, r.Leases[0].ID, clientv3.WithAttachedKeys())
	if err != nil || len(has.Keys) != 1 {
		t.Fatal(has, err)
	}
	if _, err := all[0].Remove(ctx, c); err != nil {
		t.Fatal(err)
	}
	if r, err = client.Leases(ctx); err != nil || len(r.Leases) != 0 {
		t.Fatal(len(r.Leases), err)
	}
}
