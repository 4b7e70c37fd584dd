package lazy_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/lazy"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// serve serves clusters and virtual hosts in a synctest bubble. The resolver takes a second, and finds
// those in found by the requested name.
func serve(t *testing.T, name string, found map[string]*xds.Resource, f func(t *testing.T, conn *grpc.ClientConn, st *store.Store)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := store.New(store.WithEmptyGroups())
			src, err := lazy.New(st, func(ctx context.Context, q lazy.Query) (*xds.Resource, error) {
				time.Sleep(time.Second)
				return found[q.Name], nil
			}, []*xds.Type{xds.Cluster, xds.VirtualHost})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); src.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
			f(t, xdstest.Serve(t, server.New(src), grpc.WaitForHandlers(true)), st)
		})
	})
}

// after calls f, which must take this long.
func after(t *testing.T, d time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if time.Since(start) != d {
		t.Errorf("after %v, want %v", time.Since(start), d)
	}
}

func TestServer(t *testing.T) {
	shop := &xds.Resource{Stamp: &xds.Stamp{Name: "route/shop"}, Type: xds.VirtualHost, Body: []byte("shop"), Aliases: []string{"route/www"}}
	shop.Seal("")
	found := map[string]*xds.Resource{"a": xds.NewResource(xds.Cluster, "a", []byte("\x0a\x01a")), "route/www": shop}

	serve(t, "OND-1 a virtual host by an alias", found, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
		c := xdstest.Delta(t, conn)
		c.Subscribe(xds.VirtualHost, "route/www")
		after(t, time.Second, func() {
			if r := c.Expect(xds.VirtualHost, "route/shop"); string(r.Resources[0].Body) != "shop" {
				t.Error(r)
			}
		})
	})
	for agent, bodyless := range map[string]bool{"envoy": true, "other": false} {
		serve(t, "DELTA-7 a virtual host that does not exist, to "+agent, nil, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
			c := xdstest.Delta(t, conn, xdstest.WithNode(xds.Node{UserAgentName: agent}))
			c.Subscribe(xds.VirtualHost, "route/none")
			after(t, time.Second, func() {
				if !bodyless {
					c.ExpectRemoved(xds.VirtualHost, "route/none")
				} else if r := c.Next(xds.VirtualHost); len(r.Resources) != 1 || r.Resources[0].Body != nil || fmt.Sprint(r.Resources[0].Aliases) != "[route/none]" || len(r.Removed) > 0 {
					t.Error(r)
				}
			})
		})
	}
	serve(t, "OND-2 clusters, of which one is there", found, func(t *testing.T, conn *grpc.ClientConn, st *store.Store) {
		if _, err := st.Update(func(tx *store.Tx) error { tx.Set(xds.NewResource(xds.Cluster, "static", nil)); return nil }); err != nil {
			t.Fatal(err)
		}
		c := xdstest.Delta(t, conn)
		c.Subscribe(xds.Cluster, "a", "static", "none")
		after(t, 0, func() { c.ACK(c.Expect(xds.Cluster, "static")) })
		var told []string
		after(t, time.Second, func() {
			for len(told) < 2 {
				r := c.Next(xds.Cluster)
				for _, r := range r.Resources {
					told = append(told, r.Name)
				}
				for _, n := range r.Removed {
					told = append(told, "no "+n)
				}
				c.ACK(r)
			}
		})
		if got := fmt.Sprint(told); got != "[a no none]" && got != "[no none a]" {
			t.Error(got)
		}
	})
	serve(t, "SUB-6 the wildcard has nothing of it", found, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
		c := xdstest.Delta(t, conn)
		c.Subscribe(xds.Cluster, "a")
		c.Expect(xds.Cluster, "a")
		other := xdstest.Delta(t, conn)
		other.Subscribe(xds.Cluster)
		other.Expect(xds.Cluster)
	})
	// A cluster that is missing in a SotW response does not exist. So there is no response before the name
	// is resolved.
	serve(t, "SOTW-8 a world with a name that is being looked for", found, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
		c := xdstest.SotW(t, conn)
		c.Subscribe(xds.Cluster, "a")
		after(t, time.Second, func() { c.Expect(xds.Cluster, "a") })
	})
}
