package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	reflectgrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
	"github.com/chancery-xds/chancery/xds"
)

// A runningServer is a running chancery serve.
type runningServer struct {
	*testing.T
	ctx    context.Context // of the test, with a deadline
	dir    string
	cmd    *exec.Cmd
	log    chan map[string]any
	passed []map[string]any // lines before the last awaited line
	http   string           // address of the metrics, once it was logged
	conn   *grpc.ClientConn
}

// serve runs chancery serve for a directory that holds the files.
func serve(t *testing.T, flags []string, files ...string) *runningServer {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files...)
	return serveDir(t, dir, flags...)
}

func serveDir(t *testing.T, dir string, flags ...string) *runningServer {
	t.Helper()
	return serveUnder(t, nil, dir, flags...)
}

// serveUnder runs chancery serve through another command.
func serveUnder(t *testing.T, command []string, dir string, flags ...string) *runningServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	d := &runningServer{T: t, ctx: ctx, dir: dir, log: make(chan map[string]any, 1000)}
	args := slices.Concat(command, []string{binary, "serve", dir, "--listen", "127.0.0.1:0", "--removal-grace", "0s"}, flags)
	d.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go d.read(stderr)
	all, _ := d.logged("serving")["xds"].(string)
	address, _, _ := strings.Cut(all, ", ")
	d.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.conn.Close()
		cancel() // kills it, if it runs
		_ = d.cmd.Wait()
	})
	return d
}

func (d *runningServer) read(stderr io.Reader) {
	defer close(d.log)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			line = map[string]any{"msg": lines.Text()}
		}
		if line["msg"] == "metrics and health" {
			d.http, _ = line["http"].(string)
		}
		d.log <- line
	}
}

// logged waits for a log line.
func (d *runningServer) logged(msg string) map[string]any {
	d.Helper()
	d.passed = nil
	for line := range d.log {
		if line["msg"] == msg {
			return line
		}
		d.passed = append(d.passed, line)
	}
	d.Fatalf("the log ended without %q: %v", msg, d.passed)
	return nil
}

// loggedAround is logged for a line that may also have come before the last awaited line.
func (d *runningServer) loggedAround(msg string) map[string]any {
	d.Helper()
	if i := slices.IndexFunc(d.passed, func(line map[string]any) bool { return line["msg"] == msg }); i >= 0 {
		return d.passed[i]
	}
	return d.logged(msg)
}

// meanwhile is logged for a line that need not come after the last awaited line.
func (d *runningServer) meanwhile(msg string) {
	d.Helper()
	if !slices.ContainsFunc(d.passed, func(line map[string]any) bool { return line["msg"] == msg }) {
		d.logged(msg)
	}
}

// healthy waits until the health service reports a status.
func (d *runningServer) healthy(want healthgrpc.HealthCheckResponse_ServingStatus) {
	d.Helper()
	for _, service := range []string{"", "envoy.service.discovery.v3.AggregatedDiscoveryService"} {
		s, err := healthgrpc.NewHealthClient(d.conn).Watch(d.ctx, &healthgrpc.HealthCheckRequest{Service: service})
		for got := (*healthgrpc.HealthCheckResponse)(nil); got.GetStatus() != want; {
			if err == nil {
				got, err = s.Recv()
			}
			if err != nil {
				d.Fatalf("health of %q: %v, %v, want %v", service, got, err, want)
			}
		}
	}
}

func (d *runningServer) signal(s os.Signal) {
	d.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.Fatal(err)
	}
}

// exits waits for the exit code.
func (d *runningServer) exits(code int) {
	d.Helper()
	for range d.log { // read the log to its end, because Wait closes it
	}
	_ = d.cmd.Wait()
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.Errorf("exit code %d, want %d", got, code)
	}
}

var node = &corev3.Node{Id: "test"}

// A subscriber is a SotW stream that accepts every response.
type subscriber struct {
	*runningServer
	stream grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
}

