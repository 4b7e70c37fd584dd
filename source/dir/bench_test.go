package dir

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/store"
)

// BenchmarkCheck reads 10,000 resources in 100 files: a quarter each of clusters, assignments, routes
// and listeners, with typical fields.
func BenchmarkCheck(b *testing.B) {
	root := b.TempDir()
	writeMany(b, root, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if c := Check(root, Options{}); len(c.Errors) > 0 || len(c.Counts) != 4 {
			b.Fatal(c)
		}
	}
}

// BenchmarkLoad loads 10,000 resources of 100 files into a store. BenchmarkReload loads one changed file, and
// BenchmarkReloadGathered does it as Run does: it also looks for missing resources.
func BenchmarkLoad(b *testing.B) {
	root := b.TempDir()
	writeMany(b, root, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(root, store.New(), Options{Log: slog.New(slog.DiscardHandler)}).Load(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReload(b *testing.B) {
	root := b.TempDir()
	writeMany(b, root, 10_000)
	reloads(b, root, filepath.Join(root, "more.yaml"), order{})
}

func BenchmarkReloadGathered(b *testing.B) {
	root := b.TempDir()
	writeMany(b, root, 10_000)
	reloads(b, root, filepath.Join(root, "more.yaml"), order{mayWait: true})
}

// BenchmarkLoadGroups loads 10,000 groups of 3 resources, and BenchmarkReloadGroups loads one changed
// file of one of them.
func BenchmarkLoadGroups(b *testing.B) {
	root := b.TempDir()
	writeGroups(b, root, 10_000)
	b.ReportAllocs()
	var before, after runtime.MemStats
	for b.Loop() {
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		src := New(root, store.New(), Options{Log: slog.New(slog.DiscardHandler)})
		if r, err := src.Load(); err != nil || r.Groups != 10_001 {
			b.Fatal(r, err)
		}
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.StartTimer()
		runtime.KeepAlive(src)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10_000, "B/group")
}

func BenchmarkCheckGroups(b *testing.B) {
	root := b.TempDir()
	writeGroups(b, root, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if c := Check(root, Options{}); len(c.Errors) > 0 || c.Groups != 10_001 {
			b.Fatal(c)
		}
	}
}

func BenchmarkReloadGroups(b *testing.B) {
	root := b.TempDir()
	writeGroups(b, root, 10_000)
	reloads(b, root, filepath.Join(root, "group-1", "more.yaml"), order{})
}

// writeGroups writes n groups of a cluster, an assignment and a route configuration each.
func writeGroups(tb testing.TB, root string, n int) {
	tb.Helper()
	for i := range n {
		in := filepath.Join(root, fmt.Sprintf("group-%d", i))
		if err := os.Mkdir(in, 0o700); err != nil {
			tb.Fatal(err)
		}
		for name, text := range map[string]string{
			GroupFile: fmt.Sprintf("match: {cluster: c-%d}\ninclude: [default]\n", i), "all.yaml": manyCluster(i) + "---\n" + manyAssignment(i) + "---\n" + manyRoutes(i),
		} {
			if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o600); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// reloads changes a file again and again, and loads it.
func reloads(b *testing.B, root, file string, o order) {
	b.Helper()
	src := New(root, store.New(), Options{Log: slog.New(slog.DiscardHandler), References: o.mayWait})
	if _, err := src.Load(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2100 * time.Millisecond) // after 2 s, an unchanged modification time proves that a file has not changed
	if _, err := src.Load(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		text := fmt.Sprintf("{%s, name: changing, connect_timeout: %ds}\n", clusterURL, 1+n%2)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		if r, err := src.load(o, &scanner{}); err != nil || len(r.Commit.Changes) != 1 {
			b.Fatal(r.Commit, err)
		}
	}
}

// A check before each deployment must be fast. It takes a second. The limit allows for busy machines,
// and still finds costs that grow with the square of the number of files.
func TestCheckOfManyIsFast(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("slow, and nothing here is concurrent: `make memory` runs it")
	}
	root := t.TempDir()
	writeMany(t, root, 10_000)
	begin := time.Now()
	c := Check(root, Options{})
	took := time.Since(begin)
	n := 0
	for _, count := range c.Counts {
		n += count.N
	}
	if len(c.Errors) > 0 || n != 10_000 {
		t.Fatal(c.Errors, n)
	}
	if t.Logf("%d resources in %v", n, took); took > 2*time.Minute {
		t.Errorf("%d resources take %v", n, took)
	}
}

var (
	manyDir = flag.String("many-dir", "", "where BenchmarkWriteMany leaves its files")
	many    = flag.Int("many", 10_000, "how many resources BenchmarkWriteMany writes")

	raceEnabled bool // by race_test.go
)

// BenchmarkWriteMany writes the files of BenchmarkCheck for tools/figures.
func BenchmarkWriteMany(b *testing.B) {
	root := cmp.Or(*manyDir, b.TempDir())
	for b.Loop() {
		writeMany(b, root, *many)
	}
}

// writeMany writes n resources into a directory, a hundred in each file.
func writeMany(tb testing.TB, root string, n int) {
	tb.Helper()
	kinds := []func(int) string{manyCluster, manyAssignment, manyRoutes, manyListener}
	var file strings.Builder
	for i := range n {
		file.WriteString("---\n" + kinds[i%len(kinds)](i/len(kinds)))
		if (i+1)%100 == 0 || i == n-1 {
			if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("%05d.yaml", i/100)), []byte(file.String()), 0o600); err != nil {
				tb.Fatal(err)
			}
			file.Reset()
		}
	}
}

func manyCluster(i int) string {
	return fmt.Sprintf(`"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: cluster-%[1]d
type: EDS
connect_timeout: 1s
lb_policy: LEAST_REQUEST
eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}
circuit_breakers: {thresholds: [{max_connections: 1000, max_requests: 1000}]}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: {http2_protocol_options: {}}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    sni: cluster-%[1]d.example
    common_tls_context:
      validation_context: {trusted_ca: {filename: /etc/ca.pem}}
`, i)
}

func manyAssignment(i int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: cluster-%d
endpoints:
- locality: {region: eu, zone: a}
  lb_endpoints:
`, i)
	for k := range 5 {
		fmt.Fprintf(&s, `  - endpoint: {address: {socket_address: {address: 10.%d.%d.%d, port_value: 8080}}}
    load_balancing_weight: %d
`, i>>8&255, i&255, k, k+1)
	}
	return s.String()
}

func manyRoutes(i int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: route-%[1]d
virtual_hosts:
- name: host
  domains: ["host-%[1]d.example", "*.host-%[1]d.example"]
  routes:
`, i)
	for k := range 5 {
		fmt.Fprintf(&s, `  - match: {prefix: /p%[1]d/, headers: [{name: x-h, string_match: {exact: v%[1]d}}]}
    route: {cluster: cluster-%[2]d, timeout: 5s, retry_policy: {retry_on: 5xx, num_retries: 2}}
`, k, i)
	}
	return s.String()
}

func manyListener(i int) string {
	return fmt.Sprintf(`"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: listener-%[1]d
address: {socket_address: {address: 0.0.0.0, port_value: %[2]d}}
filter_chains:
- filters:
  - name: envoy.filters.network.http_connection_manager
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: ingress
      rds: {route_config_name: route-%[1]d, config_source: {ads: {}, resource_api_version: V3}}
      access_log:
      - name: envoy.access_loggers.file
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
          path: /dev/stdout
      http_filters:
      - name: cors
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}
      - name: router
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`, i, 1024+i%60000)
}
