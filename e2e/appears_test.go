package e2e

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Envoy refuses resources that need a missing file, or code that it has not fetched yet. Its documentation of
// nack_on_cache_miss expects that the server sends the resource again. Envoy gets these resources again, and
// accepts them without a change of the configuration (HEAL-2).
func TestRefusedUntilFilesExist(t *testing.T) {
	t.Parallel()
	module := builtModule(t)
	each(t, "HEAL-2 HEAL-5 files that appear later, and code that Envoy fetches;", func(t *testing.T, v variant) {
		module := append(slices.Clip(module), rand.Text()...) // Envoy keeps fetched modules in files, by their hash
		code := map[string][]byte{"/module": module, "/wasm": emptyWasm}
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(code[r.URL.Path]) }))
		t.Cleanup(web.Close)
		remote := func(path string) string {
			return fmt.Sprintf("{remote: {http_uri: {uri: %q, cluster: code, timeout: 5s}, sha256: %x}}", web.URL+path, sha256.Sum256(code[path]))
		}
		t.Cleanup(func() {
			os.Remove(filepath.Join(os.TempDir(), fmt.Sprintf("envoy_dynamic_module_%x.so", sha256.Sum256(module))))
		})
		later := t.TempDir()
		file := func(name string) string { return fmt.Sprintf("{filename: %q}", filepath.Join(later, name)) }

		s := siteOf(t, func(w world) *rig { return newRig(t, w, sourcedBy(v, renamed), "--quarantine", "--retry-refused") })
		s.provoked = "SOTW-5 DELTA-15 the same content again" // the retries
		s.start(v)
		const filter = `- {name: first, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.%s}}`
		listeners := []struct{ name, filter, tls string }{
			{name: "certificate", tls: fmt.Sprintf(`common_tls_context: {tls_certificates: [{certificate_chain: %s, private_key: %s}]}`, file("cert.pem"), file("key.pem"))},
			{name: "module", filter: fmt.Sprintf(filter, `dynamic_modules.v3.DynamicModuleFilter, dynamic_module_config: {module: {local: `+file("module.so")+`}}`)},
			{name: "remote-module", filter: fmt.Sprintf(filter, `dynamic_modules.v3.DynamicModuleFilter, dynamic_module_config: {nack_on_cache_miss: true, module: `+remote("/module")+`}`)},
			{name: "remote-wasm", filter: fmt.Sprintf(filter, `wasm.v3.Wasm, config: {vm_config: {runtime: envoy.wasm.runtime.v8, nack_on_code_cache_miss: true, code: `+remote("/wasm")+`}}`)},
		}
		text, served := "resources:"+fmt.Sprintf(remoteClusters, web.Listener.Addr().(*net.TCPAddr).Port, file("ca.pem")), map[string]caller{}
		for _, l := range listeners {
			port := freePort(t)
			text += strings.NewReplacer("NAME", l.name, "PORT", fmt.Sprint(port), "FILTER", l.filter, "TLS", withTLS("Downstream", l.tls)).Replace(needyListener)
			served[l.name] = anew(port)
			if l.tls != "" {
				served[l.name] = overTLS(port)
			}
		}
		p := s.Mark("resources that need what Envoy does not have")
		(team{s.daemon, "."}).has("case.yaml", []byte(text))
		s.sees(p, soon, "a NACK of each type", func(rs tap.Records) bool { return len(rs.NACKs("LDS")) > 0 && len(rs.NACKs("CDS")) > 0 })

		a := newAuthority(t, "later")
		server := a.issue(t, "server")
		s.Mark("the files appear")
		for name, content := range map[string][]byte{"ca.pem": a.pair.certificate, "cert.pem": server.certificate, "key.pem": server.key, "module.so": module} {
			if err := os.WriteFile(filepath.Join(later, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for name, call := range served {
			eventually(t, 15*time.Second, name+" serves", call.gets(answer{name, ""}))
		}
		eventually(t, 15*time.Second, "the cluster is there", s.envoy.hasClusters("backend", "other", "code", "authority"))
		eventually(t, soon, "nothing is refused any more", func() error {
			if lines := s.daemon.logged("client no longer refuses a type"); len(lines) != 2 {
				return fmt.Errorf("HEAL-5: %v", lines)
			}
			return nil
		})
		s.quiet()
	})
}

// needyListener serves its own name by HTTP.
const needyListener = `
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: NAME
  address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
  filter_chains:
  - TLS
    filters:
    - name: http
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: NAME
        route_config: {name: NAME, virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 200, body: {inline_string: NAME}}}]}]}
        http_filters:
        FILTER
        - {name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
`

// remoteClusters are the cluster for the code of filters, and a cluster that needs a file.
var remoteClusters = `
- ` + yamlCluster + `
  name: code
  connect_timeout: 1s
  load_assignment: {cluster_name: code, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
- ` + yamlCluster + `
  name: authority
  connect_timeout: 1s
  load_assignment: {cluster_name: authority}
  ` + withTLS("Upstream", "common_tls_context: {validation_context: {trusted_ca: %s}}")

// withTLS returns the field transport_socket of a listener or a cluster.
func withTLS(side, context string) string {
	if context == "" {
		return "name: all"
	}
	return `transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.` + side + `TlsContext, ` + context + `}}`
}

// overTLS is a caller that accepts any certificate.
func overTLS(port int) caller {
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return calls(changed{tr, func(r *http.Request) { r.URL.Scheme = "https" }}, port)
}

// builtModule returns a dynamic module of Envoy.
func builtModule(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "module.so")
	text, err := exec.Command("cc", "-shared", "-fPIC", "-o", out, "testdata/retry/module.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// emptyWasm is a Proxy-Wasm module without callbacks: a memory, an allocator that always returns 0, and the
// version of the interface.
var emptyWasm = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x09\x02\x60\x00\x00\x60\x01\x7f\x01\x7f" + // types: without values, and from int32 to int32
	"\x03\x03\x02\x00\x01" + // a function of each type
	"\x05\x03\x01\x00\x01" + // a page of memory
	"\x07\x2d\x03" + "\x06memory\x02\x00" + "\x17proxy_abi_version_0_2_1\x00\x00" + "\x06malloc\x00\x01" + // exports
	"\x0a\x09\x02" + "\x02\x00\x0b" + "\x04\x00\x41\x00\x0b") // code
