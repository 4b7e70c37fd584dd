package bootstrap

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

// A tlsWorld has certificate files.
type tlsWorld struct {
	t              *testing.T
	dir            string
	servers, users *tlstest.Authority
}

func newWorld(t *testing.T) *tlsWorld {
	t.Helper()
	w := &tlsWorld{t, t.TempDir(), tlstest.NewAuthority(t, "servers"), tlstest.NewAuthority(t, "users")}
	w.write("ca.pem", w.servers.PEM)
	w.write("users.pem", w.users.PEM)
	p := w.users.Issue("edge-1")
	w.write("cert.pem", p.Cert)
	w.write("key.pem", p.Key)
	return w
}

func (w *tlsWorld) write(name string, b []byte) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), b, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// shake does a handshake with a server that has a certificate for a host.
func (w *tlsWorld) shake(c credentials.TransportCredentials, authority, host string) error {
	w.t.Helper()
	p := w.servers.Issue("xds", host)
	w.write("server.pem", p.Cert)
	w.write("server-key.pem", p.Key)
	config := certs.Files{Cert: filepath.Join(w.dir, "server.pem"), Key: filepath.Join(w.dir, "server-key.pem"), ClientCA: filepath.Join(w.dir, "users.pem")}
	s, err := certs.Open(config, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = tls.Server(conn, s.Config()).Handshake()
			_ = conn.Close()
		}
		done <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	conn, _, err := c.ClientHandshake(context.Background(), authority, raw)
	if err == nil {
		_ = conn.Close()
	}
	_ = raw.Close()
	if other := <-done; err == nil {
		err = other
	}
	return err
}

// bootstrap returns a bootstrap of Envoy with a validation context and an SNI name.
func (w *tlsWorld) bootstrap(sni, trusted string) string {
	return strings.NewReplacer("DIR", w.dir, "SNI", sni, "TRUSTED", trusted).Replace(`
static_resources:
  clusters:
  - name: xds
    load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: xds.example, port_value: 1}}}}]}]}
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: SNI
        common_tls_context:
          tls_certificates: [{certificate_chain: {filename: DIR/cert.pem}, private_key: {filename: DIR/key.pem}}]
          TRUSTED
dynamic_resources:
  ads_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
`)
}

// TLS of a static cluster: trust by the certificate's chain and names.
func TestEnvoyTLS_CLI1(t *testing.T) {
	w := newWorld(t)
	const good, names = "validation_context: {trusted_ca: {filename: DIR/ca.pem}}", "validation_context: {trusted_ca: {filename: DIR/ca.pem}, match_typed_subject_alt_names: ["
	for _, tt := range []struct{ sni, trusted, host, want string }{
		{"", good, "xds.example", ""},
		{"", good, "other.example", "is valid for other.example, not xds.example"},
		{"sni.example", good, "sni.example", ""},
		{"", "validation_context: {trusted_ca: {filename: DIR/users.pem}}", "xds.example", "unknown authority"},
		{"", names + "{san_type: DNS, matcher: {exact: a.example}}, {san_type: URI, matcher: {prefix: 'spiffe://x/'}}]}", "a.example", ""},
		{"", names + "{san_type: DNS, matcher: {exact: a.example}}]}", "*.example", ""},
		{"", names + "{san_type: DNS, matcher: {exact: a.example}}, {san_type: URI, matcher: {prefix: 'spiffe://x/'}}]}", "spiffe://x/y", ""},
		{"", names + "{san_type: URI, matcher: {prefix: 'spiffe://x/'}}]}", "spiffe://z/y", "no name of the server's certificate"},
		{"", names + "{san_type: DNS, matcher: {safe_regex: {regex: '[a-z]+[.]example'}}}]}", "abc.example", ""},
		{"", names + "{san_type: DNS, matcher: {safe_regex: {regex: '[a-z]+[.]example'}}}]}", "abc.example.org", "no name of the server's certificate"},
		{"", names + "{san_type: DNS, matcher: {suffix: .EXAMPLE, ignore_case: true}}]}", "abc.example", ""},
		{"", names + "{san_type: IP_ADDRESS, matcher: {exact: 10.0.0.1}}]}", "10.0.0.1", ""},
		{"", strings.Replace(names, "ca.pem", "users.pem", 1) + "{san_type: DNS, matcher: {contains: ample}}]}", "xds.example", "unknown authority"},
	} {
		c, err := Envoy("b.yaml", []byte(w.bootstrap(tt.sni, strings.ReplaceAll(tt.trusted, "DIR", w.dir))), (&bench{}).options())
		if err != nil {
			t.Fatal(err)
		}
		r := c.ADS.Servers[0].Transport.(*made).remote
		err = w.shake(r.credentials, "xds.example:1", tt.host)
		if fmt.Sprint(err) != "<nil>" && tt.want == "" || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s for %s: %v, want %q", tt.trusted, tt.host, err, tt.want)
		}
	}
}

