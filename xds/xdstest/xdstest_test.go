package xdstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = server.WithLogger(slog.New(slog.DiscardHandler))

func within(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func update(t testing.TB, st *store.Store, f func(tx *store.Tx)) {
	t.Helper()
	if _, err := st.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func resource(t testing.TB, typ *xds.Type, m proto.Message) *xds.Resource {
	t.Helper()
	r, err := wire.NewResource(typ, "", m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func cluster(t testing.TB, name string) *xds.Resource {
	return resource(t, xds.Cluster, &clusterv3.Cluster{Name: name})
}

func endpoints(t testing.TB, name string) *xds.Resource {
	return resource(t, xds.Endpoint, &endpointv3.ClusterLoadAssignment{ClusterName: name})
}

// The same conversation in both variants.
func TestConversation(t *testing.T) {
	for name, dial := range map[string]func(T, grpc.ClientConnInterface, ...Option) *Client{"SotW": SotW, "delta": Delta} {
		within(t, name, func(t *testing.T) {
			st := store.New()
			update(t, st, func(tx *store.Tx) { tx.Set(cluster(t, "a"), cluster(t, "b"), endpoints(t, "e")) })
			srv := server.New(st, quiet, server.WithIdentifier(func() string { return "replica-1" }))
			c := dial(t, Serve(t, srv))
			c.Subscribe(xds.Cluster, "*")
			c.Subscribe(xds.Endpoint, "e")
			// Types may be expected in any order.
			c.ACK(c.Expect(xds.Endpoint, "e"))
			r := c.Expect(xds.Cluster, "b", "a")
			var m clusterv3.Cluster
			if err := r.Unmarshal("b", &m); err != nil || m.Name != "b" || r.Identifier != "replica-1" || r.Resource("a").Type != xds.Cluster {
				t.Error(r, err)
			}
			for want, err := range map[string]error{
				`no resource "x"`: r.Unmarshal("x", &m), "nil message": r.Unmarshal("a", nil),
				`"b" cannot be decoded into a nil message`: r.Unmarshal("b", (*clusterv3.Cluster)(nil)),
				"is a type.googleapis.com/envoy.config.cluster.v3.Cluster, not a type.googleapis.com/envoy.config.endpoint.v3": r.Unmarshal("a", &endpointv3.ClusterLoadAssignment{}),
			} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
			}
			c.ExpectNothing()
			c.ACK(r)

			update(t, st, func(tx *store.Tx) { tx.Delete(xds.Cluster, "a") })
			if c.variant == xds.Delta {
				c.ACK(c.ExpectRemoved(xds.Cluster, "a"))
			} else {
				c.ACK(c.Expect(xds.Cluster, "b"))
			}
			if got := c.Held(xds.Cluster); !slices.Equal(got, []string{"b"}) {
				t.Errorf("it holds %q", got)
			}

			update(t, st, func(tx *store.Tx) { tx.Set(cluster(t, "c")) })
			before := c.of(xds.Cluster).version
			c.NACK(c.Next(nil), "not so")
			if got := c.of(xds.Cluster).version; got != before || got == "" {
				t.Errorf("the client states version %q, and has accepted %q", got, before)
			}
			c.ExpectNothing()
			if got := c.Held(xds.Cluster); !slices.Equal(got, []string{"b"}) {
				t.Errorf("it holds %q", got)
			}
			update(t, st, func(tx *store.Tx) { tx.Delete(xds.Cluster, "c"); tx.Set(cluster(t, "d")) })
			c.Await(xds.Cluster, "b", "d")
			c.Await(xds.Cluster, "d", "b")

			c.Unsubscribe(xds.Endpoint, "e")
			c.ExpectNothing() // now the server has handled the request
			update(t, st, func(tx *store.Tx) { tx.Delete(xds.Endpoint, "e") })
			c.ExpectNothing()
			if got := c.Held(xds.Endpoint); len(got) > 0 {
				t.Errorf("it holds %q", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := srv.Drain(ctx); err != nil {
				t.Error(err)
			}
			if err := c.ExpectEnd(); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		})
	}
}

// The options of a client, and a client that reconnects.
func TestOptions(t *testing.T) {
	within(t, "groups by node", func(t *testing.T) {
		st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) {
			return []string{n.Cluster + n.Zone + n.UserAgentName + n.ClientFeatures[0] + string(n.Metadata)}, nil
		}))
		update(t, st, func(tx *store.Tx) { tx.Group("edgezagentfeaturemeta").Set(cluster(t, "a")) })
		c := Delta(t, Serve(t, server.New(st, quiet)), nil, WithNode(xds.Node{
			ID: "n", Cluster: "edge", Region: "r", Zone: "z", SubZone: "s", UserAgentName: "agent", UserAgentVersion: "1.2.3", ClientFeatures: []string{"feature"}, Metadata: []byte("meta")}))
		c.Subscribe(xds.Cluster)
		c.Expect(xds.Cluster, "a")
	})
	for name, dial := range map[string]func(T, grpc.ClientConnInterface, ...Option) *Client{"SotW": SotW, "delta": Delta} {
		within(t, "one type, and resuming, "+name, func(t *testing.T) {
			st := store.New()
			update(t, st, func(tx *store.Tx) { tx.Set(cluster(t, "a")) })
			conn := Serve(t, server.New(st, quiet))
			c := dial(t, conn, WithType(xds.Cluster))
			c.Subscribe(xds.Cluster, "*")
			r := c.Expect(xds.Cluster, "a")
			c.ACK(r)
			c.Close()
			if err := c.ExpectEnd(); err == nil {
				t.Error("no error")
			}
			again := dial(t, conn, WithQuiet(time.Second))
			again.Resume(xds.Cluster, c)
			again.ExpectNothing() // it already holds a
			update(t, st, func(tx *store.Tx) { tx.Set(cluster(t, "b")) })
			again.Await(xds.Cluster, "a", "b")
		})
	}
	within(t, "errors of names that do not exist", func(t *testing.T) {
		st := store.New(store.WithEmptyGroups())
		conn := Serve(t, server.New(st, quiet, server.WithResourceErrors()))
		for name, dial := range map[string]func(T, grpc.ClientConnInterface, ...Option) *Client{"SotW": SotW, "delta": Delta} {
			c := dial(t, conn)
			c.Subscribe(xds.Cluster, "none")
			r := c.Next(xds.Cluster)
			if !slices.Equal(r.Errors, []string{"none"}) || !strings.Contains(r.String(), `errors of "none"`) {
				t.Errorf("%s: %s", name, r)
			}
		}
	})
	within(t, "TTL", func(t *testing.T) {
		st := store.New()
		r := cluster(t, "a")
		r.TTL = 90*time.Second + time.Millisecond
		r.Seal("")
		update(t, st, func(tx *store.Tx) { tx.Set(r) })
		conn := Serve(t, server.New(st, quiet, server.WithForcedTTL()))
		supports := WithNode(xds.Node{ClientFeatures: []string{"xds.config.supports-resource-ttl", "xds.config.supports-resource-in-sotw"}})
		for name, dial := range map[string]func(T, grpc.ClientConnInterface, ...Option) *Client{"SotW": SotW, "delta": Delta} {
			c := dial(t, conn, WithTimeout(time.Minute), supports)
			c.Subscribe(xds.Cluster, "*")
			first := c.Expect(xds.Cluster, "a")
			if got := first.Resource("a"); got.TTL != r.TTL || string(got.Body) != string(r.Body) {
				t.Errorf("%s: %+v", name, got)
			}
			c.ACK(first)
			beat := c.Expect(xds.Cluster, "a")
			c.ACK(beat)
			if c.variant == xds.Delta && beat.Resource("a").Body != nil || len(c.Held(xds.Cluster)) != 1 {
				t.Errorf("%s: %+v", name, beat.Resource("a"))
			}
		}
	})
}

// failing records why a test failed.
type failing struct {
	*testing.T
	why string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// An unexpected response fails the test and prints the conversation.
func TestFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		f    func(t T, conn *grpc.ClientConn)
		want []string
	}{
		"another response": {func(t T, conn *grpc.ClientConn) {
			c := Delta(t, conn)
			c.Subscribe(xds.Cluster, "*")
			c.Expect(xds.Cluster, "a", "b")
		}, []string{`got  CDS "a" (nonce 1, version `, `want CDS "a", "b"`, "the conversation so far:\n  > CDS subscribe \"*\"\n  < CDS \"a\""}},
		"a removal that is not expected": {func(t T, conn *grpc.ClientConn) {
			c := Delta(t, conn)
			c.Subscribe(xds.Cluster, "a", "none")
			c.Expect(xds.Cluster, "a")
		}, []string{`got  CDS "a", removed "none"`, `want CDS "a"`}},
		"no removal": {func(t T, conn *grpc.ClientConn) {
			c := Delta(t, conn)
			c.Subscribe(xds.Cluster, "*")
			c.ExpectRemoved(xds.Cluster, "b")
		}, []string{`want CDS nothing, removed "b"`}},
		"no response": {func(t T, conn *grpc.ClientConn) {
			c := SotW(t, conn)
			c.Subscribe(xds.Endpoint, "none")
			c.Next(xds.Endpoint)
			c.Next(xds.Endpoint)
		}, []string{"a response of EDS did not come within 10s", "> EDS subscribe"}},
		"one too many": {func(t T, conn *grpc.ClientConn) {
			c := SotW(t, conn)
			c.Subscribe(xds.Cluster, "*")
			c.ExpectNothing()
		}, []string{`want no response, got CDS "a"`}},
		"one too many, from before": {func(t T, conn *grpc.ClientConn) {
			c := SotW(t, conn, WithTimeout(time.Second))
			c.Subscribe(xds.Cluster, "*")
			c.Subscribe(xds.Endpoint, "e")
			c.ACK(c.Next(xds.Endpoint))
			c.ExpectNothing()
		}, []string{`want no response, got CDS "a"`}},
		"another state": {func(t T, conn *grpc.ClientConn) {
			c := Delta(t, conn, WithTimeout(time.Second))
			c.Subscribe(xds.Cluster, "*")
			c.Await(xds.Cluster, "a", "b")
		}, []string{`the state CDS "a", "b", instead of "a", did not come within 1s`, "> CDS ACK 1"}},
		"removals of SotW": {func(t T, conn *grpc.ClientConn) { SotW(t, conn).ExpectRemoved(xds.Cluster, "a") }, []string{"use Expect with the remaining names", "no messages were sent"}},
		"no end":           {func(t T, conn *grpc.ClientConn) { SotW(t, conn).ExpectEnd() }, []string{"the stream has not ended within 10s"}},
		"an end": {func(t T, conn *grpc.ClientConn) {
			c := SotW(t, conn)
			c.Subscribe(xds.TypeOf(strings.Repeat("x", 5000)), "a")
			c.Next(nil)
		}, []string{"the stream has ended: rpc error: code = ResourceExhausted"}},
		"an end, and a request": {func(t T, conn *grpc.ClientConn) {
			c := SotW(t, conn)
			c.Close()
			_ = c.ExpectEnd()
			c.Subscribe(xds.Cluster, "a")
		}, []string{"the stream has ended"}},
		"late resuming": {func(t T, conn *grpc.ClientConn) {
			c := SotW(t, conn)
			c.Subscribe(xds.Cluster, "a")
			c.Resume(xds.Cluster, c)
		}, []string{"Resume must be the first request"}},
		"resuming nothing":  {func(t T, conn *grpc.ClientConn) { SotW(t, conn).Resume(xds.Cluster, nil) }, []string{"Resume needs an earlier client, also of sotw"}},
		"another type":      {func(t T, conn *grpc.ClientConn) { SotW(t, conn, WithType(xds.Cluster)).Subscribe(xds.Route, "a") }, []string{"the stream serves only CDS, not RDS"}},
		"no type":           {func(t T, conn *grpc.ClientConn) { SotW(t, conn).Subscribe(nil, "a") }, []string{"the type is nil"}},
		"no service":        {func(t T, conn *grpc.ClientConn) { SotW(t, conn, WithType(xds.VirtualHost)) }, []string{"VHDS has no sotw service"}},
		"no response to it": {func(t T, conn *grpc.ClientConn) { SotW(t, conn).ACK(nil) }, []string{"the response to answer is nil"}},
		"no ACK": {func(t T, conn *grpc.ClientConn) {
			c := SotW(t, conn, WithTimeout(time.Second))
			c.Subscribe(xds.Endpoint, "e")
			c.Subscribe(xds.Cluster, "*")
			c.ACK(c.Expect(xds.Endpoint, "e"))
			c.Expect(xds.Cluster, "a")
			c.Next(xds.Cluster)
		}, []string{"a response of CDS did not come within 1s\n(CDS 2 was not answered: the server waits for its ACK or NACK)"}},
		"no ACK, and any type": {func(t T, conn *grpc.ClientConn) {
			c := Delta(t, conn, WithTimeout(time.Second))
			c.Subscribe(xds.Cluster, "*")
			c.Next(nil)
			c.Next(nil)
		}, []string{"(CDS 1 was not answered"}},
		"no ACK of another type": {func(t T, conn *grpc.ClientConn) {
			c := Delta(t, conn, WithTimeout(time.Second))
			c.Subscribe(xds.Cluster, "*")
			c.Next(nil)
			c.Next(xds.Endpoint)
		}, []string{"a response of EDS did not come within 1s\n(the client has not subscribed to EDS)"}},
		"all was answered": {func(t T, conn *grpc.ClientConn) {
			c := Delta(t, conn, WithTimeout(time.Second))
			c.Subscribe(xds.Cluster, "*")
			c.NACK(c.Next(nil), "no")
			c.Next(xds.Cluster)
		}, []string{"a response of CDS did not come within 1s\nthe conversation"}},
		"an answer to the response of another client": {func(t T, conn *grpc.ClientConn) {
			c, other := Delta(t, conn), Delta(t, conn)
			c.Subscribe(xds.Cluster, "*")
			other.ACK(c.Expect(xds.Cluster, "a"))
		}, []string{`the response to answer belongs to another client: CDS "a"`}},
		"no connection": {func(t T, _ *grpc.ClientConn) { SotW(t, nil) }, []string{"the connection is nil"}},
		"no server":     {func(t T, _ *grpc.ClientConn) { Serve(t, nil) }, []string{"not made by server.New"}},
	} {
		within(t, name, func(t *testing.T) {
			st := store.New()
			update(t, st, func(tx *store.Tx) { tx.Set(cluster(t, "a"), endpoints(t, "e")) })
			conn := Serve(t, server.New(st, quiet))
			f := &failing{T: t}
			done := make(chan struct{})
			go func() { defer close(done); tc.f(f, conn) }()
			<-done
			for _, want := range tc.want {
				if !strings.Contains(f.why, want) {
					t.Errorf("got\n%s\nwant %s", f.why, want)
				}
			}
		})
	}
}

// A response that cannot be decoded ends the stream with an error.
func TestDecode(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, b := range []string{"\x0a\xff", "\x12\x02\x0a\xff", "\x12\x04\x12\x02\x0a\xff", "\xff", "\x09"} {
			if r, err := decode(v, []byte(b)); v == xds.Delta && err == nil {
				t.Errorf("%v %q is %v", v, b, r)
			}
		}
	}
	if _, err := (raw{}).Marshal("text"); err == nil {
		t.Error("the codec sends a value that is not encoded")
	}
	if err := (raw{}).Unmarshal(nil, new(string)); err == nil || errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
