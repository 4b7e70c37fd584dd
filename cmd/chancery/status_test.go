package main

import (
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// Status lists rejected clients: denied as a node, or in the handshake. A denial is one warning in the log,
// and one event however often it is repeated.
func TestStatusListsRejectedClients(t *testing.T) {
	t.Parallel()
	m := serveMutual(t, nil, "a.yaml", cluster("a"))
	admin := []string{"--admin", "http://" + adminOf(t, m.runningServer)}
	m.dial(m.target, credentials.NewTLS(m.config(m.ca.Issue("test", "test"))))
	for range 5 {
		m.as(" other").refused(codes.PermissionDenied, `" other"`)
	}
	m.logged(deniedLine)
	if m.said("client refused: its node may see nothing") {
		t.Error("two warnings of one denial")
	}
	plain := m.config(m.ca.Issue("test", "test"))
	plain.Certificates = nil
	m.dial(m.target, credentials.NewTLS(plain))
	if stream, err := clusterservice.NewClusterDiscoveryServiceClient(m.conn).StreamClusters(m.ctx); err == nil {
		_, _ = stream.Recv()
	}
	m.logged("TLS handshake failed")
	code, out := m.says(append([]string{"status"}, admin...)...)
	for _, part := range []string{"CLIENTS none connected", "TURNED AWAY LAST TIMES NODE FROM WHY", " 5 ", `DNS "test"`, "may not be node \" other\"", "handshake ", "no_certificate: "} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, out := m.says(append([]string{"get", "events", "--node", " other"}, admin...)...); strings.Count(out, " deny ") != 1 {
		t.Errorf("events: %s", out)
	}
}

// Status shows warnings about the configuration, and then exits with 1; -g counts the clients of a group.
func TestStatusShowsMissingReferences(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	route := "\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: r\nvirtual_hosts: [{name: v, domains: [\"*\"], routes: [{match: {prefix: /}, route: {cluster: serch}}]}]\n"
	d := serve(t, []string{"--admin-listen", "unix://" + socket}, "a.yaml", cluster("a"), "r.yaml", route, "edge/group.yaml", "match: {cluster: edge}\n", "edge/e.yaml", cluster("e"))
	admin := []string{"--admin", "unix://" + socket}
	s := d.clusters()
	s.gets("a")
	want := func(code int, line string, parts ...string) {
		t.Helper()
		got, out := d.says(append(strings.Fields(line), admin...)...)
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s: no %q in %s", line, part, out)
			}
		}
		if got != code {
			t.Errorf("%s: exit code %d, want %d", line, got, code)
		}
	}
	want(1, "status", "The configuration has 1 warning for missing resources:", `r.yaml:1:1: group default: RDS "r" refers to CDS "serch", which no file has`, "CLIENTS 1 connected")
	want(1, "status -o json", `"dangling": 1`, `"code": "XDS0201"`)
	want(1, "status -o json", `"items": []`, `"hidden": 1`)
	for _, format := range []string{"json", "yaml"} {
		want(1, "status --all -o "+format, "items", "streams", "wildcard")
	}
	want(1, "status -g edge", "CLIENTS none connected, in group edge")
	want(1, "status -g edge -o json", `"connected": 0`)
	want(4, "status -g nobody", "no group has the name")
	want(0, "get groups", "edge/group.yaml:1:")
	write(t, d.dir, "s.yaml", cluster("serch"))
	s.gets("a", "serch")
	want(0, "status", "CLIENTS 1 connected: 1 synced")
}

// A type that waits for another shows the type and the reason.
func TestStatusShowsDependencyOfWaitingType(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	listener := "\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\nname: l\naddress: {socket_address: {address: 0.0.0.0, port_value: 80}}\nfilter_chains: [{filters: [{name: t, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: a}}]}]\n"
	d := serve(t, []string{"--admin-listen", "unix://" + socket}, "a.yaml", cluster("a"), "l.yaml", listener)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"type.googleapis.com/envoy.config.cluster.v3.Cluster", "type.googleapis.com/envoy.config.listener.v3.Listener"} {
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "waits"}, TypeUrl: url}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	d.eventually("status waits --admin unix://"+socket, "LDS WAITING", "LDS waits until the client has accepted CDS a")
	d.eventually("status --admin unix://"+socket, "waits default SENT", "WAITING")
}
