package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// The commands about a server with one client, which refuses a resource and then accepts it.
func TestCommandsAboutOneClient(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	d := serve(t, []string{"--admin-listen", "unix://" + socket, "--retry-refused=false"}, "a.yaml", cluster("a"), "b.yaml", "# the bad one\n"+cluster("b"))
	asks := d.asks("unix://" + socket)
	asks("status", 0, "CLIENTS none connected", "2 resources in 2 files")
	asks("explain test cluster/a", 1, "✘ connected")
	if out, _ := exec.CommandContext(d.ctx, binary, "status", "--admin", "http://"+d.conn.Target()).CombinedOutput(); strings.Count(string(out), "\n") != 2 || !strings.Contains(string(out), "does not speak HTTP/1.1") {
		t.Errorf("where xDS is served, an error and a hint: %s", out)
	}
	asks("status test", 4, `no client with the node id "test"`)

	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "Error adding/updating cluster(s) b: no"}})
	d.logged("client refused a response (NACK)")
	s.gets("a") // in quarantine
	asks("wait --for=synced --timeout 5s", 1, "CDS b", "b.yaml:2:1", "1 refusing")
	asks("status", 1, "1 connected: 0 synced, 1 refusing", "test 0s CDS")
	asks("get nacks", 0, "b.yaml:2:1")
	asks("get all --node test", 0, "CDS b NACKED")
	asks("explain test cluster/b", 1, "✘ accepted")
	asks("get events --node test", 0, " nack test CDS ")

	write(t, d.dir, "b.yaml", "# the bad one\n"+cluster("b")+"\nconnect_timeout: -1s\n")
	if r, err = s.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "Error adding/updating cluster(s) b: no"}})
	d.logged("client refused a response (NACK)")
	d.loggedAround("resource in quarantine: the client refuses it, and gets the others") // HEAL-1: nothing is sent, since a is unchanged
	asks("status test", 1, "in quarantine: b version", "it has no resource of that name (named)")
	asks("status", 1, "b.yaml:5:18") // the line of the field
	asks("get all --node test", 0, "b.yaml:5:18")
	asks("get events --kind nack", 0, "b.yaml:5:18", " nack test CDS ")
	asks("get events --kind commit --node test", 0)
	asks("get clusters --kind nack", 2, "only get events takes --kind")
	asks("status test", 1, "CDS b at "+d.dir+"/b.yaml:5:18: connect_timeout: must be more than 0s")

	write(t, d.dir, "b.yaml", cluster("c"))
	s.gets("a", "c")
	asks("wait --for=synced --timeout 5s", 0, "ok: 1 connected: 1 synced")
	asks("reload", 0, "ok: 2 resources in 2 files", "chancery: asking unix://"+socket+", which serves "+d.dir+" (process ")
	asks("reload "+d.dir, 0, "ok: 2 resources in 2 files", "which serves "+d.dir)
	asks("reload "+filepath.Dir(d.dir), 1, "does not serve "+filepath.Dir(d.dir))
	asks("wait --for=synced "+filepath.Dir(d.dir), 1, "does not serve")
	asks("wait --for=synced "+d.dir, 0, "ok: 1 connected")
	asks("status test", 0, "CDS SYNCED all")
	asks("get clusters -o wide", 0, "c default")
	asks("graph cluster/c", 0, "CDS c")
	asks("graph cluster/b", 4, `CDS "b"`)
	asks("bugreport", 0, "no secrets")
	asks("get groups", 0, "default 2 1 connected: 1 synced")
}

// A removed member of an aggregate cluster stays while the client refuses the aggregate without it. The commands
// name the reason.
func TestCommandsAboutAKeptMember(t *testing.T) {
	t.Parallel()
	aggregate := func(timeout, members string) string {
		return `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: all
connect_timeout: ` + timeout + `
lb_policy: CLUSTER_PROVIDED
cluster_type:
  name: envoy.clusters.aggregate
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
    clusters: [` + members + "]\n"
	}
	socket := filepath.Join(t.TempDir(), "admin.sock")
	d := serve(t, []string{"--admin-listen", "unix://" + socket, "--retry-refused=false"}, "all.yaml", aggregate("1s", "a, b")+"---\n"+cluster("a")+"---\n"+cluster("b"))
	asks := d.asks("unix://" + socket)
	s := d.clusters()
	s.gets("a", "all", "b")

	write(t, d.dir, "all.yaml", aggregate("0s", "a")+"---\n"+cluster("a"))
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "Error adding/updating cluster(s) all: no"}})
	d.loggedAround("resource in quarantine: the client refuses it, and gets the others")
	asks("get all --node test", 0, "CDS b LEAVING - ", " still used by CDS all")
	asks("explain test cluster/b", 1,
		`✘ defined no file has CDS "b"`, `✔ sent it was removed from the files, and is kept while CDS "all" may refer to it`,
		`→ the client keeps it because of CDS "all": chancery explain test CDS/all. If it is missing by mistake, put it into a file of the directory`)
	asks("explain test cluster/all", 1, "✘ accepted the client refused it")
}

// asks returns a function that runs a command and checks its exit code and parts of its output.
func (d *runningServer) asks(admin string) func(line string, code int, want ...string) {
	return func(line string, code int, want ...string) {
		d.Helper()
		cmd := exec.CommandContext(d.ctx, binary, append(strings.Fields(line), "--admin", admin)...)
		cmd.Dir = d.TempDir()
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // the exit code reports errors
		if got := cmd.ProcessState.ExitCode(); got != code {
			d.Errorf("%s: exit code %d, want %d\n%s", line, got, code, &out)
		}
		for _, part := range want {
			if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), part) {
				d.Errorf("%s: no %q in\n%s", line, part, &out)
			}
		}
	}
}
