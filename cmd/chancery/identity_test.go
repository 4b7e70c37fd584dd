package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

// A mutual is a daemon with TLS on both sides.
type mutual struct {
	*runningServer
	ca     *tlstest.Authority
	files  string // the directory of its certificates
	target string
}

func serveMutual(t *testing.T, flags []string, files ...string) *mutual {
	t.Helper()
	m := &mutual{ca: tlstest.NewAuthority(t, "ca"), files: t.TempDir()}
	m.certificate(t)
	write(t, m.files, "ca", string(m.ca.PEM))
	in := func(name string) string { return filepath.Join(m.files, name) }
	m.runningServer = serve(t, append([]string{"--tls-cert", in("crt"), "--tls-key", in("key"), "--client-ca", in("ca")}, flags...), files...)
	m.target = m.conn.Target()
	return m
}

// certificate gives the server a new certificate.
func (m *mutual) certificate(t *testing.T) {
	own := m.ca.Issue("server", "127.0.0.1")
	write(t, m.files, "key", string(own.Key))
	write(t, m.files, "crt", string(own.Cert))
}

// config returns the TLS configuration of a client with a certificate.
func (m *mutual) config(p tlstest.Pair) *tls.Config {
	m.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		m.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.ca.PEM)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

// as opens a stream with a node id.
func (d *runningServer) as(id string, more ...string) subscriber {
	d.Helper()
	stream, err := clusterservice.NewClusterDiscoveryServiceClient(d.conn).StreamClusters(metadata.AppendToOutgoingContext(d.ctx, more...))
	if err != nil {
		d.Fatal(err)
	}
	s := subscriber{d, stream}
	s.send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: id}})
	return s
}

// refused fails the test unless the stream ends with this code and text.
func (s subscriber) refused(code codes.Code, want string) {
	s.Helper()
	r, err := s.stream.Recv()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), want) {
		s.Errorf("%v, %v; want %v: %s", r, err, code, want)
	}
}

const deniedLine = "client denied: its identity may not be this node"

