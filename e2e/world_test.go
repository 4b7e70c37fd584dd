package e2e

import (
	"maps"
	"slices"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A world is a complete configuration: resources by type and name.
type world map[string]proto.Message

func newWorld(resources ...proto.Message) world {
	w := world{}
	w.set(resources...)
	return w
}

func (w world) set(resources ...proto.Message) {
	for _, m := range resources {
		w[key(m)] = m
	}
}

// drop takes out the resources with the type and name of those given.
func (w world) drop(resources ...proto.Message) {
	for _, m := range resources {
		delete(w, key(m))
	}
}

func key(m proto.Message) string {
	if w, ok := m.(*discovery.Resource); ok {
		return "Resource/" + w.GetName()
	}
	r := m.ProtoReflect()
	return string(r.Descriptor().Name()) + "/" + r.Get(r.Descriptor().Fields().ByNumber(1)).String()
}

// manage changes the connection manager of a listener.
func (w world) manage(name string, change func(*hcm.HttpConnectionManager)) {
	l := proto.CloneOf(w["Listener/"+name].(*listener.Listener))
	f := l.FilterChains[0].Filters[0]
	var m hcm.HttpConnectionManager
	if err := f.GetTypedConfig().UnmarshalTo(&m); err != nil {
		panic(err)
	}
	change(&m)
	f.ConfigType = &listener.Filter_TypedConfig{TypedConfig: pack(&m)}
	w.set(l)
}

// documents is the world as the daemon reads it, or its resources of one type:
// one document per resource, in JSON, which is YAML.
func (w world) documents(typ string) []byte {
	var out []byte
	for _, k := range slices.Sorted(maps.Keys(w)) {
		if typ != "" && !strings.HasPrefix(k, typ+"/") {
			continue
		}
		b, err := protojson.Marshal(pack(w[k]))
		if err != nil {
			panic(err)
		}
		out = append(append(out, "---\n"...), append(b, '\n')...)
	}
	return out
}

// edsCluster is a cluster whose endpoints come from the assignment of the same
// name. Two with different timeouts differ in place.
func edsCluster(name string, timeout time.Duration) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(timeout),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
}

// checkedCluster is an edsCluster that Envoy does not use before its endpoints
// have answered at /health.
func checkedCluster(name string) *cluster.Cluster {
	c := edsCluster(name, time.Second)
	c.HealthChecks = []*core.HealthCheck{{
		Timeout:            durationpb.New(10 * time.Second),
		Interval:           durationpb.New(10 * time.Second),
		UnhealthyThreshold: wrapperspb.UInt32(1),
		HealthyThreshold:   wrapperspb.UInt32(1),
		HealthChecker:      &core.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &core.HealthCheck_HttpHealthCheck{Path: "/health"}},
	}}
	return c
}

// brokenCluster is refused by Envoy: "cannot create an EDS cluster without an
// EDS config".
func brokenCluster(name string) *cluster.Cluster {
	c := edsCluster(name, time.Second)
	c.EdsClusterConfig = nil
	return c
}

// assignment has one endpoint on the loopback for each port.
func assignment(name string, ports ...int) *endpoint.ClusterLoadAssignment {
	l := &endpoint.LocalityLbEndpoints{
		Locality:            &core.Locality{Region: "here"}, // gRPC wants one
		LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	for _, p := range ports {
		l.LbEndpoints = append(l.LbEndpoints, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
			Endpoint: &endpoint.Endpoint{Address: loopback(p)},
		}})
	}
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{l}}
}

// routes sends every request to the cluster, and marks the answer with the
// generation, so that traffic tells which state is in force.
func routes(name, generation, to string) *route.RouteConfiguration {
	return &route.RouteConfiguration{
		Name: name,
		VirtualHosts: []*route.VirtualHost{{
			Name:    "all",
			Domains: []string{"*"},
			Routes: []*route.Route{{
				Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
				Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: to}}},
			}},
		}},
		ResponseHeadersToAdd: []*core.HeaderValueOption{{Header: &core.HeaderValue{Key: "x-generation", Value: generation}}},
	}
}

// brokenRoutes is refused by Envoy, and all that comes in the same response: a
// virtual host must have a name.
func brokenRoutes(name, to string) *route.RouteConfiguration {
	r := routes(name, "broken", to)
	r.VirtualHosts[0].Name = ""
	return r
}

// httpListener takes its routes from RDS.
func httpListener(name string, port int, routes string) *listener.Listener {
	return namedListener(name, port, routes, "")
}

// namedListener is an httpListener that answers under the name of server.
func namedListener(name string, port int, routes, server string) *listener.Listener {
	m := manager(name, routes)
	m.ServerName = server
	return &listener.Listener{
		Name:    name,
		Address: loopback(port),
		FilterChains: []*listener.FilterChain{{
			Filters: []*listener.Filter{{
				Name:       "envoy.filters.network.http_connection_manager",
				ConfigType: &listener.Filter_TypedConfig{TypedConfig: pack(m)},
			}},
		}},
	}
}

// brokenListener is refused by Envoy: two of its filter chains match the same.
func brokenListener(name string, port int, routes string) *listener.Listener {
	l := httpListener(name, port, routes)
	l.FilterChains = append(l.FilterChains, l.FilterChains[0])
	return l
}

// apiListener is what a gRPC client asks for by the name it dials.
func apiListener(name, routes string) *listener.Listener {
	return &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: pack(manager(name, routes))}}
}

func manager(name, routes string) *hcm.HttpConnectionManager {
	return &hcm.HttpConnectionManager{
		StatPrefix:     name,
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: routes, ConfigSource: ads()}},
		HttpFilters: []*hcm.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&router.Router{})},
		}},
	}
}

func ads() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

func loopback(port int) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       "127.0.0.1",
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}
