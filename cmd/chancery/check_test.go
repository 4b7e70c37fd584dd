package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cli"
)

// A real Envoy validates resources without known errors.
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
		t.Error("the exit code is 0")
	}
	for _, want := range []string{
		`a.yaml:1:1: Envoy refuses RDS "r": `, "/nowhere/at/all", "[XDS0901]",
		"a.yaml:12:18: connect_timeout: must be more than 0s, not -1s [XDS0301]",
		`a.yaml:14:1: warning: Envoy did not validate 1 SRDS resource; the first is "s" [XDS0902]`,
		"2 errors, 2 warnings",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	t.Run("a rejected file without a report from Envoy", func(t *testing.T) {
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
	t.Run("a cluster with an error does not cause a second error", func(t *testing.T) {
		for _, setting := range []string{
			"connect_timeout: 0s", "nonsense: 1", "health_checks: [{timeout: 1s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, custom_health_check: {name: nowhere}}]",
		} {
			root := t.TempDir()
			write(t, root, "c.yaml", "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: web\n"+setting+"\n")
			write(t, root, "l.yaml", `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: l
address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
filter_chains:
- filters:
  - name: http
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: s
      http_filters: [{name: r, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
      route_config: {virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: web}}]}]}
`)
			out, _ := exec.Command(binary, "check", root, "--envoy", envoy).CombinedOutput()
			if !strings.HasSuffix(string(out), "\n1 error, 0 warnings\n") || !strings.Contains(string(out), "c.yaml:") {
				t.Errorf("%s:\n%s", setting, out)
			}
		}
	})
	if out, err := exec.Command(binary, "check", "../../examples/quickstart", "--envoy", envoy).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// SAFE-6: Envoy quotes refused values. For a resource with secrets the quote is not printed.
func TestCheckHidesEnvoysQuotesOfSecrets(t *testing.T) {
	root := t.TempDir()
	write(t, root, "s.yaml", "\"@type\": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig\nname: f\ntyped_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth, users: {inline_string: hunter2}}\n")
	envoy := filepath.Join(t.TempDir(), "envoy")
	const script = "#!/bin/sh\n[ \"$1\" != --version ] || { echo \"envoy  version: 0/1.40.0\"; exit 0; }\ngrep -qa hunter2 \"$4\" || exit 0\necho \"error initializing configuration '$4': hunter2 is no user\" >&2\nexit 1\n"
	if err := os.WriteFile(envoy, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "json", "sarif", "github", "junit"} {
		var stdout, stderr strings.Builder
		code := run([]string{"check", root, "--envoy", envoy, "-o", format}, &stdout, &stderr)
		if said := stdout.String() + stderr.String(); code != cli.Failed || strings.Contains(said, "hunter2") || !strings.Contains(said, "the reason is not shown, because it may quote a secret") {
			t.Errorf("SAFE-6 %s: %d\n%s", format, code, said)
		}
	}
}

// Envoy also validates the rest of the bootstrap. Its errors are printed, except quotes of secrets.
func TestCheckEnvoyWithBootstrap(t *testing.T) {
	root := t.TempDir()
	write(t, root, "c.yaml", "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n")
	envoy := filepath.Join(t.TempDir(), "envoy")
	const script = "#!/bin/sh\n[ \"$1\" != --version ] || { echo \"envoy  version: 0/1.40.0\"; exit 0; }\ngrep -qa hunter2 \"$4\" || exit 0\necho \"error initializing configuration '$4': hunter2 is bad\" >&2\nexit 1\n"
	if err := os.WriteFile(envoy, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for bootstrap, want := range map[string]string{
		"static_resources: {clusters: [{name: hunter2}]}":                                              "hunter2 is bad",
		"static_resources: {secrets: [{name: s, generic_secret: {secret: {inline_string: hunter2}}}]}": "the reason is not shown, because it may quote a secret",
	} {
		write(t, root, "_bootstrap.yaml", bootstrap)
		var stdout, stderr strings.Builder
		code := run([]string{"check", root, "--envoy", envoy}, &stdout, &stderr)
		want = filepath.Join(root, "_bootstrap.yaml") + ": Envoy refuses the content of " + filepath.Join(root, "_bootstrap.yaml") + ": " + want + " [XDS0901]\n"
		if said := stdout.String(); code != cli.Failed || !strings.HasPrefix(said, want) || !strings.Contains(said, `Envoy did not validate 1 CDS resource; the first is "a"`) {
			t.Errorf("SAFE-6 exit code %d, want %s, output\n%s%s", code, want, said, &stderr)
		}
	}
}

// The first of many findings are printed, or all; all are counted.
func TestCheckMaxFindings(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.yaml", "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\nhealth_checks:\n"+strings.Repeat("- {nothing: 1}\n", 150))
	for flag, told := range map[string]int{"--strict": 101, "--max-findings=0": 150, "--max-findings=3": 4} {
		var stdout, stderr strings.Builder
		code := run([]string{"check", root, flag}, &stdout, &stderr)
		if got := strings.Count(stdout.String(), root); code != cli.Failed || got != told || !strings.HasSuffix(stdout.String(), "\n150 errors, 0 warnings\n") {
			t.Errorf("%s: %d lines, want %d: %d\n%s", flag, got, told, code, &stderr)
		}
	}
}

// A check that cannot write its findings fails.
func TestCheckFailsIfOutputFails(t *testing.T) {
	_, full := io.Pipe()
	full.CloseWithError(errors.New("no space left"))
	var stderr strings.Builder
	if code := run([]string{"check", "../../examples/quickstart"}, full, &stderr); code != cli.Failed || !strings.Contains(stderr.String(), "closed pipe") {
		t.Errorf("%d\n%s", code, &stderr)
	}
}
