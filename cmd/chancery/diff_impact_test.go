package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// says runs a command, and returns its exit code and its output with single spaces.
func (d *runningServer) says(args ...string) (int, string) {
	d.Helper()
	cmd := exec.CommandContext(d.ctx, binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // the exit code reports errors
	return cmd.ProcessState.ExitCode(), strings.Join(strings.Fields(out.String()), " ")
}

// eventually waits up to 10 s until the output of a command contains some texts.
func (d *runningServer) eventually(line string, parts ...string) {
	d.Helper()
	var out string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		_, out = d.says(strings.Fields(line)...)
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(out, part) }) {
			return
		}
	}
	d.Errorf("%s: not all of %q in %s", line, parts, out)
}

// Diff asks the server for the impact of a change: the clients that get it, by group, and the resources to
// push. A client whose group depends on its metadata is compared with that metadata.
func TestDiffImpact(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	files := []string{"a.yaml", cluster("a"), "edge/group.yaml", "match: {metadata: {tier: edge}}\ninclude: [default]\n", "edge/e.yaml", cluster("e")}
	d := serve(t, []string{"--admin-listen", "unix://" + socket}, files...)
	admin := []string{"--admin", "unix://" + socket}
	open := func(id string, tier any, names ...string) {
		t.Helper()
		stream, err := clusterservice.NewClusterDiscoveryServiceClient(d.conn).StreamClusters(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		n := &corev3.Node{Id: id}
		if tier != nil {
			if n.Metadata, err = structpb.NewStruct(map[string]any{"tier": tier}); err != nil {
				t.Fatal(err)
			}
		}
		s := subscriber{d, stream}
		s.send(&discoveryv3.DiscoveryRequest{Node: n, ResourceNames: names})
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	open("plain", nil)
	open("edge-1", "edge")
	open("named", nil, "a")

	after := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		write(t, after, files[i], files[i+1])
	}
	write(t, after, "edge/e.yaml", cluster("e")+"\nconnect_timeout: 3s\n")
	write(t, after, "b.yaml", cluster("b"))
	want := func(code int, line []string, parts ...string) {
		t.Helper()
		got, out := d.says(append(line, admin...)...)
		if got != code {
			t.Errorf("%s: exit code %d, want %d", line, got, code)
		}
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s: no %q in %s", line, part, out)
			}
		}
	}
	// All clients with a wildcard get b, because group edge includes the root. Only group edge gets
	// e.
	want(1, []string{"diff", d.dir, after}, "IMPACT 2 of 3 clients", "PUSHES CDS 2;", "GROUPS default 2, edge 1")
	write(t, after, "b.yaml", "")
	want(1, []string{"diff", d.dir, after}, "IMPACT 1 of 3 clients", "PUSHES CDS 1;", "GROUPS edge 1")
	write(t, after, "a.yaml", cluster("a")+"\nconnect_timeout: 3s\n")
	want(1, []string{"diff", d.dir, after}, "IMPACT 3 of 3 clients", "PUSHES CDS 3;")
	write(t, after, "new/group.yaml", "match: {id: new-*}\n")
	write(t, after, "new/n.yaml", cluster("n"))
	want(1, []string{"diff", d.dir, after}, "IMPACT 3 of 3 clients", "leaves out groups that the server does not have: new ")
	if err := os.RemoveAll(filepath.Join(after, "new")); err != nil {
		t.Fatal(err)
	}

	// The diff compares the resources that the client was sent with its view of the directory: no
	// cluster differs.
	want(0, []string{"diff", "client:edge-1", d.dir}, "no difference")
	want(1, []string{"diff", "client:edge-1", after}, "~ CDS/a", "~ CDS/e", "IMPACT 1 of 1 client")
	want(1, []string{"diff", "client:plain", after}, "~ CDS/a", "0 added", "IMPACT 1 of 1 client")
	want(1, []string{"diff", after, "client:edge-1"}, "2 changed, 0 added, 0 removed")
	if _, out := d.says(append([]string{"diff", after, "client:edge-1"}, admin...)...); strings.Contains(out, "IMPACT") {
		t.Errorf("the resources of a client are not a change for clients: %s", out)
	}
	want(4, []string{"diff", "client:nobody", after}, "nobody")
	if code, out := d.says("diff", d.dir, after, "--admin", "unix:///none/admin.sock"); code != 1 || !strings.Contains(out, "the impact is unknown") {
		t.Errorf("%d %s", code, out)
	}
}
