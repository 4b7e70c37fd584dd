package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// A variant is the form in which Envoy connects to its management server.
type variant struct {
	api  string // the api_type of its bootstrap
	own  bool   // a stream of its own for each subscription, instead of ADS
	once bool   // sends its node in the first message of a stream only

	unified bool // SotW by Envoy's code for delta, which a feature flag selects

	drain time.Duration // of removed listeners, at least 1 s
}

var (
	sotw     = variant{api: "GRPC"}
	delta    = variant{api: "DELTA_GRPC"}
	ownSotw  = variant{api: "GRPC", own: true}
	ownDelta = variant{api: "DELTA_GRPC", own: true}

	unifiedSotw = variant{api: "GRPC", unified: true}

	onceSotw     = variant{api: "GRPC", once: true}
	onceDelta    = variant{api: "DELTA_GRPC", once: true}
	onceOwnSotw  = variant{api: "GRPC", own: true, once: true}
	onceOwnDelta = variant{api: "DELTA_GRPC", own: true, once: true}
)

func (v variant) String() string {
	s := "sotw"
	if v.delta() {
		s = "delta"
	}
	if v.own {
		s += " on own streams"
	}
	if v.once {
		s += ", node once"
	}
	if v.unified {
		s += ", unified"
	}
	return s
}

func (v variant) delta() bool { return v.api == delta.api }

// apiConfigSource returns the source of resources, for a bootstrap or inside resources.
func (v variant) apiConfigSource() map[string]any {
	return map[string]any{
		"api_type":                       v.api,
		"transport_api_version":          "V3",
		"grpc_services":                  []any{map[string]any{"envoy_grpc": map[string]any{"cluster_name": "xds"}}},
		"set_node_on_first_message_only": v.once,
	}
}

// source is a ConfigSource of the bootstrap.
func (v variant) source() map[string]any {
	s := map[string]any{"resource_api_version": "V3"}
	if v.own {
		s["api_config_source"] = v.apiConfigSource()
	} else {
		s["ads"] = map[string]any{}
	}
	return s
}

const envoyPath = "../.cache/envoy/envoy-1.40.0"

// An envoy is a running Envoy.
type envoy struct{ *harness.Envoy }

// startEnvoy runs an Envoy with that node id whose management server is on the
// loopback's port. It is killed when the test ends. edits change its bootstrap.
func startEnvoy(t *testing.T, id string, v variant, port int, edits ...func(bootstrap)) *envoy {
	t.Helper()
	config := filepath.Join(t.TempDir(), "bootstrap.json")
	b := newBootstrap(id, v, port)
	for _, edit := range edits {
		edit(b)
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return &envoy{harness.RunEnvoy(t, envoyPath, config, max(v.drain, time.Second))}
}

// runEnvoy runs an Envoy with the bootstrap in a file. It is killed when the
// test ends.
func runEnvoy(t *testing.T, config string) *envoy {
	t.Helper()
	return &envoy{harness.RunEnvoy(t, envoyPath, config, time.Second)}
}

// A bootstrap is Envoy's bootstrap as JSON.
type bootstrap map[string]any

func newBootstrap(id string, v variant, port int) bootstrap {
	type m = map[string]any
	type l = []any
	dynamic := m{"cds_config": v.source(), "lds_config": v.source()}
	if !v.own {
		dynamic["ads_config"] = v.apiConfigSource()
	}
	b := bootstrap{
		"node":              m{"id": id, "cluster": "e2e"},
		"admin":             m{"address": m{"socket_address": m{"address": "127.0.0.1", "port_value": 0}}},
		"dynamic_resources": dynamic,
		"static_resources": m{"clusters": l{m{
			"name":            "xds",
			"type":            "STATIC",
			"connect_timeout": "1s",
			"load_assignment": m{"cluster_name": "xds", "endpoints": l{m{"lb_endpoints": l{m{"endpoint": m{
				"address": m{"socket_address": m{"address": "127.0.0.1", "port_value": port}},
			}}}}}},
			"typed_extension_protocol_options": m{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": m{
				"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": m{"http2_protocol_options": m{
					"connection_keepalive": m{"interval": "30s", "timeout": "5s"},
				}},
			}},
		}}},
	}
	if v.unified {
		b["layered_runtime"] = m{"layers": l{m{
			"name": "features", "static_layer": m{"envoy.reloadable_features.unified_mux": true},
		}}}
	}
	return b
}

// dump returns one part of /config_dump, as JSON.
func (e *envoy) dump(resource string, into any) error {
	b, err := e.Get("/config_dump?resource=" + resource)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// dumps is a condition: a part of /config_dump contains the text.
func (e *envoy) dumps(resource, text string) func() error {
	return func() error {
		b, err := e.Get("/config_dump?resource=" + resource)
		if err == nil && !bytes.Contains(b, []byte(text)) {
			err = fmt.Errorf("no %s in %s", text, resource)
		}
		return err
	}
}

type dumpedCluster struct {
	Name    string
	Timeout string `json:"connect_timeout"`
}

// clusters returns the active clusters and the warming clusters.
func (e *envoy) clusters() (active, warming map[string]dumpedCluster, err error) {
	read := func(part string) (map[string]dumpedCluster, error) {
		var d struct {
			Configs []struct{ Cluster dumpedCluster }
		}
		err := e.dump(part, &d)
		m := map[string]dumpedCluster{}
		for _, c := range d.Configs {
			m[c.Cluster.Name] = c.Cluster
		}
		return m, err
	}
	active, err = read("dynamic_active_clusters")
	if err == nil {
		warming, err = read("dynamic_warming_clusters")
	}
	return active, warming, err
}

// hasClusters is a condition: exactly these clusters are active and none is warming.
func (e *envoy) hasClusters(names ...string) func() error {
	return func() error {
		active, warming, err := e.clusters()
		if err == nil && (!sameNames(active, names) || len(warming) > 0) {
			err = fmt.Errorf("active: %v, warming: %v", active, warming)
		}
		return err
	}
}

// inForce is a condition: the cluster is active with this timeout.
func (e *envoy) inForce(name, timeout string) func() error {
	return func() error {
		active, warming, err := e.clusters()
		if err == nil && (active[name].Timeout != timeout || len(warming) > 0) {
			err = fmt.Errorf("active: %v, warming: %v", active, warming)
		}
		return err
	}
}

// hasEndpoints is a condition: the cluster has that many endpoints.
func (e *envoy) hasEndpoints(cluster string, n int) func() error {
	return func() error {
		b, err := e.Get("/clusters")
		got := 0
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, cluster+"::127.0.0.1:") && strings.Contains(line, "::health_flags::") {
				got++
			}
		}
		if err == nil && got != n {
			err = fmt.Errorf("%d endpoints", got)
		}
		return err
	}
}

// hasListeners is a condition: exactly these listeners are active.
func (e *envoy) hasListeners(names ...string) func() error {
	return func() error {
		var d struct {
			Configs []struct {
				Name        string
				ActiveState json.RawMessage `json:"active_state"`
			}
		}
		if err := e.dump("dynamic_listeners", &d); err != nil {
			return err
		}
		active := map[string]bool{}
		for _, l := range d.Configs {
			if l.ActiveState != nil {
				active[l.Name] = true
			}
		}
		if !sameNames(active, names) {
			return fmt.Errorf("active: %v", active)
		}
		return nil
	}
}

func sameNames[V any](m map[string]V, names []string) bool {
	for _, n := range names {
		if _, ok := m[n]; !ok {
			return false
		}
	}
	return len(m) == len(names)
}
