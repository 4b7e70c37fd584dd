package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/rest"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A client with a ConfigSource of a path, or of type REST, watches resources and gets updates.
func TestSources_CLI1_FILE1_REST1(t *testing.T) {
	st := store.New(store.WithEmptyGroups())
	s := server.New(st)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web, done := &http.Server{Handler: rest.New(s, rest.WithResolver(envoy.Envoy()))}, make(chan struct{})
	go func() { defer close(done); _ = web.Serve(l) }()
	defer func() { s.Drain(context.Background()); _ = web.Close(); <-done }()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	path := filepath.Join(t.TempDir(), "cds.yaml")

	const boot = `dynamic_resources: {cds_config: {%s}}
static_resources: {clusters: [{name: s, type: STATIC, load_assignment: {cluster_name: s, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}}]}
`
	for name, tt := range map[string]struct {
		source string
		set    func(stat string) error
	}{
		"path": {`path_config_source: {path: "` + path + `"}`, func(stat string) error {
			text := "resources:\n- {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, alt_stat_name: " + stat + "}\n"
			if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}},
		"REST": {`api_config_source: {api_type: REST, transport_api_version: V3, cluster_names: [s], refresh_delay: 0.01s}`, func(stat string) error {
			body := fmt.Appendf(nil, "\x0a\x01a\xe2\x01%c%s", len(stat), stat) // name, and alt_stat_name, field 28
			_, err := st.Update(func(tx *store.Tx) error { tx.Set(xds.NewResource(xds.Cluster, "a", body)); return nil })
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.set("first"); err != nil {
				t.Fatal(err)
			}
			e, err := Envoy("b.yaml", fmt.Appendf(nil, boot, tt.source, host, port), Options{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(*e.Clusters)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			want := "first"
			for ev, err := range c.Watch(ctx, xds.Cluster, "a") {
				if err != nil || ev.Kind != client.Updated || !strings.Contains(string(ev.Resource.Body), want) {
					t.Fatalf("%+v %v, want %s", ev, err, want)
				}
				if want == "second" {
					return
				}
				want = "second"
				if err := tt.set(want); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
