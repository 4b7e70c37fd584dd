package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// issueFor signs a certificate with a SPIFFE ID, for a time.
func (a authority) issueFor(t *testing.T, name, spiffe string, life time.Duration) pair {
	t.Helper()
	u, err := url.Parse(spiffe)
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := sign(t, name, elliptic.P256(), &x509.Certificate{
		URIs: []*url.URL{u}, NotAfter: time.Now().Add(life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	return p
}

// An identified is a daemon with certificates on both sides, and what Envoys need.
type identified struct {
	*daemon
	t                *testing.T
	servers, clients authority
	files            string
	a, b             upstream
	at               int // the port of ingress
	ingress          caller
}

func newIdentified(t *testing.T, args ...string) *identified {
	t.Helper()
	i := &identified{
		t: t, servers: newAuthority(t, "servers"), clients: newAuthority(t, "clients"),
		files: t.TempDir(), a: newUpstream(t, "a"), b: newUpstream(t, "b"),
	}
	i.at = freePort(t)
	i.ingress = via(t, i.at)
	i.put("ca.crt", i.servers.pair.certificate)
	i.put("clients.crt", i.clients.pair.certificate)
	i.serverPair("one")
	i.daemon = newDaemon(t, i.world(i.a), renamed, append(args, "--tls-cert", i.path("tls.crt"), "--tls-key", i.path("tls.key"), "--client-ca", i.path("clients.crt"))...)
	return i
}

func (i *identified) world(to upstream) world { return small(i.at, to) }

func small(port int, to upstream) world {
	return newWorld(edsCluster("backend", time.Second), assignment("backend", to.port), httpListener("ingress", port, "ingress"), routes("ingress", "1", "backend"))
}

func (i *identified) path(name string) string { return filepath.Join(i.files, name) }

// put replaces a file in one step.
func (i *identified) put(name string, b []byte) {
	i.t.Helper()
	next := i.path("." + name)
	if err := os.WriteFile(next, b, 0o600); err != nil {
		i.t.Fatal(err)
	}
	if err := os.Rename(next, i.path(name)); err != nil {
		i.t.Fatal(err)
	}
}

func (i *identified) serverPair(name string) {
	i.t.Helper()
	p := i.servers.issue(i.t, name)
	i.put("tls.key", p.key)
	i.put("tls.crt", p.certificate)
}

// clientPair gives Envoy a certificate, by a file that it watches.
func (i *identified) clientPair(p pair) {
	i.t.Helper()
	b, err := json.Marshal(map[string]any{"resources": []any{map[string]any{
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "client",
		"tls_certificate": map[string]any{
			"certificate_chain": map[string]any{"inline_string": string(p.certificate)},
			"private_key":       map[string]any{"inline_string": string(p.key)},
		},
	}}})
	if err != nil {
		i.t.Fatal(err)
	}
	i.put("client.json", b)
}

// mutual makes Envoy connect by TLS, with the certificate in that file.
func (i *identified) mutual(b bootstrap) {
	xds := b["static_resources"].(map[string]any)["clusters"].([]any)[0].(map[string]any)
	xds["transport_socket"] = map[string]any{
		"name": "envoy.transport_sockets.tls",
		"typed_config": map[string]any{
			"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
			"sni":   "e2e.example",
			"common_tls_context": map[string]any{
				"alpn_protocols": []any{"h2"},
				"tls_certificate_sds_secret_configs": []any{map[string]any{
					"name": "client", "sds_config": map[string]any{"path_config_source": map[string]any{"path": i.path("client.json")}},
				}},
				"validation_context": map[string]any{"trusted_ca": map[string]any{"filename": i.path("ca.crt")}},
			},
		},
	}
}

// stat is a counter or gauge of an Envoy.
func (e *envoy) stat(name string) (int, error) {
	b, err := e.Get("/stats?filter=^" + strings.ReplaceAll(name, ".", "\\.") + "$")
	if err != nil {
		return 0, err
	}
	_, value, ok := strings.Cut(strings.TrimSpace(string(b)), ": ")
	if !ok {
		return 0, fmt.Errorf("no %s", name)
	}
	return strconv.Atoi(value)
}

// is is a condition: a stat has a value.
func (e *envoy) is(name string, want int) func() error {
	return func() error {
		got, err := e.stat(name)
		if err == nil && got != want {
			err = fmt.Errorf("%s is %d, want %d", name, got, want)
		}
		return err
	}
}

// denied is a condition: the log says that a node was denied.
func (d *daemon) denied(node, code string) func() error {
	return func() error {
		for _, line := range d.logged("client denied: its identity may not be this node") {
			if text := fmt.Sprint(line); strings.Contains(text, node) && strings.Contains(text, code) {
				return nil
			}
		}
		return errors.New("nothing in the log")
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, v := range []variant{sotw, delta} {
		t.Run(fmt.Sprint("SAFE-13 an Envoy is the node of its certificate, and no other, ", v), func(t *testing.T) {
			t.Parallel()
			i := newIdentified(t)
			i.clientPair(i.clients.issueFor(t, "edge", "spiffe://e2e.example/ns/edge/e2e", time.Hour))
			startEnvoy(t, "e2e", v, i.port, i.mutual)
			eventually(t, soon, "ingress serves", i.ingress.gets(answer{"a", "1"}))

			other := startEnvoy(t, "victim", v, i.port, i.mutual)
			eventually(t, soon, "the impersonator is in the log", i.denied("victim", "PermissionDenied"))
			eventually(t, soon, "it got the change", func() error { return other.counts("control_plane.connected_state", 0) })
			for _, line := range i.daemon.logged("client denied: its identity may not be this node") {
				if text := fmt.Sprint(line); !strings.Contains(text, "spiffe://e2e.example/ns/edge/e2e") || strings.Contains(text, "BEGIN") {
					t.Error(line)
				}
			}
			if n, err := other.stat("cluster_manager.active_clusters"); err != nil || n != 1 {
				t.Errorf("it has %d clusters, of which xds is one: %v", n, err)
			}
			if err := i.ingress.gets(answer{"a", "1"})(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (e *envoy) counts(name string, want int) error { return e.is(name, want)() }

// Certificates change on both sides under a stream, and the old one of the client expires.
func TestIdentityRotation(t *testing.T) {
	t.Parallel()
	i := newIdentified(t)
	const life = 40 * time.Second
	const id = "spiffe://e2e.example/ns/edge/e2e"
	began := time.Now()
	i.clientPair(i.clients.issueFor(t, "first", id, life))
	e := startEnvoy(t, "e2e", delta, i.port, i.mutual)
	eventually(t, soon, "ingress serves", i.ingress.gets(answer{"a", "1"}))
	load := loaded(t, i.ingress, nil)

	i.serverPair("two")
	i.clientPair(i.clients.issueFor(t, "second", id, time.Hour))
	eventually(t, soon, "Envoy has its new certificate", e.is("cluster.xds.client_ssl_socket_factory.ssl_context_update_by_sds", 2))
	i.write(i.world(i.b))
	eventually(t, soon, "a change arrives", i.ingress.gets(answer{"b", "1"}))
	if time.Since(began) < life*8/10 {
		if err := e.counts("cluster.xds.upstream_cx_total", 1); err != nil {
			t.Error("SAFE-13 the stream goes on with new certificates:", err)
		}
	}

	eventually(t, life, "SAFE-13 the connection ends with the first certificate, and the second one opens another", e.is("cluster.xds.upstream_cx_total", 2))
	if since := time.Since(began); since < life*85/100 || since > life+5*time.Second {
		t.Errorf("after %v of %v", since, life)
	}
	i.write(i.world(i.a))
	eventually(t, soon, "a change arrives", i.ingress.gets(answer{"a", "1"}))
	if lines := i.daemon.logged("client denied: its identity may not be this node"); len(lines) > 0 {
		t.Error(lines)
	}
	load.Unharmed(t)
}

// An Envoy shows a token.
func TestIdentityToken(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	coordinates, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(keys, fmt.Appendf(nil, `{"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":%q,"y":%q}]}`, b64(coordinates[1:33]), b64(coordinates[33:])), 0o600); err != nil {
		t.Fatal(err)
	}
	token := func(exp time.Time) string {
		text := b64([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + b64(fmt.Appendf(nil, `{"iss":"https://e2e.example","aud":"xds","sub":"spiffe://e2e.example/e2e","exp":%d}`, exp.Unix()))
		sum := sha256.Sum256([]byte(text))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	}
	shows := func(token string) func(bootstrap) {
		return func(b bootstrap) {
			service := b["dynamic_resources"].(map[string]any)["ads_config"].(map[string]any)["grpc_services"].([]any)[0].(map[string]any)
			service["initial_metadata"] = []any{map[string]any{"key": "authorization", "value": "Bearer " + token}}
		}
	}
	port, a := freePort(t), newUpstream(t, "a")
	ingress := via(t, port)
	d := newDaemon(t, small(port, a), renamed, "--jwt-issuer", "https://e2e.example", "--jwt-audience", "xds", "--jwks", keys)
	startEnvoy(t, "e2e", delta, d.port, shows(token(time.Now().Add(-time.Hour))))
	eventually(t, soon, "SAFE-13 an expired token is in the log", d.denied("the token expired", "Unauthenticated"))
	startEnvoy(t, "victim", delta, d.port, shows(token(time.Now().Add(time.Hour))))
	eventually(t, soon, "SAFE-13 the token of another node is in the log", d.denied("victim", "PermissionDenied"))
	startEnvoy(t, "e2e", delta, d.port, shows(token(time.Now().Add(time.Hour))))
	eventually(t, soon, "SAFE-13 a good token is served", ingress.gets(answer{"a", "1"}))
}
