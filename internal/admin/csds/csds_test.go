package csds

import (
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key0 = "-----BEGIN PRIVATE KEY----- canary"

var (
	began = time.Date(2031, 5, 6, 7, 8, 9, 10, time.UTC)

	cluster  = &clusterv3.Cluster{Name: "backend"}
	broken   = &clusterv3.Cluster{Name: "broken"}
	eds      = &endpointv3.ClusterLoadAssignment{ClusterName: "backend"}
	listener = &listenerv3.Listener{Name: "http"}
	late     = &listenerv3.Listener{Name: "late"}
	route    = &routev3.RouteConfiguration{Name: "main"}
	scope    = &routev3.ScopedRouteConfiguration{Name: "scope", RouteConfigurationName: "main"}
	filter   = &corev3.TypedExtensionConfig{Name: "filter"}
	cert     = &tlsv3.Secret{Name: "cert", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline("chain"), PrivateKey: inline(key0)}}}
	shown = &tlsv3.Secret{Name: "cert", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline("chain"), PrivateKey: inline("[redacted]")}}}
)

func inline(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

func resource(t testing.TB, typ *xds.Type, m proto.Message) *xds.Resource {
	t.Helper()
	r, err := wire.NewResource(typ, "", m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func metadata(t testing.TB, all map[string]any) []byte {
	t.Helper()
	s, err := structpb.NewStruct(all)
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// edge is a client with one resource in each state.
func edge(t testing.TB, id string) Client {
	of := func(typ *xds.Type, state State, has bool, m proto.Message) Resource {
		r := resource(t, typ, m)
		return Resource{Name: r.Name, State: state, Has: has, Body: r}
	}
	refused := of(xds.Cluster, Refused, false, broken)
	refused.Failure = &Failure{At: began, Version: refused.Body.Version, Text: "no such thing"}
	sent := of(xds.Listener, Sent, false, late)
	sent.Updated = began
	all := []TypeConfig{
		{xds.Cluster, "c1", []Resource{of(xds.Cluster, Synced, true, cluster), refused}},
		{xds.Endpoint, "e1", []Resource{of(xds.Endpoint, Synced, true, eds), {Name: "nowhere", State: Absent}}},
		{xds.Secret, "s1", []Resource{of(xds.Secret, Synced, true, cert), {Name: "none", State: Absent}}},
		{xds.ExtensionConfig, "x1", []Resource{of(xds.ExtensionConfig, NotSent, true, filter)}},
		{xds.Listener, "l1", []Resource{of(xds.Listener, Synced, true, listener), sent, {Name: "old", State: Leaving, Has: true, Version: "7"}}},
		{xds.ScopedRoute, "o1", []Resource{of(xds.ScopedRoute, Unknown, false, scope)}},
		{xds.Route, "r1", []Resource{of(xds.Route, NotSent, false, route)}},
	}
	return Client{
		Node: &xds.Node{
			ID: id, Cluster: "edges", UserAgentName: "envoy", UserAgentVersion: "1.40.0", Region: "r", Zone: "z", ClientFeatures: []string{"f"},
			Metadata: metadata(t, map[string]any{"team": "a"}),
		},
		Config: func(context.Context) ([]TypeConfig, error) { return all, nil },
	}
}

// service returns a service with fixed clients.
func service(all ...Client) *Service {
	return New(Options{Clients: func() []Client { return all }})
}
