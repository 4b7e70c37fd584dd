package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A real Envoy is asked about what nothing is known to be wrong with.
func TestCheckAsksEnvoy(t *testing.T) {
	const envoy = "../../.cache/envoy/envoy-1.40.0"
	if _, err := os.Stat(envoy); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("e2e/install.sh envoy installs one")
	}
	root := t.TempDir()
	write(t, root, "a.yaml", `"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: r
virtual_hosts:
- name: v
  domains: ["*"]
  routes:
  - match: {prefix: /}
    direct_response: {status: 200, body: {filename: /nowhere/at/all}}
---
"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: below zero
connect_timeout: -1s
---
"@type": type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration
name: s
route_configuration_name: r
key: {fragments: [{string_key: k}]}
`)
	out, err := exec.Command(binary, "check", root, "--envoy", envoy).CombinedOutput()
	if err == nil {
		t.Error("it ends with 0")
	}
	for _, want := range []string{
		`a.yaml:1:1: Envoy refuses RDS "r": `, "/nowhere/at/all", "[XDS0901]",
		"a.yaml:12:18: connect_timeout: must be more than 0s, not -1s [XDS0301]",
		`a.yaml:14:1: warning: Envoy was not asked about 1 SRDS resource, of which "s" is the first [XDS0902]`,
		"2 errors, 2 warnings",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	t.Run("what is not told is no news of Envoy's", func(t *testing.T) {
		root := t.TempDir()
		for _, name := range []string{"a", "b", "c"} {
			write(t, root, name+".yaml", `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: `+name+`
address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
filter_chains:
- filters:
  - name: tcp
    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: none}
`)
		}
		for _, most := range []string{"0", "1"} {
			out, _ := exec.Command(binary, "check", root, "--ignore", "XDS0201", "--max-findings", most, "--envoy", envoy).CombinedOutput()
			if !strings.HasSuffix(string(out), "\n2 errors, 0 warnings\n") {
				t.Errorf("--max-findings %s:\n%s", most, out)
			}
		}
	})
	if out, err := exec.Command(binary, "check", "../../examples/quickstart", "--envoy", envoy).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
