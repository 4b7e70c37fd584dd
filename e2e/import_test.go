package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// The bootstraps that are imported. Envoy runs them as they are, too; those of its contrib
// image it does not.
var importedBootstraps = []string{"storefront.yaml", "tcp.yaml", "filters.yaml", "kept.yaml", "spellings.yaml", "forward.json"}

const importerData = "../internal/envoy/importer/testdata/"

// importInto runs chancery import.
func importInto(t *testing.T, args ...string) (config string) {
	t.Helper()
	config = filepath.Join(t.TempDir(), "config")
	if out, err := exec.Command(binary, append([]string{"import", "--out", config}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return config
}

// served runs a daemon on what was imported, and an Envoy on what stays.
func served(t *testing.T, config string) (*daemon, *envoy) {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, dir: config, port: freePort(t), log: filepath.Join(dir, "chancery.log"), args: []string{"--log-level", "debug"}}
	d.start()
	t.Cleanup(d.stop)
	b, err := exec.Command(binary, "bootstrap", "envoy", "--from", filepath.Join(config, "_bootstrap.yaml"), "--server", d.addr(), "--node", "imported", "--admin", "127.0.0.1:0").Output()
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := filepath.Join(dir, "bootstrap.json")
	if err := os.WriteFile(bootstrap, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return d, runEnvoy(t, bootstrap)
}

// has is a condition: Envoy has all listeners of a directory, and refused nothing.
func (e *envoy) has(d *daemon) error {
	log, err := os.ReadFile(d.log)
	if err != nil {
		return err
	}
	if i := bytes.Index(log, []byte("client refused")); i >= 0 {
		d.t.Fatalf("%s", log[i:])
	}
	files, err := filepath.Glob(filepath.Join(d.dir, "listeners", "*"))
	if err != nil {
		return err
	}
	var dump struct {
		Configs []struct {
			ActiveState struct{ Listener json.RawMessage } `json:"active_state"`
		}
	}
	if err := e.dump("dynamic_listeners", &dump); err != nil {
		return err
	}
	active := 0
	for _, l := range dump.Configs {
		if l.ActiveState.Listener != nil {
			active++
		}
	}
	if active != len(files) || active == 0 {
		return fmt.Errorf("%d of %d listeners", active, len(files))
	}
	return nil
}

// A real Envoy gets from this server the configuration that it had before.
func TestImport(t *testing.T) {
	t.Parallel()
	harness.Needs(t, envoyPath)
	for _, name := range importedBootstraps {
		t.Run("FILE-7 Envoy takes "+name+" as it is", func(t *testing.T) {
			t.Parallel()
			if out, err := exec.Command(envoyPath, "--mode", "validate", "--log-level", "error", "--config-path", importerData+"bootstraps/"+name).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		for how, flags := range map[string][]string{"": nil, ", split": {"--split-routes", "--eds"}} {
			t.Run("FILE-8 "+name+how, func(t *testing.T) {
				t.Parallel()
				config := importInto(t, append(flags, importerData+"bootstraps/"+name)...)
				d, e := served(t, config)
				eventually(t, 30*time.Second, "Envoy has the listeners", func() error { return e.has(d) })
				eventually(t, soon, "Envoy differs in nothing from the files", func() error { return differs(config, e) })
			})
		}
	}
	t.Run("FILE-8 files that it subscribed to", func(t *testing.T) {
		t.Parallel()
		d, e := served(t, importInto(t, importerData+"subscribed"))
		eventually(t, 30*time.Second, "Envoy has the listener", func() error { return e.has(d) })
		eventually(t, soon, "and its endpoints", e.dumps("dynamic_endpoint_configs&include_eds", "8601"))
	})
}

// differs returns the output of chancery diff for a directory and an Envoy, unless they are equal.
func differs(config string, e *envoy) error {
	if out, err := exec.Command(binary, "diff", "dir:"+config, "envoy://"+e.Admin).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// An import from a running Envoy gives the same result as an import of its file.
func TestImportFromAdmin(t *testing.T) {
	t.Parallel()
	harness.Needs(t, envoyPath)
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	b, err := os.ReadFile(importerData + "bootstraps/storefront.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n"...)
	if err := os.WriteFile(config, b, 0o600); err != nil {
		t.Fatal(err)
	}
	was := runEnvoy(t, config)
	var imported string
	eventually(t, soon, "Envoy tells its configuration", func() error {
		imported = filepath.Join(t.TempDir(), "config")
		out, err := exec.Command(binary, "import", "--from-admin", was.Admin, "--out", imported).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for _, path := range []string{"clusters/cart.yaml", "clusters/pages.yaml", "listeners/listener_0.yaml", "_bootstrap.yaml"} {
		if _, err := os.Stat(filepath.Join(imported, path)); err != nil {
			t.Error(err)
		}
	}
	stays, err := os.ReadFile(filepath.Join(imported, "_bootstrap.yaml"))
	if err != nil || !strings.Contains(string(stays), "statsd") || strings.Contains(string(stays), "user_agent") {
		t.Error(string(stays), err)
	}
	d, e := served(t, imported)
	eventually(t, 30*time.Second, "another Envoy has the listeners", func() error {
		return e.has(d)
	})

	// And once more, from one that has all of it from a server.
	again := importInto(t, "--from-admin", e.Admin)
	for _, path := range []string{"clusters/cart.yaml", "clusters/pages.yaml", "listeners/listener_0.yaml"} {
		a, err := os.ReadFile(filepath.Join(imported, path))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(again, path)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v\n%s", path, err, b)
		}
	}
}

// Envoy does not show the key of its control plane's cluster, which is left out: Envoy gets the resources from Chancery
// now.
func TestImportFromAdminWithMutualTLS(t *testing.T) {
	t.Parallel()
	harness.Needs(t, envoyPath)
	dir := t.TempDir()
	own := newAuthority(t, "clients").issue(t, "client")
	for file, data := range map[string][]byte{"tls.crt": own.certificate, "tls.key": own.key} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
node: {id: a, cluster: b}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: control}}]}
  cds_config: {ads: {}, initial_fetch_timeout: 0.1s, resource_api_version: V3}
static_resources:
  listeners:
  - name: shop
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: tcp
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: s, cluster: shop}
  clusters:
  - name: shop
    load_assignment: {cluster_name: shop, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]}
  - name: control
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: control, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]}
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          tls_certificates: [{certificate_chain: {filename: %[1]s/tls.crt}, private_key: {filename: %[1]s/tls.key}}]
  secrets:
  - name: unused
    validation_context: {trusted_ca: {filename: %[1]s/tls.crt}}
`, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	was := runEnvoy(t, config)
	var imported string
	eventually(t, soon, "Envoy's configuration is imported", func() error {
		imported = filepath.Join(t.TempDir(), "config")
		if out, err := exec.Command(binary, "import", "--from-admin", was.Admin, "--out", imported).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	d, e := served(t, imported)
	eventually(t, 30*time.Second, "another Envoy has the listener", func() error { return e.has(d) })
}