func TestBinding(t *testing.T) {
	t.Run("SAFE-13 the certificate of a client names its node", func(t *testing.T) {
		t.Parallel()
		m := serveMutual(t, []string{"--rest-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
		api := adminClient(t, adminclient.Target{URL: "http://" + adminOf(t, m.runningServer)})
		at := m.logged("serving REST-JSON")["http"].(string)
		for _, tt := range []struct {
			names []string
			node  string
			ok    bool
		}{
			{[]string{"test"}, "test", true},
			{[]string{"other", "test"}, "test", true},
			{[]string{"spiffe://example/ns/edge/test"}, "test", true},
			{[]string{"spiffe://example/ns/edge/test"}, "spiffe://example/ns/edge/test", true},
			{[]string{"test"}, "other", false},
			{[]string{"spiffe://example/test/other"}, "test", false},
			{nil, "test", false}, // the common name is not an identity
			{[]string{"test"}, "", false},
		} {
			config := m.config(m.ca.Issue("test", tt.names...))
			m.dial(m.target, credentials.NewTLS(config))
			s := m.as(tt.node)
			if tt.ok {
				s.gets("a")
			} else {
				s.refused(codes.PermissionDenied, "")
				line := m.logged(deniedLine)
				if line["node"] != tt.node || line["code"] != "PermissionDenied" || !strings.Contains(fmt.Sprint(line["identity"]), "test") || !strings.HasPrefix(fmt.Sprint(line["peer"]), "127.0.0.1:") {
					t.Error(line)
				}
			}
			if tt.node == "other" {
				x, err := api.Explain(m.ctx, tt.node, "CDS", "a")
				if err != nil || x.Broken != "allowed" {
					t.Errorf("explain: %+v %v", x, err)
				}
			}
			if tt.node != "test" {
				continue
			}
			want := http.StatusOK
			if !tt.ok {
				want = http.StatusForbidden
			}
			if r, _, body := m.poller(config, "tcp", at).poll(""); r.StatusCode != want {
				t.Errorf("over REST: %v as %s: %d %s", tt.names, tt.node, r.StatusCode, body)
			}
		}
	})
	t.Run("SAFE-13 --access any: any node, as before", func(t *testing.T) {
		t.Parallel()
		m := serveMutual(t, []string{"--access", "any"}, "a.yaml", cluster("a"))
		m.dial(m.target, credentials.NewTLS(m.config(m.ca.Issue("client", "c"))))
		m.as("anybody").gets("a")
	})
	t.Run("SAFE-13 a stream outlives new certificates of the server, and those of its client do not change it", func(t *testing.T) {
		t.Parallel()
		m := serveMutual(t, nil, "a.yaml", cluster("a"))
		m.dial(m.target, credentials.NewTLS(m.config(m.ca.Issue("c", "test"))))
		s := m.as("test")
		s.gets("a")
		m.certificate(t)
		for {
			time.Sleep(100 * time.Millisecond) // files are looked at once a second, when clients connect
			m.dial(m.target, credentials.NewTLS(m.config(m.ca.Issue("c", "test"))))
			m.as("test").gets("a")
			if m.said("TLS files changed") {
				break
			}
		}
		write(t, m.dir, "a.yaml", cluster("b"))
		s.gets("b")
	})
	t.Run("SAFE-13 a connection ends with its certificate", func(t *testing.T) {
		t.Parallel()
		m := serveMutual(t, nil, "a.yaml", cluster("a"))
		end := time.Now().Add(4 * time.Second).Truncate(time.Second)
		config := m.config(m.ca.IssueUntil(end, "c", "test"))
		later := m.config(m.ca.Issue("c", "test")).Certificates[0]
		first := config.Certificates[0]
		shown := 0
		config.Certificates = nil
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if shown++; shown == 1 {
				return &first, nil
			}
			return &later, nil
		}
		m.dial(m.target, credentials.NewTLS(config))
		s := m.as("test")
		s.gets("a")
		if _, err := s.stream.Recv(); err == nil || time.Now().After(end.Add(500*time.Millisecond)) {
			t.Error(time.Since(end), err)
		}
		m.as("test").gets("a") // with the next certificate
	})
}

func TestAccess(t *testing.T) {
	const rules = "rules:\n- {identity: {dns: client}, node: {id: \"edge-*\"}}\n"
	at := func(t *testing.T) string {
		dir := t.TempDir()
		write(t, dir, "access.yaml", rules)
		return filepath.Join(dir, "access.yaml")
	}
	t.Run("SAFE-13 rules decide, also for open streams when they change, and errors change nothing", func(t *testing.T) {
		t.Parallel()
		path := at(t)
		m := serveMutual(t, []string{"--access", path}, "a.yaml", cluster("a"))
		m.dial(m.target, credentials.NewTLS(m.config(m.ca.Issue("c", "client"))))
		one, two := m.as("edge-1"), m.as("edge-2")
		one.gets("a")
		two.gets("a")
		m.as("client").refused(codes.PermissionDenied, "")
		write(t, filepath.Dir(path), "access.yaml", "rules: [")
		if line := m.logged("access rules rejected, keeping the previous ones"); !strings.HasPrefix(fmt.Sprint(line["error"]), path+":") {
			t.Error(line)
		}
		m.as("edge-3").gets("a")
		write(t, filepath.Dir(path), "access.yaml", strings.ReplaceAll(rules, "edge-*", "edge-1"))
		two.refused(codes.PermissionDenied, "")
		if line := m.logged(deniedLine); line["node"] == "edge-1" {
			t.Error(line)
		}
		write(t, m.dir, "a.yaml", cluster("b"))
		one.gets("b")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		m.logged("access rules rejected, keeping the previous ones")
		m.as("edge-1").gets("b")
		write(t, filepath.Dir(path), "access.yaml", rules)
		m.logged("access rules loaded")
		m.as("edge-2").gets("b")
	})
	t.Run("SAFE-13 users of a socket need rules where there are any", func(t *testing.T) {
		t.Parallel()
		path := at(t)
		write(t, filepath.Dir(path), "access.yaml", fmt.Sprintf("rules:\n- {identity: {kind: unix, uid: %d}, node: {id: mine}}\n", os.Getuid()))
		socket, rest := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "r")
		d := serve(t, []string{"--access", path, "--listen", "unix://" + socket, "--rest-listen", "unix://" + rest}, "a.yaml", cluster("a"))
		d.as("mine").refused(codes.PermissionDenied, "") // over TCP
		d.dial("unix://"+socket, insecure.NewCredentials())
		d.as("mine").gets("a")
		d.as("other").refused(codes.PermissionDenied, "")
		if r, _, body := d.poller(nil, "unix", rest).poll(""); r.StatusCode != http.StatusForbidden || !strings.Contains(body, fmt.Sprint("uid ", os.Getuid())) {
			t.Error(r.StatusCode, body)
		}
	})
	t.Run("SAFE-13 at the start errors end the program", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "access.yaml", "rules:\n- {identity: {dns: a}, nodes: {}}\n", "keys.json", "{}")
		for want, flags := range map[string][]string{
			"access.yaml:2:":     {"--access", dir + "/access.yaml"},
			"no such file":       {"--access", dir + "/none.yaml"},
			"not a regular file": {"--access", dir},
			"has no usable key":  {"--jwt-issuer", "i", "--jwt-audience", "a", "--jwks", dir + "/keys.json"},
		} {
			out, err := exec.Command(binary, append([]string{"serve", dir, "--listen", "127.0.0.1:0", "--admin-listen", ""}, flags...)...).CombinedOutput()
			if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 1 || !strings.Contains(string(out), want) {
				t.Errorf("%v: %v, want exit code 1 and %q:\n%s", flags, err, want, out)
			}
		}
		for want, flags := range map[string][]string{
			"tokens need all of":   {"--jwt-issuer", "i", "--jwks", "f"},
			"is plain text":        {"--jwt-issuer", "i", "--jwt-audience", "a", "--jwks", "http://a.example/"},
			"an audience is empty": {"--jwt-issuer", "i", "--jwt-audience", "a,", "--jwks", "f"},
		} {
			out, err := exec.Command(binary, append([]string{"serve", dir}, flags...)...).CombinedOutput()
			if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 2 || !strings.Contains(string(out), want) {
				t.Errorf("%v: %v, want exit code 2 and %q:\n%s", flags, err, want, out)
			}
		}
	})
}

