package wire_test

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A message becomes a resource of its type, under the name that is in it. A message of another
// type is an error.
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
