package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// Endpoints registered by hand are listed by name, and wrong arguments get a hint.
func TestEndpointsCommands(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	serve(t, []string{"--endpoints", "--admin-listen", socket}, "a.yaml", cluster("a"))
	chancery(t, 0, `chancery: warning: no served cluster uses EDS with the name "b"`, "endpoints", "put", "b", "10.0.0.1:80", "--admin", socket)
	chancery(t, 0, "ok: 0 set, 1 unchanged", "endpoints", "put", "b", "10.0.0.1:80", "--admin", socket)
	chancery(t, 0, "ok: 1 set", "endpoints", "put", "b", "10.0.0.2:80", "--id", "two", "--admin", socket)
	for want, args := range map[string][]string{"b\n": {}, "10.0.0.1:80\ntwo\n": {"b"}} {
		out, err := exec.CommandContext(t.Context(), binary, append([]string{"endpoints", "ls", "-o", "name", "--admin", socket}, args...)...).Output()
		if err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q; %v", args, out, want, err)
		}
	}
	chancery(t, 0, "ok: 0 set, 0 unchanged, 2 removed\n", "endpoints", "rm", "b", "--all", "--admin", socket)
	chancery(t, 0, "so clients get none:\n  EDS b of group default (chancery endpoints rm b -g default --release serves", "status", "--admin", socket)
	chancery(t, 0, "No endpoints are registered.", "endpoints", "ls", "b", "--admin", socket)
	chancery(t, 0, "ok: 0 set, 0 unchanged, 0 removed\nb is not registered any more: its endpoints in files or revisions are served\n", "endpoints", "rm", "b", "--release", "--admin", socket)
	chancery(t, 4, "get groups", "endpoints", "put", "b", "10.0.0.1:80", "-g", "nosuch", "--admin", socket)
	chancery(t, 2, "must be 1 to 100000", "endpoints", "put", "b", "10.0.0.1:80", "--weight", "0", "--admin", socket)
}

// A client whose registered endpoints were all removed has empty endpoints. So diff with a directory shows a
// change, and no missing resource.
func TestDiffOfRemovedEndpoints(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	d := serve(t, []string{"--endpoints", "--admin-listen", socket},
		"cluster.yaml", cluster("back")+"type: EDS\neds_cluster_config: {eds_config: {ads: {}}}\n",
		"endpoints.yaml", "\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\ncluster_name: back\nendpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}]}]\n")
	c := xdstest.SotW(t, d.conn, xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster)
	c.ACK(c.Expect(xds.Cluster, "back"))
	c.Subscribe(xds.Endpoint, "back")
	c.ACK(c.Expect(xds.Endpoint, "back"))
	chancery(t, 0, "no difference", "diff", "client:edge-1", d.dir, "--admin", socket)
	chancery(t, 0, "ok: 1 set", "endpoints", "put", "back", "10.0.0.2:80", "--admin", socket)
	c.ACK(c.Expect(xds.Endpoint, "back"))
	chancery(t, 0, "1 removed", "endpoints", "rm", "back", "--all", "--admin", socket)
	c.ACK(c.Expect(xds.Endpoint, "back"))
	for _, sides := range [][]string{{"client:edge-1", d.dir}, {d.dir, "client:edge-1"}} {
		chancery(t, 1, "~ EDS/back", append(append([]string{"diff"}, sides...), "--admin", socket)...)
	}
}
