package csds_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/csds"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A still is a Client with fixed statuses.
type still struct {
	node *xds.Node
	dump []client.Status
}

func (s still) Node() *xds.Node       { return s.node }
func (s still) Dump() []client.Status { return s.dump }

var _ csds.Client = (*client.Client)(nil)

func resource(t *testing.T, typ *xds.Type, m proto.Message) *xds.Resource {
	t.Helper()
	r, err := wire.NewResource(typ, "", m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask serves clients over gRPC and returns the response.
func ask(t *testing.T, clients func() []csds.ScopedClient) *statusv3.ClientStatusResponse {
	t.Helper()
	l, g := bufconn.Listen(1<<20), grpc.NewServer()
	csds.Register(g, clients)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	got, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Each state has its CSDS name. A refused resource has the version in use, and the refused version with
// its error. Several clients have their scopes.
func TestStatus_CLI2_CLI3(t *testing.T) {
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	good := resource(t, xds.Cluster, &clusterv3.Cluster{Name: "good"})
	secret := resource(t, xds.Secret, &tlsv3.Secret{Name: "s", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "canary"}}}}})
	one := still{&xds.Node{ID: "edge-1", Cluster: "edges"}, []client.Status{
		{Type: xds.Cluster, Name: "asked", State: client.Requested},
		{Type: xds.Cluster, Name: "good", State: client.Acked, Resource: good, Version: "7", Updated: at},
		{Type: xds.Cluster, Name: "held", State: client.Nacked, Resource: good, Version: "7", Updated: at, Err: errors.New("no\xff such"), ErrVersion: "8", ErrAt: at.Add(time.Hour)},
		{Type: xds.Cluster, Name: "late", State: client.TimedOut},
		{Type: xds.Cluster, Name: "none", State: client.DoesNotExist},
		{Type: xds.Cluster, Name: "sick", State: client.ReceivedError, Err: errors.New("busy")},
		{Type: xds.Secret, Name: "s", State: client.Acked, Resource: secret},
	}}
	got := ask(t, func() []csds.ScopedClient { return []csds.ScopedClient{{one, "xds:///a"}, {still{}, "xds:///b"}} })
	if len(got.Config) != 2 || got.Config[0].ClientScope != "xds:///a" || got.Config[1].ClientScope != "xds:///b" || got.Config[0].Node.Id != "edge-1" || len(got.Config[1].GenericXdsConfigs) != 0 {
		t.Fatal(got)
	}
	all := got.Config[0].GenericXdsConfigs
	want := []adminv3.ClientResourceStatus{adminv3.ClientResourceStatus_REQUESTED, adminv3.ClientResourceStatus_ACKED, adminv3.ClientResourceStatus_NACKED,
		adminv3.ClientResourceStatus_TIMEOUT, adminv3.ClientResourceStatus_DOES_NOT_EXIST, adminv3.ClientResourceStatus_RECEIVED_ERROR, adminv3.ClientResourceStatus_ACKED}
	for i, r := range all {
		// config_status is "from a management server view"
		if r.Name != one.dump[i].Name || r.TypeUrl != one.dump[i].Type.URL || r.ClientStatus != want[i] || r.ConfigStatus != statusv3.ConfigStatus_UNKNOWN {
			t.Errorf("%v", r)
		}
	}
	if r := all[1]; r.VersionInfo != "7" || !r.LastUpdated.AsTime().Equal(at) || !r.XdsConfig.MessageIs(&clusterv3.Cluster{}) || r.ErrorState != nil {
		t.Errorf("%v", r)
	}
	if r := all[2]; r.VersionInfo != "7" || r.XdsConfig == nil || r.ErrorState.VersionInfo != "8" || r.ErrorState.Details != "no\uFFFD such" || !r.ErrorState.LastUpdateAttempt.AsTime().Equal(at.Add(time.Hour)) {
		t.Errorf("%v", r)
	}
	if r := all[5]; r.ErrorState.Details != "busy" || r.VersionInfo != "" || r.XdsConfig != nil || r.LastUpdated != nil {
		t.Errorf("%v", r)
	}
	if r := all[6]; r.XdsConfig == nil || strings.Contains(string(r.XdsConfig.Value), "canary") {
		t.Errorf("%v", r)
	}
}

// A client without a node, and a closed client.
func TestClientsWithoutNodeOrResources(t *testing.T) {
	if got := ask(t, csds.Clients(still{}, still{})); len(got.Config) != 2 || got.Config[0].Node.GetId() != "" {
		t.Error(got)
	}
}

// `grpcdebug ADDR xds status` calls FetchClientStatus with an empty request, without TLS by default.
// It expects at least one ClientConfig, and prints the client_scope, and from its
// generic_xds_configs name, client_status, version_info, type_url and last_updated. With --scope it
// prints only the ClientConfigs of that scope.
func TestGrpcdebug(t *testing.T) {
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	one := still{&xds.Node{ID: "edge-1"}, []client.Status{
		{Type: xds.Cluster, Name: "asked", State: client.Requested},
		{Type: xds.Endpoint, Name: "good", State: client.Acked, Resource: xds.NewResource(xds.Endpoint, "good", nil), Version: "7", Updated: at},
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, ended := grpc.NewServer(), make(chan struct{})
	csds.Register(g, func() []csds.ScopedClient { return []csds.ScopedClient{{one, "xds:///a"}, {still{}, "xds:///b"}} })
	go func() {
		defer close(ended)
		_ = g.Serve(l) // until Stop
	}()
	t.Cleanup(func() { g.Stop(); <-ended })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	got, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, c := range got.Config {
		rows = append(rows, c.ClientScope)
		for _, r := range c.GenericXdsConfigs {
			rows = append(rows, strings.Join([]string{r.Name, r.ClientStatus.String(), r.VersionInfo, r.TypeUrl, r.LastUpdated.AsTime().Format(time.RFC3339)}, " "))
		}
		if len(c.XdsConfig) > 0 { // grpcdebug prints this field if generic_xds_configs is empty
			t.Error(c)
		}
	}
	want := "xds:///a\n" +
		"asked REQUESTED  type.googleapis.com/envoy.config.cluster.v3.Cluster 1970-01-01T00:00:00Z\n" +
		"good ACKED 7 type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment 2031-05-06T07:08:09Z\n" +
		"xds:///b"
	if strings.Join(rows, "\n") != want {
		t.Errorf("%q", rows)
	}
}
