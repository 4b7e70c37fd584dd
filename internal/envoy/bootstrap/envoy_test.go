package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	chancery "github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// envoyPath is where e2e/install.sh puts Envoy.
const envoyPath = "../../../.cache/envoy/envoy-1.40.0"

func needsEnvoy(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(envoyPath); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: run e2e/install.sh", envoyPath)
	}
	t.Skipf("%s is not installed: run e2e/install.sh", envoyPath)
}

func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// envoy returns a command that runs Envoy with the bootstrap of the options.
func envoy(ctx context.Context, t *testing.T, o Options, args ...string) *exec.Cmd {
	t.Helper()
	b, err := Envoy(o)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, t.TempDir(), "bootstrap.json", b)
	return exec.CommandContext(ctx, envoyPath, append([]string{"--config-path", path, "--concurrency", "1", "--disable-hot-restart"}, args...)...)
}

// material writes the files of both sides for mutual TLS.
func material(t *testing.T, hosts ...string) (certs.Files, *TLS) {
	t.Helper()
	dir := t.TempDir()
	ca := tlstest.NewAuthority(t, "ca")
	s, c := ca.Issue("server", hosts...), ca.Issue("client")
	root := write(t, dir, "ca.crt", ca.PEM)
	return certs.Files{Cert: write(t, dir, "server.crt", s.Cert), Key: write(t, dir, "server.key", s.Key), ClientCA: root},
		&TLS{CA: root, Cert: write(t, dir, "client.crt", c.Cert), Key: write(t, dir, "client.key", c.Key)}
}

func TestEnvoyValidates(t *testing.T) {
	needsEnvoy(t)
	_, tls := material(t, "xds.example")
	for name, o := range map[string]Options{
		"plain":    {Node: "a", Server: "127.0.0.1:18000"},
		"IPv6":     {Node: "a", Server: "[::1]:18000"},
		"name":     {Node: "a", Server: "xds.example:18000", Delta: true},
		"socket":   {Node: "a", Server: "unix:///run/xds.sock"},
		"per type": {Node: "a", Server: "127.0.0.1:18000", PerType: true, Delta: true},
		"REST":     {Node: "a", Server: "xds.example:18080", REST: true, TLS: tls},
		"TLS":      {Node: "a", Server: "xds.example:18000", TLS: tls},
		"TLS, IP":  {Node: "a", Server: "10.0.0.1:18000", TLS: &TLS{CA: tls.CA}},
	} {
		out, err := envoy(t.Context(), t, o, "--mode", "validate", "--log-level", "warning").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		} else {
			t.Logf("%s: %s", name, out)
		}
	}
}

// Envoy refuses the program of a regular expression, about 300 instructions, unless the bootstrap raises the limit.
func TestRE2ProgramSize(t *testing.T) {
	needsEnvoy(t)
	const listener = `{"name": "in", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}, "filter_chains": [{"filters": [{"name": "http",
		"typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "s",
		"http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
		"route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [{"match": {"safe_regex": {"regex": "^/[0-9a-z-]{100}$"}}, "direct_response": {"status": 200}}]}]}}}]}]}`
	for limit, refused := range map[uint32]bool{0: true, 200: true, 1000: false} {
		b, err := Envoy(Options{Node: "a", Server: "127.0.0.1:18000", RE2ProgramSize: limit})
		if err != nil {
			t.Fatal(err)
		}
		b = []byte(strings.Replace(string(b), `"static_resources": {`, `"static_resources": {"listeners": [`+listener+`],`, 1))
		path := write(t, t.TempDir(), "bootstrap.json", b)
		out, err := exec.CommandContext(t.Context(), envoyPath, "--config-path", path, "--mode", "validate", "--log-level", "warning").CombinedOutput()
		if is := err != nil && strings.Contains(string(out), "> max program size of"); is != refused || err == nil == refused {
			t.Errorf("limit %d: %v\n%s", limit, err, out)
		}
	}
}

// opened receives the opened streams.
type opened chan *server.Stream

func (o opened) Opened(s *server.Stream)              { o <- s }
func (o opened) Event(*server.Stream, protocol.Event) {}
func (o opened) Closed(*server.Stream, error)         {}

