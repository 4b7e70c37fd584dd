package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A client of the real server, in all variants.
func TestCLI1Server(t *testing.T) {
	for _, o := range []client.GRPCOptions{{}, {Delta: true}, {PerType: true}, {Delta: true, PerType: true}} {
		t.Run(fmt.Sprintf("CLI-1 CLI-4 delta=%v per type=%v", o.Delta, o.PerType), func(t *testing.T) {
			w := newGRPCWorld(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			set := func(timeout int64, names ...string) {
				_, err := w.store.Update(func(tx *store.Tx) error {
					for _, name := range names {
						r, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(time.Duration(timeout))})
						if err != nil {
							return err
						}
						tx.Set(r)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			set(1, "a", "b")
			c, err := client.New(client.Config{Node: &xds.Node{ID: "n"}, Servers: []client.Server{{Transport: w.transport(o)}}, Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			step := 0
			for ev, err := range client.Watch[*clusterv3.Cluster](ctx, c, "*") {
				if err != nil {
					t.Fatal(err)
				}
				if ev.Kind == client.Updated && ev.Value.GetName() != ev.Name {
					t.Fatalf("%v", ev)
				}
				switch {
				case step < 2 && ev.Kind == client.Updated && ev.Value.ConnectTimeout.AsDuration() == 1:
				case step == 2 && ev.Kind == client.Complete:
					set(2, "b")
				case step == 3 && ev.Kind == client.Updated && ev.Name == "b" && ev.Value.ConnectTimeout.AsDuration() == 2:
					if _, err := w.store.Update(func(tx *store.Tx) error { tx.Delete(xds.Cluster, "a"); return nil }); err != nil {
						t.Fatal(err)
					}
				case step == 4 && ev.Kind == client.Removed && ev.Name == "a":
				default:
					t.Fatalf("step %d: %v", step, ev)
				}
				if step++; step == 5 {
					break
				}
			}
			if step != 5 {
				t.Errorf("%d steps", step)
			}
		})
	}
}

// clusterOf returns a response with cluster "a", whose body need not be a message.
func clusterOf(version string, body []byte) *xds.Response {
	r := xds.NewResource(xds.Cluster, "a", body)
	r.Seal(version)
	return &xds.Response{Type: xds.Cluster, Version: version, Nonce: version, Changes: &xds.Changes{Upserts: []*xds.Resource{r}}}
}

// A body that is not a message of the watched type is refused.
func TestTypedWatchRefusesOtherMessages(t *testing.T) {
	both(t, "typed", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		events := make(chan string, 100)
		go func() {
			for ev, err := range client.Watch[*clusterv3.Cluster](t.Context(), c, "a") {
				if err != nil {
					return
				}
				events <- fmt.Sprint(ev.Kind, " ", ev.Value.GetName(), " ", ev.Err != nil)
			}
		}()
		s := f.stream()
		s.send(clusterOf("v1", []byte("\xff\xff")))
		body, err := proto.Marshal(&clusterv3.Cluster{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		s.send(clusterOf("v2", body))
		s.send(clusterOf("v3", []byte("\xff")))
		for _, want := range []string{"refused  true", "updated a false", "refused a true"} {
			if got := <-events; got != want {
				t.Errorf("%q, not %q", got, want)
			}
		}
		for _, err := range client.Watch[proto.Message](t.Context(), c, "a") {
			if err == nil {
				t.Error("no type, and no error")
			}
		}
	})

	both(t, "a resource in use before the first typed watch", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		f.stream().send(clusterOf("v1", []byte("\xff")))
		for ev, err := range client.Watch[*clusterv3.Cluster](t.Context(), c, "a") {
			if err != nil || ev.Kind != client.Refused || ev.Err == nil || ev.Value != nil {
				t.Errorf("%v %v", ev, err)
			}
			break
		}
	})
}
