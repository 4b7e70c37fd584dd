package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/metrics"
)

// The metrics of gRFC A78, by their names.
func TestMetrics_CLI1_CLI10(t *testing.T) {
	r := prometheus.NewRegistry()
	var m client.Metrics = metrics.New(metrics.Options{Registry: r, Target: "edge"})
	const cds = "envoy.config.cluster.v3.Cluster"
	m.Connected("xds://one", false)
	m.ServerFailure("xds://one")
	m.Connected("xds://two", true)
	m.ResourceUpdates("xds://two", cds, 3, 0)
	m.ResourceUpdates("xds://two", cds, 1, 2)
	m.Resources("#old", "acked", cds, 4)
	m.Resources("#old", "acked", cds, 2)
	m.Resources("a.example", "nacked_but_cached", cds, 1)
	want := `
# HELP grpc_xds_client_connected 1 while the connection to a server works, 0 after a failure until the next response.
# TYPE grpc_xds_client_connected gauge
grpc_xds_client_connected{grpc_target="edge",grpc_xds_server="xds://one"} 0
grpc_xds_client_connected{grpc_target="edge",grpc_xds_server="xds://two"} 1
# HELP grpc_xds_client_resource_updates_invalid_total Resources received that cannot be used.
# TYPE grpc_xds_client_resource_updates_invalid_total counter
grpc_xds_client_resource_updates_invalid_total{grpc_target="edge",grpc_xds_resource_type="CDS",grpc_xds_server="xds://two"} 2
# HELP grpc_xds_client_resource_updates_valid_total Resources received that are valid, also those that have not changed.
# TYPE grpc_xds_client_resource_updates_valid_total counter
grpc_xds_client_resource_updates_valid_total{grpc_target="edge",grpc_xds_resource_type="CDS",grpc_xds_server="xds://two"} 4
# HELP grpc_xds_client_resources Resources by cache state.
# TYPE grpc_xds_client_resources gauge
grpc_xds_client_resources{grpc_target="edge",grpc_xds_authority="#old",grpc_xds_cache_state="acked",grpc_xds_resource_type="CDS"} 2
grpc_xds_client_resources{grpc_target="edge",grpc_xds_authority="a.example",grpc_xds_cache_state="nacked_but_cached",grpc_xds_resource_type="CDS"} 1
# HELP grpc_xds_client_server_failure_total Times that a server could not be reached, or its stream ended before a response.
# TYPE grpc_xds_client_server_failure_total counter
grpc_xds_client_server_failure_total{grpc_target="edge",grpc_xds_server="xds://one"} 1
grpc_xds_client_server_failure_total{grpc_target="edge",grpc_xds_server="xds://two"} 0
`
	page := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if got, want := page.Body.String(), strings.ReplaceAll(want, "CDS", cds)[1:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// Clients with one registry need different targets. The panic explains it.
func TestTwoClientsNeedTargets(t *testing.T) {
	r := prometheus.NewRegistry()
	metrics.New(metrics.Options{Registry: r, Target: "one"})
	metrics.New(metrics.Options{Registry: r, Target: "two"})
	defer func() {
		if e, ok := recover().(error); !ok || !strings.Contains(e.Error(), "set a different Options.Target") {
			t.Error(e)
		}
	}()
	metrics.New(metrics.Options{Registry: r, Target: "two"})
}
