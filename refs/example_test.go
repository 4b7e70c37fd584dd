package refs_test

import (
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/chancery-xds/chancery/refs"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// Clients get this route after they have both clusters. They keep "old" until they have acknowledged a
// route without it.
func Example() {
	message := &routev3.RouteConfiguration{Name: "shop", VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{
				WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "old"}, {Name: "new"}}},
			}}},
		}},
	}}}
	route, err := wire.NewResource(xds.Route, "", message)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("known before:", route.Refs != nil)

	route.Refs = refs.Of(message)
	for _, r := range route.Refs {
		fmt.Println("refers to", r.Type, r.Name)
	}
	// Output:
	// known before: false
	// refers to CDS new
	// refers to CDS old
}