// creds records failed handshakes.
type creds struct {
	credentials.TransportCredentials
	failed chan error
}

func (c creds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		select {
		case c.failed <- err:
		default:
		}
	}
	return conn, info, err
}

// connect runs an Envoy against a server until Envoy opens a stream or a TLS handshake fails. The
// server's port replaces the port of the options.
func connect(t *testing.T, at string, o Options, files *certs.Files) (*server.Stream, error) {
	t.Helper()
	a, err := listen.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		a.Port = uint16(tcp.Port)
	}
	if o.Server != "" {
		a.Host = o.Server
	}
	o.Node, o.Cluster, o.Server, o.Admin = "edge-1", "edge", a.String(), "127.0.0.1:0"

	log := slog.New(slog.DiscardHandler)
	streams, failed := make(opened, 10), make(chan error, 1)
	options := server.GRPCOptions()
	if files != nil {
		src, err := certs.Open(*files, log)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, grpc.Creds(creds{credentials.NewTLS(src.Config()), failed}))
	}
	g := grpc.NewServer(options...)
	if err := server.New(store.New(), server.WithObserver(streams), server.WithLogger(log)).Register(g); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	defer func() {
		g.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()

	ctx, cancel := context.WithCancel(t.Context())
	cmd := envoy(ctx, t, o, "--log-level", "warning")
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s", out)
		}
	}()
	select {
	case s := <-streams:
		return s, nil
	case err := <-failed:
		return nil, err
	case <-time.After(20 * time.Second):
		t.Error("no stream and no failed handshake within 20 s")
		return nil, errors.New("nothing")
	}
}

// A real Envoy connects to the server and sends its node id, with each transport.
func TestEnvoyConnects(t *testing.T) {
	needsEnvoy(t)
	files, tls := material(t, "localhost", "127.0.0.1")
	socket := "unix://" + filepath.Join(t.TempDir(), "xds.sock")
	for name, c := range map[string]struct {
		at string
		o  Options
	}{
		"plain":      {"127.0.0.1:0", Options{}},
		"delta":      {"127.0.0.1:0", Options{Delta: true}},
		"per type":   {"127.0.0.1:0", Options{PerType: true}},
		"name":       {"127.0.0.1:0", Options{Server: "localhost"}},
		"socket":     {socket, Options{}},
		"mutual TLS": {"127.0.0.1:0", Options{TLS: tls}},
		"TLS, name":  {"127.0.0.1:0", Options{TLS: tls, Server: "localhost", Delta: true}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &files
			if c.o.TLS == nil {
				f = nil
			}
			s, err := connect(t, c.at, c.o, f)
			if err != nil {
				t.Fatal(err)
			}
			if s.Node.ID != "edge-1" || s.Node.Cluster != "edge" || (s.Variant == chancery.Delta) != c.o.Delta || (s.Type == nil) == c.o.PerType {
				t.Errorf("%+v of %+v", s, s.Node)
			}
		})
	}
}

// Envoy rejects a server that it does not trust.
func TestEnvoyRefuses(t *testing.T) {
	needsEnvoy(t)
	files, tls := material(t, "localhost", "127.0.0.1")
	_, other := material(t)
	for name, c := range map[string]struct {
		tls  TLS
		want string
	}{
		"another name":      {TLS{CA: tls.CA, Cert: tls.Cert, Key: tls.Key, ServerName: "xds.example"}, "remote error: tls: "},
		"another authority": {TLS{CA: other.CA, Cert: tls.Cert, Key: tls.Key}, "remote error: tls: "},
		"no certificate":    {TLS{CA: tls.CA}, "didn't provide a certificate"},
		"a client certificate of another authority": {TLS{CA: tls.CA, Cert: other.Cert, Key: other.Key}, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := connect(t, "127.0.0.1:0", Options{TLS: &c.tls}, &files)
			if s != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v, want an error with %q", s, err, c.want)
			}
		})
	}
}

// output collects the output of a command, from one goroutine.
type output []byte

func (o *output) Write(p []byte) (int, error) {
	*o = append(*o, p...)
	return len(p), nil
}
