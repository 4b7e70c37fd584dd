package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
	"github.com/chancery-xds/chancery/xds"
)

const (
	secret = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret` + "\nname: key\ngeneric_secret: {secret: {inline_string: pw}}\n"
	edsOf  = "type: EDS\neds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}\n"
)

// dial makes the test use another address and other credentials.
func (d *runningServer) dial(address string, creds credentials.TransportCredentials) {
	d.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { conn.Close() })
	d.conn = conn
}

func TestListeners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := tlstest.NewAuthority(t, "ca")
	own, client := ca.Issue("server", "127.0.0.1"), ca.Issue("client", node.Id)
	file := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	socket := "unix://" + filepath.Join(dir, "s")
	port := freePort(t)
	d := serve(t, []string{"--metrics-listen", "127.0.0.1:" + port, "--listen", socket, "--tls-cert", file("crt", own.Cert), "--tls-key", file("key", own.Key), "--client-ca", file("ca", ca.PEM)},
		"a.yaml", cluster("a"))
	secured := d.conn.Target()

	t.Run("mutual TLS over TCP", func(t *testing.T) {
		pair, err := tls.X509KeyPair(client.Cert, client.Key)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.PEM)
		d.dial(secured, credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}))
		d.clusters().gets("a")
		d.tells(port, "/metrics", "\nxds_server_tls_certificate_first_expiry_timestamp_seconds ")
		for what, creds := range map[string]credentials.TransportCredentials{
			"without a certificate": credentials.NewTLS(&tls.Config{RootCAs: roots}), "without TLS": insecure.NewCredentials(),
		} {
			d.dial(secured, creds)
			if _, err := healthgrpc.NewHealthClient(d.conn).Check(d.ctx, &healthgrpc.HealthCheckRequest{}); err == nil {
				t.Errorf("a client %s is served", what)
			}
		}
		reasons := map[any]bool{} // OBS-4
		for len(reasons) < 2 {
			reasons[d.logged("TLS handshake failed")["reason"]] = true
		}
		if !reasons["no_certificate"] || !reasons["no_tls"] {
			t.Error(reasons)
		}
	})
	t.Run("plain text over a socket", func(t *testing.T) {
		d.dial(socket, insecure.NewCredentials())
		d.clusters().gets("a")
	})
}

func TestSecrets(t *testing.T) {
	t.Run("SAFE-11 a reload that would send secrets in plain text is refused", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--listen", "0.0.0.0:0"}, "a.yaml", cluster("a"))
		s := d.clusters()
		s.gets("a")
		write(t, d.dir, "a.yaml", cluster("b"), "s.yaml", secret)
		why := fmt.Sprint(d.logged("reload rejected, keeping the previous configuration")["error"])
		if !strings.Contains(why, "s.yaml:1:1: the secret in generic_secret.secret of SDS \"key\"") {
			t.Error(why)
		}
		write(t, d.dir, "s.yaml", cluster("c"))
		s.gets("b", "c")
	})
	for name, flags := range map[string][]string{
		"SAFE-11 loopback": nil,
		"SAFE-11 socket":   {"--listen", "unix:" + filepath.Join(t.TempDir(), "s")},
		"SAFE-11 allowed":  {"--listen", "0.0.0.0:0", "--insecure-secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t, flags, "s.yaml", secret)
			s := d.subscribe(xds.Secret)
			s.gets("key")
		})
	}
}

func TestAssignments(t *testing.T) {
	t.Run("OBS-6 the server warns of missing resources, as check does", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "a.yaml", cluster("a")+edsOf)
		// Warnings of the start may be logged before the server serves. So the test waits for the
		// warning about b, which a reload logs.
		d := serveDir(t, dir)
		write(t, dir, "b.yaml", cluster("b")+edsOf)
		want := filepath.Join(dir, "b.yaml") + `:1:1: CDS "b" refers to EDS "b", which no file has (Envoy waits 15 s for endpoints that are missing, at each start)`
		line := d.logged("configuration warning")
		if strings.Contains(fmt.Sprint(line["problem"]), "a.yaml") {
			line = d.logged("configuration warning")
		}
		if line["problem"] != want {
			t.Error(line["problem"])
		}
	})
	t.Run("SAFE-3 the server serves what Envoy refuses, and warns of it", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", cluster("a")+"connect_timeout: 0s\n")
		line := d.loggedAround("refusal expected: clients of Envoy will refuse a served resource")
		if at := fmt.Sprint(line["problem"]); line["code"] != "XDS0301" || !strings.Contains(at, "a.yaml:") || !strings.Contains(at, ": connect_timeout: ") {
			t.Error(line)
		}
		d.subscribe(xds.Cluster).gets("a")
	})
	t.Run("SAFE-3 the server knows the bootstrap in its directory", func(t *testing.T) {
		t.Parallel()
		route := func(cluster string) string {
			return `{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r, validate_clusters: true, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: ` + cluster + `}}]}]}`
		}
		const bootstrap = `static_resources: {clusters: [{name: kept}]}`
		d := serve(t, nil, "_bootstrap.yaml", bootstrap, "a.yaml", route("missing"))
		if line := d.loggedAround("refusal expected: clients of Envoy will refuse a served resource"); line["code"] != "XDS0415" {
			t.Error(line)
		}
		d = serve(t, []string{"--validate"}, "_bootstrap.yaml", bootstrap, "a.yaml", route("kept"))
		write(t, d.dir, "a.yaml", route("missing"))
		if line := d.logged("configuration error"); line["code"] != "XDS0415" {
			t.Error(line)
		}
	})
	t.Run("or is empty", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--empty-assignments"}, "a.yaml", cluster("a")+edsOf)
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).DeltaAggregatedResources(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil || len(r.Resources) != 1 || r.Resources[0].Name != "a" {
			t.Error(r, err)
		}
	})
}

func TestMonitor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", cluster("a"))
	// A fixed port, because the daemon logs its address before it serves.
	address := "127.0.0.1:" + freePort(t)
	d := serveDir(t, dir, "--metrics-listen", address, "--drain", "2s")
	d.clusters().gets("a")
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	write(t, dir, "a.yaml", "nothing")
	d.logged("reload rejected, keeping the previous configuration")
	for path, want := range map[string][]string{
		"/healthz":             {"ok"},
		"/readyz?verbose":      {"[+]serving ok"},
		"/debug/pprof/cmdline": {"serve"},
		"/metrics": {
			`xds_server_streams{variant="sotw"} 1`, `xds_server_resources{group="default",type="cds"} 1`,
			`xds_server_config_loads_total{result="success"} 1`, `xds_server_config_loads_total{result="failure"} 1`,
			"xds_server_blocked_writes_total 0", "xds_server_build_info{",
		},
	} {
		code, body := get(path)
		for _, w := range want {
			if code != http.StatusOK || !strings.Contains(body, w) {
				t.Errorf("%s: %d, want %s in\n%s", path, code, w, body)
			}
		}
	}
	d.signal(syscall.SIGTERM)
	d.logged("shutting down: closing streams")
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "the server is shutting down") {
		t.Error(code, body)
	}
}

// Streams of one age end at different times, and their clients come back.
func TestConnectionAge(t *testing.T) {
	t.Parallel()
	d := serve(t, []string{"--max-connection-age", "1s", "--max-connection-age-grace", "50ms"}, "a.yaml", cluster("a"))
	target := d.conn.Target()
	start := time.Now()
	ages := make(chan time.Duration)
	const n = 20
	for range n {
		d.dial(target, insecure.NewCredentials())
		s := d.clusters()
		s.gets("a")
		go func() {
			_, _ = s.stream.Recv()
			ages <- time.Since(start)
		}()
	}
	first, last := time.Hour, time.Duration(0)
	for range n {
		age := <-ages
		first, last = min(first, age), max(last, age)
	}
	if first < 900*time.Millisecond || last > 4*time.Second || last-first < 150*time.Millisecond {
		t.Errorf("streams ended from %v to %v", first, last)
	}
	d.clusters().gets("a")
}