// subscribe opens an aggregated stream for all resources of a type.
func (d *runningServer) subscribe(typ *xds.Type) subscriber {
	d.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
	if err != nil {
		d.Fatal(err)
	}
	s := subscriber{d, stream}
	s.send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: typ.URL, ResourceNames: []string{xds.Wildcard}})
	return s
}

// clusters opens a stream of CDS alone, where no response waits for another type.
func (d *runningServer) clusters() subscriber {
	d.Helper()
	stream, err := clusterservice.NewClusterDiscoveryServiceClient(d.conn).StreamClusters(d.ctx)
	if err != nil {
		d.Fatal(err)
	}
	s := subscriber{d, stream}
	s.send(&discoveryv3.DiscoveryRequest{Node: node})
	return s
}

func (s subscriber) send(r *discoveryv3.DiscoveryRequest) {
	s.Helper()
	if err := s.stream.Send(r); err != nil {
		s.Fatal(err)
	}
}

// gets receives the next response, acknowledges it, and compares its resources.
func (s subscriber) gets(want ...string) {
	s.Helper()
	r, err := s.stream.Recv()
	if err != nil {
		s.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce})
	var names []string
	for _, a := range r.Resources {
		typ, err := envoy.Envoy().FindMessageByURL(a.TypeUrl)
		if err != nil {
			s.Fatal(err)
		}
		m := typ.New()
		if err := a.UnmarshalTo(m.Interface()); err != nil {
			s.Fatal(err)
		}
		names = append(names, m.Get(m.Descriptor().Fields().ByName("name")).String())
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		s.Errorf("got %v, want %v", names, want)
	}
}

