package server_test

import (
	"context"
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Refusals is an observer that reports which node refused a response, and why. The goroutines of
// the streams call its methods, so these only put the refusal into a channel.
type Refusals chan string

func (Refusals) Opened(*server.Stream)        {}
func (Refusals) Closed(*server.Stream, error) {}

func (r Refusals) Event(s *server.Stream, e protocol.Event) {
	if e.Kind == protocol.Nacked {
		select {
		case r <- fmt.Sprintf("%s refuses %s %q: %s", s.Node.ID, e.Type, e.Names, e.Error.Message):
		default: // the channel is full; metrics.Metrics counts all refusals
		}
	}
}

// An observer gets each NACK with its node, its resources and the text of the client.
func ExampleWithObserver() {
	st := store.New()
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Cluster, "backend", []byte("an encoded Cluster")))
		return nil
	}); err != nil {
		panic(err)
	}
	refusals := make(Refusals, 16)
	srv := server.New(st, server.WithObserver(refusals))
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)))...)
	if err := srv.Register(g); err != nil {
		panic(err)
	}
	l := bufconn.Listen(1 << 20)
	go g.Serve(l)
	defer g.Stop()

	go refuse(l)
	fmt.Println(<-refusals)
	// Output:
	// edge-1 refuses CDS ["backend"]: backend: connect_timeout is negative
}

// refuse is a client that refuses its clusters.
func refuse(l *bufconn.Listener) {
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
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "edge-1"}, TypeUrl: xds.Cluster.URL}); err != nil {
		panic(err)
	}
	got, err := stream.Recv()
	if err != nil {
		panic(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: xds.Cluster.URL, ResponseNonce: got.Nonce, ErrorDetail: &status.Status{Code: 3, Message: "backend: connect_timeout is negative"},
	}); err != nil {
		panic(err)
	}
	_, _ = stream.Recv() // until the server ends
}
