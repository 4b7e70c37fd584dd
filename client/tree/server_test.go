package tree

import (
	"context"
	"net"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A real server with a real client, in each variant. Each tree is complete, and a missing resource is a
// member with an error.
func TestServer_CLI9(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(map[bool]string{false: "sotw", true: "delta"}[delta], func(t *testing.T) { overServer(t, delta) })
	}
}

func overServer(t *testing.T, delta bool) {
	st := store.New()
	set := func(all ...proto.Message) {
		t.Helper()
		if _, err := st.Update(func(tx *store.Tx) error {
			for _, m := range all {
				r, err := wire.NewResource(typeOf(m), "", m)
				if err != nil {
					return err
				}
				tx.Set(r)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range messages(t) {
		set(list...)
	}
	s := server.New(st)
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.WaitForHandlers(true))...)
	if err := s.Register(g); err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	defer func() { g.Stop(); <-done }()

	transport, err := client.GRPC("passthrough:///server", client.GRPCOptions{Credentials: insecure.NewCredentials(), Delta: delta,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Node: &xds.Node{ID: "one"}, Servers: []client.Server{{Transport: transport}}, Timeout: 3 * time.Second}) // a busy machine may be slow
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	step := 0
	for state, err := range Watch(ctx, c, "l", Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Waiting) > 0 {
			continue
		}
		switch tree := state.Tree; step {
		case 0:
			if len(tree.Members) != 7 || !tree.Complete() || tree.Member(xds.Endpoint, "of-b") == nil {
				t.Fatal(describe(&state))
			}
			route := proto.CloneOf(messages(t)[xds.Route][0].(*routev3.RouteConfiguration))
			route.VirtualHosts[0].Routes[0].Action = &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "gone"}}}
			set(route)
			step++
		case 1:
			if tree.Member(xds.Cluster, "gone") == nil { // endpoints of the old tree may change once more
				continue
			}
			if m := tree.Member(xds.Cluster, "gone"); len(tree.Members) != 3 || m.Err != ErrAbsent || m.Resource != nil { //nolint:errorlint // it is this one
				t.Fatal(describe(&state))
			}
			return
		}
	}
}

func typeOf(m proto.Message) *xds.Type {
	switch m.(type) {
	case *listenerv3.Listener:
		return xds.Listener
	case *routev3.RouteConfiguration:
		return xds.Route
	case *clusterv3.Cluster:
		return xds.Cluster
	case *endpointv3.ClusterLoadAssignment:
		return xds.Endpoint
	}
	panic("no such type")
}