func TestServe(t *testing.T) {
	t.Run("an edit reaches a stream, a mistake does not, and the corrected file does", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", cluster("a"), "sub/b.yaml", cluster("b"))
		s := d.clusters()
		s.gets("a", "b")

		write(t, d.dir, "sub/b.yaml", cluster("c"))
		s.gets("a", "c")

		write(t, d.dir, "a.yaml", cluster("a")+"connect_timeout: soon\n", "sub/b.yaml", cluster("d"))
		d.logged("reload rejected, keeping the previous configuration")
		line := d.logged("configuration error")
		if at, _ := line["error"].(string); !strings.HasPrefix(at, filepath.Join(d.dir, "a.yaml")+":3:18: ") || line["code"] != "XDS0103" {
			t.Errorf("a mistake at %q, of the code %q", at, line["code"])
		}

		write(t, d.dir, "a.yaml", cluster("e"))
		s.gets("d", "e") // and nothing in between
		d.logged("loaded")
	})
	t.Run("a directory without resources", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--allow-empty"})
		s := d.clusters()
		s.gets()
		write(t, d.dir, "deep/er/a.yaml", cluster("a"))
		s.gets("a")
	})
	t.Run("SIGHUP loads at once", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", cluster("a"))
		d.signal(syscall.SIGHUP)
		if line := d.logged("loaded"); fmt.Sprint(line["files"], line["set"]) != "1 0" {
			t.Errorf("loaded %v", line)
		}
	})
	t.Run("a mass deletion is refused unless allowed", func(t *testing.T) {
		t.Parallel()
		var many strings.Builder
		for i := range 20 {
			many.WriteString("---\n" + cluster(fmt.Sprint("c", i)))
		}
		d := serve(t, nil, "a.yaml", many.String())
		write(t, d.dir, "a.yaml", cluster("a"))
		if why := d.logged("reload rejected, keeping the previous configuration")["error"]; !strings.Contains(fmt.Sprint(why), "20 of 20 CDS resources") {
			t.Error(why)
		}
		d = serve(t, []string{"--allow-mass-delete"}, "a.yaml", many.String())
		s := d.clusters()
		s.gets("c0", "c1", "c10", "c11", "c12", "c13", "c14", "c15", "c16", "c17", "c18", "c19", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9")
		write(t, d.dir, "a.yaml", cluster("a"))
		s.gets("a")
	})
	t.Run("a service of its own, delta", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", cluster("a"))
		stream, err := clusterservice.NewClusterDiscoveryServiceClient(d.conn).DeltaClusters(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node}); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Resources) != 1 || r.Resources[0].Name != "a" {
			t.Errorf("got %v", r)
		}
		host, _ := os.Hostname()
		if id, want := r.GetControlPlane().GetIdentifier(), host+" chancery/"+testVersion; id != want {
			t.Errorf("control plane %q, want %q", id, want)
		}
	})
	t.Run("the quick start", func(t *testing.T) {
		t.Parallel()
		d := serveDir(t, "../../examples/quickstart")
		d.subscribe(xds.Cluster).gets("backend")
		d.subscribe(xds.Listener).gets("http")
		d.subscribe(xds.Route).gets("local")
	})
	t.Run("SAFE-11 links out of the directory are followed with the flag", func(t *testing.T) {
		t.Parallel()
		dir, other := t.TempDir(), t.TempDir()
		write(t, other, "b.yaml", cluster("b"))
		write(t, dir, "a.yaml", cluster("a"))
		if err := os.Symlink(other+"/b.yaml", dir+"/b.yaml"); err != nil {
			t.Fatal(err)
		}
		serveDir(t, dir, "--follow-links-outside").clusters().gets("a", "b")
	})
	t.Run("TYP-6 files of v2 are served with the flag", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--legacy-v2"}, "a.yaml", cluster("a"), "b.yaml", strings.ReplaceAll(cluster("b"), "envoy.config.cluster.v3", "envoy.api.v2"))
		d.clusters().gets("a")
	})
	t.Run("SAFE-10 SAFE-11 metrics show delayed removals and the expiry of certificates", func(t *testing.T) {
		t.Parallel()
		end := time.Now().AddDate(0, 0, 90)
		pair := tlstest.NewAuthority(t, "ca").IssueUntil(end, "s")
		port := freePort(t)
		d := serve(t, []string{"--metrics-listen", "127.0.0.1:" + port, "--confirm-removals", "1h"}, "a.yaml", many(0, 40), "s.yaml", fmt.Sprintf(
			`{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: s, tls_certificate: {certificate_chain: {inline_string: %q}, private_key: {inline_string: %q}}}`,
			pair.Cert, pair.Key))
		d.tells(port, "/metrics", "xds_server_config_removals_waiting 0\n")
		d.tells(port, "/metrics", "xds_server_certificate_first_expiry_timestamp_seconds "+strconv.FormatFloat(float64(end.Unix()), 'g', -1, 64)+"\n")
		write(t, d.dir, "a.yaml", many(6, 34))
		d.tells(port, "/metrics", "xds_server_config_removals_waiting 6\n")
	})
	t.Run("reflection", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--reflection"})
		stream, err := reflectgrpc.NewServerReflectionClient(d.conn).ServerReflectionInfo(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range append(xds.Types(), &xds.Type{Service: "envoy.service.discovery.v3.AggregatedDiscoveryService"}) {
			if typ.Service == "" {
				continue
			}
			if err := stream.Send(&reflectgrpc.ServerReflectionRequest{MessageRequest: &reflectgrpc.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: typ.Service}}); err != nil {
				t.Fatal(err)
			}
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if r.GetFileDescriptorResponse() == nil {
				t.Errorf("%s: %v", typ.Service, r)
			}
		}
	})
}

