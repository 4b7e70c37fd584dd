package server_test

import (
	"context"
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Requested is a source that reports the names that clients subscribe to.
type Requested struct {
	*store.Store
	report func(node string, t *xds.Type, names []string)
}

// Watch wraps the watch of the store.
func (r Requested) Watch(ctx context.Context, node *xds.Node) (*RequestedWatch, error) {
	w, err := r.Store.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	return &RequestedWatch{w, node.ID, r.report}, nil
}

// A RequestedWatch keeps the other methods of the watch of the store.
type RequestedWatch struct {
	*store.Watch
	node   string
	report func(node string, t *xds.Type, names []string)
}

// Interested is called by the goroutine of the stream, with the changes of a subscription: report must not wait.
func (w *RequestedWatch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	w.Watch.Interested(t, wildcard, added, removed)
	if len(added) > 0 {
		w.report(w.node, t, added)
	}
}

// A source that wraps a store learns which names clients request, also names without a resource.
func ExampleSource() {
	requested := make(chan string, 16)
	srv := server.New(Requested{store.New(store.WithEmptyGroups()), func(node string, t *xds.Type, names []string) {
		select {
		case requested <- fmt.Sprintf("%s requests %s %q", node, t, names):
		default: // the channel is full
		}
	}})
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)))...)
	if err := srv.Register(g); err != nil {
		panic(err)
	}
	l := bufconn.Listen(1 << 20)
	go g.Serve(l)
	defer g.Stop()

	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(context.Background())
	if err != nil {
		panic(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "grpc-1"}, TypeUrl: xds.Listener.URL, ResourceNames: []string{"shop"}}); err != nil {
		panic(err)
	}
	fmt.Println(<-requested)
	// Output: grpc-1 requests LDS ["shop"]
}