// A field that is missing, or that would need more checks than the client supports, is an error.
func TestEnvoyTLSErrors_CLI1(t *testing.T) {
	w := newWorld(t)
	if err := syscall.Mkfifo(filepath.Join(w.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	const at = "b.yaml: static_resources.clusters[0].transport_socket.typed_config.common_tls_context."
	for trusted, want := range map[string]string{
		"":                       at + "validation_context: is missing: without it, any server would be trusted",
		"validation_context: {}": at + "validation_context: trusted_ca and system_root_certs are missing",
		"validation_context_sds_secret_config: {name: x}":                                                                                    at + "validation_context_sds_secret_config: is not supported",
		"validation_context: {trusted_ca: {filename: DIR/none.pem}}":                                                                         at + "validation_context.trusted_ca.filename: open DIR/none.pem: no such file",
		"validation_context: {trusted_ca: {filename: DIR/pipe}}":                                                                             at + "validation_context.trusted_ca.filename: DIR/pipe: a named pipe, not a regular file",
		"validation_context: {trusted_ca: {filename: DIR/key.pem}}":                                                                          at + "validation_context.trusted_ca: certificate 1 (line 1): is a PRIVATE KEY",
		"validation_context: {trusted_ca: {environment_variable: NONE_SUCH}}":                                                                at + "validation_context.trusted_ca.environment_variable: the variable is not set",
		"validation_context: {trusted_ca: {filename: DIR/ca.pem}, verify_certificate_hash: [x]}":                                             at + "validation_context.verify_certificate_hash: is not supported",
		"validation_context: {system_root_certs: {}, match_typed_subject_alt_names: [{san_type: OTHER_NAME, matcher: {exact: x}}]}":          at + "validation_context.match_typed_subject_alt_names[0].san_type: OTHER_NAME is not supported",
		"validation_context: {system_root_certs: {}, match_typed_subject_alt_names: [{san_type: DNS, matcher: {prefix: ''}}]}":               at + "validation_context.match_typed_subject_alt_names[0].matcher.prefix: is empty",
		"validation_context: {system_root_certs: {}, match_typed_subject_alt_names: [{san_type: DNS, matcher: {safe_regex: {regex: '('}}}]}": at + "validation_context.match_typed_subject_alt_names[0].matcher.safe_regex.regex: ",
	} {
		b := &bench{}
		_, err := Envoy("b.yaml", []byte(w.bootstrap("", strings.ReplaceAll(trusted, "DIR", w.dir))), b.options())
		b.refused(t, trusted, err, strings.ReplaceAll(want, "DIR", w.dir))
	}
	text := strings.Replace(w.bootstrap("", "validation_context: {system_root_certs: {}}"), "key.pem", "ca.pem", 1)
	if _, err := Envoy("b.yaml", []byte(text), (&bench{}).options()); err == nil || !strings.HasPrefix(err.Error(), at+"tls_certificates[0]: tls: ") {
		t.Error(err)
	}
	text = strings.Replace(text, "socket_address: {address: xds.example, port_value: 1}", "pipe: {path: /x}", 1)
	text = strings.Replace(text, "ca.pem", "key.pem", 1)
	if _, err := Envoy("b.yaml", []byte(text), (&bench{}).options()); err == nil || !strings.Contains(err.Error(), "a unix socket needs sni") {
		t.Error(err)
	}
	text = strings.Replace(text, "transport_sockets.tls.v3.UpstreamTlsContext", "transport_sockets.quic.v3.QuicUpstreamTransport", 1)
	if _, err := Envoy("b.yaml", []byte(text), (&bench{}).options()); err == nil || !strings.Contains(err.Error(), "transport_socket.typed_config: ") {
		t.Error(err)
	}
}

// gRFC A65: tls reads the files when a connection starts, and again after refresh_interval.
func TestGRPCTLS_CLI1(t *testing.T) {
	w := newWorld(t)
	text := withCreds(strings.ReplaceAll(`{"type":"tls","config":{"ca_certificate_file":"DIR/late.pem","certificate_file":"DIR/cert.pem","private_key_file":"DIR/key.pem","refresh_interval":"0s"}}`, "DIR", w.dir))
	c, err := GRPC("b.json", []byte(text), (&bench{}).options())
	if err != nil {
		t.Fatal(err)
	}
	creds := c.Servers[0].Transport.(*made).remote.credentials
	if err := w.shake(creds, "xds.example:1", "xds.example"); err == nil || !strings.Contains(err.Error(), "late.pem: no such file") {
		t.Error(err)
	}
	w.write("late.pem", w.servers.PEM)
	if err := w.shake(creds, "xds.example:1", "xds.example"); err != nil {
		t.Error(err)
	}
	w.write("late.pem", []byte("half a file"))
	if err := w.shake(creds, "xds.example:1", "xds.example"); err != nil {
		t.Error("the last good files stay:", err)
	}
	w.write("late.pem", w.users.PEM)
	if err := w.shake(creds, "xds.example:1", "xds.example"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Error(err)
	}
	if err := w.shake(creds, "xds.example:1", "other.example"); err == nil {
		t.Error("another host's certificate")
	}
}
