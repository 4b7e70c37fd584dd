package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/metrics"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Count a server and its store in a registry of your own. Without a registry the default one is used.
func Example() {
	st := store.New()
	registry := prometheus.NewRegistry()
	m := metrics.New(metrics.Options{Registry: registry, Snapshot: st.Snapshot})
	srv := server.New(st, server.WithObserver(m))
	m.Server(srv.Stats)

	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)))...)
	if err := srv.Register(g); err != nil { // then serve g as usual
		fmt.Println(err)
		return
	}
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Cluster, "backend", []byte("an encoded Cluster")))
		return nil
	}); err != nil {
		fmt.Println(err)
		return
	}

	// The page that Prometheus reads: http.Handle("/metrics", handler).
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	page := httptest.NewRecorder()
	handler.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "xds_server_resources{") || strings.HasPrefix(line, "xds_server_streams_open ") {
			fmt.Print(line)
		}
	}
	// Output:
	// xds_server_resources{group="default",type="cds"} 1
	// xds_server_streams_open 0
}
