package refs

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
	"github.com/chancery-xds/chancery/xds"
)

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Generated messages and those of descriptors have the same references, alone or in an Any.
func TestOf(t *testing.T) {
	route := &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Routes: []*routev3.Route{{
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "xdstp://a/t/x?b=2&a=1"}}},
	}}}}}
	want := []xds.Ref{{Type: xds.Cluster, Name: "xdstp://a/t/x?a=1&b=2"}} // as the store has it
	for name, got := range map[string][]xds.Ref{
		"generated":   Of(route),
		"packed":      Of(packed(t, route)),
		"descriptors": With(envoy.Envoy(), apitest.Dynamic(t, route)),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := Of(&endpointv3.ClusterLoadAssignment{ClusterName: "c"}); got == nil || len(got) > 0 {
		t.Errorf("endpoints refer to %#v: want an empty list, which says that it is known", got)
	}
}

// "the cluster … must be statically defined": the cluster of a config source is never a resource. That of an
// authorization service is.
func TestClusterOfConfigSourceIsNoReference(t *testing.T) {
	grpc := func(name string) *corev3.GrpcService {
		return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: name}}}
	}
	eds := &clusterv3.Cluster{
		Name:                 "c",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
				ClusterNames: []string{"rest"}, GrpcServices: []*corev3.GrpcService{grpc("xds")},
			}},
		}},
	}
	if got := Of(eds); slices.ContainsFunc(got, func(r xds.Ref) bool { return r.Type.Is(xds.Cluster) }) {
		t.Errorf("%v: want no cluster", got)
	}
	if got := Of(grpc("authz")); !slices.Contains(got, xds.Ref{Type: xds.Cluster, Name: "authz"}) {
		t.Errorf("%v: want the cluster authz", got)
	}
}

// "So a missing import delays an update but never breaks it."
func TestUnlinkedExtensionRefersToAll(t *testing.T) {
	got := Of(&corev3.TypedExtensionConfig{Name: "e", TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/not.linked"}})
	if !slices.Contains(got, xds.Ref{Type: xds.Cluster, Name: xds.Wildcard}) {
		t.Errorf("%v: want all clusters", got)
	}
}

// Of accepts a nil message: wire.NewResource returns the error.
func TestNilMessageHasNoReferences(t *testing.T) {
	for name, got := range map[string][]xds.Ref{
		"message": Of(nil), "pointer": Of((*routev3.RouteConfiguration)(nil)), "message and types": With(nil, nil),
	} {
		if got == nil || len(got) > 0 {
			t.Errorf("a nil %s refers to %#v", name, got)
		}
	}
	linked := packed(t, &routev3.Route{Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c"}}}})
	if got, want := With(nil, linked), Of(linked); !slices.Equal(got, want) || len(got) != 1 {
		t.Errorf("nil types find %v, want %v", got, want)
	}
}
