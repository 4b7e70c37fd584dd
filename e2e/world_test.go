package e2e

import (
	"maps"
	"slices"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/e2e/harness"
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

// manage changes the HTTP connection manager of a listener.
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
		out = append(out, harness.Document(w[k])...)
	}
	return out
}

// Helpers that other packages also use.
var (
	edsCluster    = harness.EDSCluster
	assignment    = harness.Assignment
	routes        = harness.Routes
	namedListener = harness.HTTPListener
	manager       = harness.Manager
	ads           = harness.ADS
	pack          = harness.Pack
)

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

// brokenRoutes is refused by Envoy, and all that comes in the same response: a
// virtual host must have a name.
func brokenRoutes(name, to string) *route.RouteConfiguration {
	r := routes(name, "broken", to)
	r.VirtualHosts[0].Name = ""
	return r
}

// httpListener returns a listener with its routes from RDS.
func httpListener(name string, port int, routes string) *listener.Listener {
	return namedListener(name, port, routes, "")
}

// brokenListener is refused by Envoy: two of its filter chains match the same.
func brokenListener(name string, port int, routes string) *listener.Listener {
	l := httpListener(name, port, routes)
	l.FilterChains = append(l.FilterChains, l.FilterChains[0])
	return l
}

// apiListener returns the listener that a gRPC client requests for its target.
func apiListener(name, routes string) *listener.Listener {
	return &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: pack(manager(name, routes))}}
}
