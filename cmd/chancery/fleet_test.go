package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The commands of docs/fleet.md bring ten running Envoys into groups. Each then has the configuration that it had
// before.
func TestPageOfManyEnvoys(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newTypist(t)
	if p.envoy == "" {
		t.Skip("there is no Envoy")
	}
	write(t, p.root, "bin/envoy", "#!/bin/sh\nexec "+p.envoy+" \"$@\" --concurrency 1 --disable-hot-restart --log-level error\n")
	if err := os.Chmod(filepath.Join(p.root, "bin/envoy"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.root, "fleet")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	shell := func(script string) *exec.Cmd {
		cmd := exec.Command("sh", "-euc", script)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, p.env, &syscall.SysProcAttr{Setpgid: true}
		return cmd
	}
	run := func(script string) string {
		t.Helper()
		out, err := shell(script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}
		return string(out)
	}
	start := func(script, address string) *exec.Cmd {
		t.Helper()
		cmd := shell(script)
		p.awaits(script, p.starts(cmd), 60*time.Second, func() bool { return answers(address) })
		return cmd
	}

	const envoys = 10
	list, old, admins := "", map[string]*exec.Cmd{}, map[string]string{}
	for i := range envoys {
		id, port := fmt.Sprintf("edge-%d", i+1), freePort(t)
		admins[id] = "127.0.0.1:" + port
		list += id + " " + admins[id] + "\n"
		write(t, dir, id+".yaml", fleetEnvoy(id, port, freePort(t)))
		old[id] = start("exec envoy -c "+id+".yaml", admins[id]+"/ready")
	}
	write(t, dir, "envoys", strings.TrimSuffix(list, "\n")) // as some editors write it

	var steps []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		steps = append(steps, strings.ReplaceAll(m[1], "0.0.0.0:18000", "127.0.0.1:"+p.ports["18000"]))
	}
	const serve, restart = 5, 6 // places in steps
	if len(steps) != 9 || !strings.HasPrefix(steps[serve], "chancery serve") || !strings.HasPrefix(steps[restart], "envoy -c") {
		t.Fatalf("the page has other steps: %q", steps)
	}
	for _, step := range steps[:serve] {
		out := run(step)
		t.Log(out)
		if strings.Contains(step, "chancery check") && !strings.HasPrefix(out, "ok") {
			t.Errorf("check: %s", out)
		}
	}
	for path, want := range map[string]bool{"shared/clusters/backend.yaml": true, "edge-1/clusters/backend.yaml": false, "edge-1/listeners/in.yaml": true,
		"shared/listeners/in.yaml": false, "edge-10/_bootstrap.yaml": true} {
		if _, err := os.Stat(filepath.Join(dir, "config", path)); (err == nil) != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	start("exec "+steps[serve], "127.0.0.1:"+p.ports["18001"]+"/api/v1/status")
	for id := range old {
		p.ends(old[id])
		start("id="+id+"\nexec "+steps[restart], admins[id]+"/ready")
		run("id=" + id + "\n" + steps[restart+1])
	}
	out := run(steps[restart+2])
	t.Log(out)
	for id := range old {
		if !regexp.MustCompile(`(?m)^` + id + ` .*` + id + `,shared`).MatchString(out) {
			t.Errorf("%s is not a client with its groups", id)
		}
	}
	if strings.Contains(out, "diff ") {
		t.Error("an Envoy has another configuration than before")
	}
	if !strings.Contains(run(`curl -s "`+admins["edge-7"]+`/clusters"`), "only-in-bootstrap::") {
		t.Error("edge-7 has lost the cluster of its bootstrap")
	}
	if info := run(`curl -s "` + admins["edge-7"] + `/server_info"`); !regexp.MustCompile(`"cluster": +"shop"`).MatchString(info) {
		t.Errorf("edge-7 has lost the cluster of its node: %s", info)
	}
}

// fleetEnvoy is the file of one of many similar Envoys.
func fleetEnvoy(id, admin, port string) string {
	return `
node: {id: ` + id + `, cluster: shop}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: ` + admin + `}}}
stats_sinks:
- name: envoy.stat_sinks.statsd
  typed_config: {"@type": type.googleapis.com/envoy.config.metrics.v3.StatsdSink, tcp_cluster_name: only-in-bootstrap}
static_resources:
  clusters:
  - {name: only-in-bootstrap, type: STATIC, load_assignment: {cluster_name: only-in-bootstrap, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9}}}}]}]}}
  - {name: backend, type: STATIC, metadata: {filter_metadata: {one: {x: 1, y: 2, z: 3}, two: {}, three: {}}}, load_assignment: {cluster_name: backend, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9}}}}]}]}}
  listeners:
  - name: in
    address: {socket_address: {address: 127.0.0.1, port_value: ` + port + `}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
          route_config:
            name: local
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /stats}, route: {cluster: only-in-bootstrap}}, {match: {prefix: /}, route: {cluster: backend}}]}
`
}