// said reports whether a line was logged up to now.
func (d *runningServer) said(msg string) bool {
	for {
		select {
		case line := <-d.log:
			if line["msg"] == msg {
				return true
			}
		default:
			return false
		}
	}
}

// An issuer signs tokens.
type issuer struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	id   string
	file string
}

func newIssuer(t *testing.T, file string) *issuer {
	i := &issuer{t: t, file: file}
	i.rotate("k1")
	return i
}

// rotate replaces its key.
func (i *issuer) rotate(id string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.key, i.id = key, id
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: id, Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(i.file, b, 0o600); err != nil {
		i.t.Fatal(err)
	}
}

func (i *issuer) token(sub string, exp time.Time) string {
	i.t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	b, _ := json.Marshal(map[string]any{"iss": "https://issuer.example", "aud": "xds", "sub": sub, "exp": exp.Unix()})
	o, err := s.Sign(b)
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := o.CompactSerialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

func (i *issuer) flags() []string {
	return []string{"--jwt-issuer", "https://issuer.example", "--jwt-audience", "xds", "--jwks", i.file}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, filepath.Join(t.TempDir(), "jwks.json"))
	port := freePort(t)
	d := serve(t, append(i.flags(), "--metrics-listen", "127.0.0.1:"+port), "a.yaml", cluster("a"))
	d.dial(d.conn.Target(), insecure.NewCredentials())
	hour := time.Now().Add(time.Hour)
	token := i.token("spiffe://example/test", hour)
	s := d.as("test", "authorization", "Bearer "+token)
	s.gets("a")
	d.as("other", "authorization", "Bearer "+token).refused(codes.PermissionDenied, "")
	d.as("test").refused(codes.PermissionDenied, "")
	for _, tt := range []struct{ token, want string }{
		{i.token("spiffe://example/test", time.Now().Add(-time.Hour)), "the token expired at"},
		{token[:len(token)-10] + "AAAAAAAAAA", "signature is wrong"},
		{"eyJhbGciOiJub25lIn0.e30.", `the algorithm "none"`},
		{strings.Repeat("x", 20_000), "has 20000 bytes"},
		{"x", "malformed"},
	} {
		d.as("test", "authorization", "Bearer "+tt.token).refused(codes.Unauthenticated, tt.want)
		line := d.logged(deniedLine)
		for line["code"] != "Unauthenticated" {
			line = d.logged(deniedLine)
		}
		if b, _ := json.Marshal(line); !strings.Contains(string(b), tt.want) && !strings.Contains(fmt.Sprint(line["error"]), tt.want) || len(tt.token) > 10 && strings.Contains(string(b), tt.token[len(tt.token)-10:]) || line["node"] != "test" {
			t.Errorf("%s: want %q, and no part of the token", b, tt.want)
		}
	}
	d.tells(port, "/metrics", "\nxds_server_denied_total 7\n")

	// A token is valid for 30 s longer than its expiry time, because clocks differ.
	brief := d.as("test", "authorization", "Bearer "+i.token("spiffe://example/test", time.Now().Add(-27*time.Second)))
	brief.gets("a")
	brief.refused(codes.Unauthenticated, "has expired")
	d.logged("client's identity expired: its stream ends")

	old := token
	i.rotate("k2")
	d.as("test", "authorization", "Bearer "+i.token("spiffe://example/test", hour)).gets("a")
	d.as("test", "authorization", "Bearer "+old).refused(codes.Unauthenticated, `the key "k1", which the issuer does not have`)
	write(t, d.dir, "a.yaml", cluster("b"))
	s.gets("b") // the open stream stays
}

func TestSockets(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	m := serveMutual(t, []string{"--listen", socket}, "a.yaml", cluster("a"))
	m.dial(socket, insecure.NewCredentials())
	m.as("anybody").gets("a") // the mode of the socket's file decides who may connect
}