func TestSignals(t *testing.T) {
	t.Run("SIGTERM while the files are loaded", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "a.yaml", many(0, 20_000)) // some seconds
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		d := &runningServer{T: t, ctx: ctx, log: make(chan map[string]any, 1000), cmd: exec.CommandContext(ctx, binary, "serve", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")}
		stderr, err := d.cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go d.read(stderr)
		at := d.logged("metrics and health")["http"]
		resp, err := http.Get(fmt.Sprintf("http://%s/readyz?verbose", at))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "the configuration is not loaded yet") {
			t.Errorf("%s: %s", resp.Status, body)
		}
		d.signal(syscall.SIGTERM)
		d.logged("stopped before the files were loaded")
		d.exits(0)
	})
	t.Run("SIGTERM: health, streams, the end", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--drain", "300ms"}, "a.yaml", cluster("a"))
		s := d.clusters()
		s.gets("a")
		health, err := healthgrpc.NewHealthClient(d.conn).Watch(d.ctx, &healthgrpc.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []healthgrpc.HealthCheckResponse_ServingStatus{healthgrpc.HealthCheckResponse_SERVING, healthgrpc.HealthCheckResponse_NOT_SERVING} {
			r, err := health.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if r.Status != want {
				t.Errorf("health %v, want %v", r.Status, want)
			}
			if want == healthgrpc.HealthCheckResponse_SERVING {
				d.signal(syscall.SIGTERM)
			}
		}
		if _, err := s.stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
		d.logged("ended")
		d.exits(0)
	})
	t.Run("SAFE-12 not ready first: the server continues for --drain-delay", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--drain-delay", "1h"}, "a.yaml", cluster("a"))
		d.healthy(healthgrpc.HealthCheckResponse_SERVING)
		d.signal(syscall.SIGTERM)
		d.logged("shutting down: closing streams")
		d.healthy(healthgrpc.HealthCheckResponse_NOT_SERVING)
		s := d.clusters()
		s.gets("a")
		write(t, d.dir, "b.yaml", cluster("b"))
		s.gets("a", "b")
		d.healthy(healthgrpc.HealthCheckResponse_NOT_SERVING)
	})
	for _, flag := range []string{"--drain-delay", "--drain"} {
		t.Run("SIGHUP reloads while the server is shutting down, in "+flag, func(t *testing.T) {
			t.Parallel()
			d := serve(t, []string{flag, "1h"}, "a.yaml", cluster("a"))
			d.clusters().gets("a") // so that there is a stream to drain
			d.signal(syscall.SIGTERM)
			d.logged("shutting down: closing streams")
			d.signal(syscall.SIGHUP)
			d.logged("loaded")
		})
	}
	t.Run("--drain 0s: all streams end at once", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--drain", "0s"}, "a.yaml", cluster("a"))
		var all []subscriber
		for range 50 { // with the default, one of so many would stay for 4 s at least
			s := d.clusters()
			s.gets("a")
			all = append(all, s)
		}
		d.signal(syscall.SIGTERM)
		begin := time.Now()
		for _, s := range all {
			if _, err := s.stream.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("a stream ended with %v", err)
			}
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		d.exits(0)
	})
	t.Run("the last stream, too, gets the reason of its end", func(t *testing.T) {
		t.Parallel()
		for range 10 { // a cut connection also gives UNAVAILABLE, but only in some of the rounds
			d := serve(t, []string{"--drain", "0s"}, "a.yaml", cluster("a"))
			s := d.clusters()
			s.gets("a")
			d.signal(syscall.SIGTERM)
			if _, err := s.stream.Recv(); status.Convert(err).Message() != "the server is shutting down" {
				t.Fatalf("the stream ended with %v", err)
			}
			d.exits(0)
		}
	})
	t.Run("SIGINT without clients", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--drain", "1h"})
		d.signal(syscall.SIGINT)
		d.exits(0)
	})
	t.Run("a second signal ends the server at once", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--drain", "1h"}, "a.yaml", cluster("a"))
		s := d.clusters()
		s.gets("a")
		d.signal(syscall.SIGTERM)
		d.logged("shutting down: closing streams")
		d.signal(syscall.SIGTERM)
		d.logged("chancery: error: exited at once: second signal: terminated")
		d.exits(1)
	})
}
