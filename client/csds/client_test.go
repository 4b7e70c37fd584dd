package csds_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/csds"
	"github.com/chancery-xds/chancery/client/metrics"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// CSDS of a real client with a real server: one resource in use, one refused with an older one in use,
// one that does not exist. The metrics agree.
func TestRealClient_CLI1_CLI2_CLI3(t *testing.T) {
	st := store.New()
	set := func(name, alt string) {
		t.Helper()
		if _, err := st.Update(func(tx *store.Tx) error {
			tx.Set(resource(t, xds.Cluster, &clusterv3.Cluster{Name: name, AltStatName: alt}))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	set("a", "good")
	set("b", "good")
	l, g := bufconn.Listen(1<<20), grpc.NewServer(append(server.GRPCOptions(), grpc.WaitForHandlers(true))...)
	if err := server.New(st).Register(g); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	transport, err := client.GRPC("passthrough:///server", client.GRPCOptions{Credentials: insecure.NewCredentials(), Delta: true,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })}})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	c, err := client.New(client.Config{
		Node: &xds.Node{ID: "one"}, Servers: []client.Server{{Transport: transport}}, Metrics: metrics.New(metrics.Options{Registry: registry}),
		Check: func(r *xds.Resource) error {
			if strings.Contains(string(r.Body), "bad") {
				return errors.New("too bad")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var seen []string
	for e, err := range c.Watch(ctx, xds.Cluster, "a", "b", "c") {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, e.Name+" "+e.Kind.String()); len(seen) == 3 {
			set("b", "bad")
		}
		if e.Kind != client.Refused {
			continue
		}
		got := ask(t, csds.Clients(c))
		var lines []string
		for _, r := range got.Config[0].GenericXdsConfigs {
			line := r.Name + " " + r.ClientStatus.String()
			if r.XdsConfig != nil {
				line += " in use"
			}
			if r.ErrorState != nil && r.ErrorState.VersionInfo != r.VersionInfo && r.ErrorState.LastUpdateAttempt != nil {
				line += ": " + r.ErrorState.Details
			}
			lines = append(lines, line)
		}
		if len(lines) != 3 || lines[0] != "a ACKED in use" || !strings.HasPrefix(lines[1], "b NACKED in use: ") || !strings.Contains(lines[1], "too bad") || lines[2] != "c DOES_NOT_EXIST" {
			t.Errorf("%q", lines)
		}
		break
	}
	slices.Sort(seen)
	if want := []string{"a updated", "b refused", "b updated", "c absent"}; !slices.Equal(seen, want) {
		t.Errorf("%q", seen)
	}
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, want := range []string{
		"grpc_xds_client_connected{grpc_xds_server=", "grpc_xds_client_resource_updates_invalid_total{grpc_xds_resource_type=\"envoy.config.cluster.v3.Cluster\"",
		`grpc_xds_client_resources{grpc_xds_authority="#old",grpc_xds_cache_state="nacked_but_cached",grpc_xds_resource_type="envoy.config.cluster.v3.Cluster"}`,
	} {
		if !strings.Contains(page.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, page.Body)
		}
	}
}
