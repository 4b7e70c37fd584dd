// Command after is the program of ../before with Chancery: docs/from-go-control-plane.md.
package main

import (
	"context"
	"log"
	"net"
	"os"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// nacks observes streams and logs NACKs.
type nacks struct{}

func (nacks) Opened(*server.Stream) {}

func (nacks) Event(s *server.Stream, e protocol.Event) {
	if e.Kind == protocol.Nacked { // SotW and delta alike
		log.Printf("%s refuses %v %v: %s", s.Node.ID, e.Type, e.Names, e.Error.Message)
	}
}

func (nacks) Closed(*server.Stream, error) {}

func main() {
	st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.Cluster}, nil }))
	cluster, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{Name: "backend", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}})
	if err == nil {
		_, err = st.Update(func(tx *store.Tx) error {
			edge := tx.Group("edge")
			edge.Clear() // the group gets only the resources below
			edge.Set(cluster)
			return nil
		})
	}
	if err != nil {
		log.Fatal(err)
	}

	s := server.New(st, server.WithObserver(nacks{}))
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(nil)))...)
	if err := s.Register(g); err != nil { // all services
		log.Fatal(err)
	}

	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(g.Serve(l))
}
