// Command before serves a cluster with go-control-plane: docs/from-go-control-plane.md.
package main

import (
	"context"
	"log"
	"net"
	"os"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// byCluster gives all nodes of a cluster the same snapshot.
type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }

func main() {
	ctx := context.Background()
	snapshots := cache.NewSnapshotCache(true, byCluster{}, nil)
	cluster := &clusterv3.Cluster{Name: "backend", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}}
	snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{
		resource.ClusterType: {cluster},
	})
	if err == nil {
		err = snapshots.SetSnapshot(ctx, "edge", snapshot)
	}
	if err != nil {
		log.Fatal(err)
	}

	g := grpc.NewServer()
	s := server.NewServer(ctx, snapshots, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			if r.GetErrorDetail() != nil {
				log.Printf("%s refuses %s: %s", r.GetNode().GetId(), r.GetTypeUrl(), r.GetErrorDetail().GetMessage())
			}
			return nil
		},
		// and StreamDeltaRequestFunc, the same for delta
	})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	// and a Register function for each other service

	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(g.Serve(l))
}
