package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A scriptedServer is a server whose responses a test sets, even such as no store would hold.
type scriptedServer struct {
	ctx       context.Context
	responses chan *xds.Response
	nonce     int
}

func (*scriptedServer) Variant() xds.Variant    { return xds.Delta }
func (*scriptedServer) Aggregated() bool        { return true }
func (*scriptedServer) String() string          { return "scripted" }
func (*scriptedServer) Close() error            { return nil }
func (*scriptedServer) Send(*xds.Request) error { return nil }

func (u *scriptedServer) Open(ctx context.Context, _ *xds.Type) (client.Stream, error) {
	return &scriptedServer{ctx: ctx, responses: u.responses}, nil
}

func (u *scriptedServer) Recv() (*xds.Response, error) {
	select {
	case r := <-u.responses:
		return r, nil
	case <-u.ctx.Done():
		return nil, u.ctx.Err()
	}
}

func (u *scriptedServer) send(of ...*xds.Resource) { u.changes(xds.Cluster, &xds.Changes{Upserts: of}) }

func (u *scriptedServer) changes(t *xds.Type, what *xds.Changes) {
	u.nonce++
	u.responses <- &xds.Response{Type: t, Nonce: fmt.Sprint(u.nonce), Changes: what}
	synctest.Wait()
}

// relayed is a relay of a scripted server, with some options.
func relayed(t *testing.T, o relay.Options) (*scriptedServer, *grpc.ClientConn) {
	t.Helper()
	up := &scriptedServer{responses: make(chan *xds.Response)}
	c, err := client.New(client.Config{Node: &xds.Node{ID: "relay"}, Servers: []client.Server{{Transport: up}}})
	if err != nil {
		t.Fatal(err)
	}
	src := relay.New(store.New(), c, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); src.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; c.Close() })
	return up, xdstest.Serve(t, server.New(src), grpc.WaitForHandlers(true))
}

func called(name string, aliases ...string) *xds.Resource {
	r := resource(xds.Cluster, name, "")
	r.Aliases = aliases
	r.Seal("")
	return r
}

// A conflicting resource is served as soon as the conflict ends.
func TestConflictingResourceIsServedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, conn := relayed(t, relay.Options{Refs: refs})
		behind := xdstest.Delta(t, conn)
		behind.Subscribe(xds.Cluster, "*")
		synctest.Wait()
		up.send(called("a", "x"), called("b", "x"), called("c"))
		behind.Await(xds.Cluster, "a", "c")
		up.send(called("c", "y"))
		behind.Await(xds.Cluster, "a", "c")
		up.send(called("a"))
		behind.Await(xds.Cluster, "a", "b", "c")
	})
}

// An alias does not hide the resource with that name, in any order of events.
func TestOwnNameWinsOverAlias(t *testing.T) {
	a, b, c := called("a", "b", "x"), called("b"), called("c", "b")
	for name, steps := range map[string][][]*xds.Resource{
		"both at once":       {{a, b}},
		"the alias first":    {{a}, {b}},
		"the alias second":   {{b}, {a}},
		"two with the alias": {{a, c}, {b}},
	} {
		t.Run("CLI-15 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up, conn := relayed(t, relay.Options{Refs: refs})
				all, named, aliased := xdstest.Delta(t, conn), xdstest.Delta(t, conn), xdstest.Delta(t, conn)
				all.Subscribe(xds.Cluster, "*")
				synctest.Wait()
				want := []string{"a", "b"}
				for _, s := range steps {
					up.send(s...)
					if s[len(s)-1] == c {
						want = append(want, "c")
					}
				}
				all.Await(xds.Cluster, want...)
				named.Subscribe(xds.Cluster, "b")
				named.Await(xds.Cluster, "b")
				aliased.Subscribe(xds.Cluster, "x") // the other alias still finds its resource
				aliased.Await(xds.Cluster, "a")
				up.changes(xds.Cluster, &xds.Changes{Removed: []string{"b"}})
				named.Await(xds.Cluster, "a") // the alias is free again; of two resources, the first has it
				up.send(b)
				named.Await(xds.Cluster, "b")
			})
		})
	}
}

// A resource may have its own name as an alias: only an alias that is the name of another resource is lost.
func TestOwnNameAsAlias(t *testing.T) {
	t.Run("CLI-15", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			up, conn := relayed(t, relay.Options{Refs: refs, Log: slog.New(slog.NewTextHandler(&log, nil))})
			c := xdstest.Delta(t, conn)
			c.Subscribe(xds.Cluster, "*")
			synctest.Wait()
			up.send(called("a", "a", "b"), called("b"))
			c.Await(xds.Cluster, "a", "b")
			if all := log.String(); strings.Count(all, "without the alias") != 1 || !strings.Contains(all, `alias \"b\"`) {
				t.Error(all)
			}
		})
	})
}

// Names that "*" has found are forgotten when nothing is left of them.
func TestNamesForgotten(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a", "b")
		up.set(xds.Cluster, "c")
		c.Await(xds.Cluster, "c")
		up.set(xds.Cluster)
		takes(t, 5*time.Second, func() { c.Await(xds.Cluster) })
		synctest.Wait()
		if n := w.src.Names(xds.Cluster); n != 1 {
			t.Errorf("%d names are known, want %q alone", n, xds.Wildcard)
		}
	})
}
