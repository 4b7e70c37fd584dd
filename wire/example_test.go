package wire_test

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// NewResource takes the name from the message. A message of another type than the given one is an error.
func ExampleNewResource() {
	message := &clusterv3.Cluster{Name: "backend"}
	cluster, err := wire.NewResource(xds.Cluster, "", message)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cluster.Type, cluster.Name)

	_, err = wire.NewResource(xds.Endpoint, "", message)
	fmt.Println(err)
	// Output:
	// CDS backend
	// EDS resource "backend": the message is a type.googleapis.com/envoy.config.cluster.v3.Cluster, not a type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
}

// A program that gets messages of any type makes resources of them without naming their types.
func ExampleFromMessage() {
	messages := []proto.Message{
		&clusterv3.Cluster{Name: "backend"},
		&endpointv3.ClusterLoadAssignment{ClusterName: "backend"},
	}
	for _, m := range messages {
		r, err := wire.FromMessage(m)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Type, r.Name, r.Refs)
	}
	// Output:
	// CDS backend []
	// EDS backend []
}

func ExampleTypeOf() {
	fmt.Println(wire.TypeOf(&clusterv3.Cluster{}))
	// Output: CDS
}
