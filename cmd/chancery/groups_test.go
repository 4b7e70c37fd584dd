package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// of opens an aggregated stream of a node for all clusters.
func (d *runningServer) of(id string) subscriber {
	d.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
	if err != nil {
		d.Fatal(err)
	}
	s := subscriber{d, stream}
	s.send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: id}, TypeUrl: xds.Cluster.URL, ResourceNames: []string{xds.Wildcard}})
	return s
}

// also asks for a resource of another type.
func (s subscriber) also(t *xds.Type, name string) {
	s.Helper()
	s.send(&discoveryv3.DiscoveryRequest{TypeUrl: t.URL, ResourceNames: []string{name}})
}

// took waits for the next response, accepts it, and compares its type and names.
func (s subscriber) took(t *xds.Type, names ...string) {
	s.Helper()
	r, err := s.stream.Recv()
	if err != nil {
		s.Fatal(err)
	}
	again := &discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce, ResourceNames: []string{xds.Wildcard}}
	if r.TypeUrl == xds.Route.URL {
		again.ResourceNames = []string{"r"}
	}
	s.send(again)
	if r.TypeUrl != t.URL || len(r.Resources) != len(names) {
		s.Fatalf("%s with %d resources, want %s with %v", r.TypeUrl, len(r.Resources), t.URL, names)
	}
	for _, name := range names {
		found := false
		for _, a := range r.Resources {
			found = found || strings.Contains(string(a.Value), name)
		}
		if !found {
			s.Errorf("there is no %s in %v", name, r)
		}
	}
}

func routeTo(cluster string) string {
	return `"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: r
virtual_hosts: [{name: h, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: ` + cluster + `}}]}]
`
}

// Two nodes in different groups of one directory.
func TestGroupsServed(t *testing.T) {
	d := serve(t, []string{"--metrics-listen", "127.0.0.1:0"}, "a.yaml", cluster("old"), "r.yaml", routeTo("old"), "group.yaml", "otherwise: refuse\n",
		"base/group.yaml", "match: {id: \"b-*\"}\ninclude: [default]\n", "base/b.yaml", cluster("own"),
		"canary/group.yaml", "match: {cel: node.id == \"canary\"}\n", "canary/a.yaml", cluster("new"), "canary/r.yaml", routeTo("new"))
	d.meanwhile("loaded")
	for _, line := range d.passed {
		if line["msg"] == "loaded" && line["groups"] != 3.0 {
			t.Error(line)
		}
	}
	base, canary := d.of("b-1"), d.of("canary")
	base.took(xds.Cluster, "old", "own")
	canary.took(xds.Cluster, "new")
	canary.also(xds.Route, "r")
	canary.took(xds.Route, "new")

	stranger := d.of("stranger")
	if _, err := stranger.stream.Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `node id "stranger", cluster ""`) {
		t.Error(err)
	}

	// A node moves and keeps the resources that it still needs: its cluster is removed after its
	// route.
	write(t, d.dir, "base/group.yaml", "match: {id: [\"b-*\", canary]}\ninclude: [default]\n", "canary/group.yaml", "match: {id: other}\n")
	canary.took(xds.Cluster, "new", "old", "own")
	canary.took(xds.Route, "old")
	canary.took(xds.Cluster, "old", "own")

	// A refused resource is logged with its place in the group that the node sees.
	write(t, d.dir, "canary/a.yaml", cluster("own"), "base/b.yaml", cluster("own")+"connect_timeout: 1s\n")
	r, err := base.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	base.send(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ResourceNames: []string{xds.Wildcard}, ErrorDetail: &rpcstatus.Status{Message: "Error adding/updating cluster(s) own: no"}})
	if line := d.logged("client refused a response (NACK)"); !strings.HasPrefix(fmt.Sprint(line["at"]), "["+filepath.Join(d.dir, "base", "b.yaml")+":1:1") {
		t.Error(line)
	}
}

// A group with "on_error: alone" and errors does not stop changes of another group. The server also
// restarts on unreadable files.
func TestGroupAlone(t *testing.T) {
	port, admin := freePort(t), freePort(t)
	flags := []string{"--metrics-listen", "127.0.0.1:" + port, "--admin-listen", "127.0.0.1:" + admin}
	d := serve(t, flags, "a.yaml", cluster("a"), "edge/group.yaml", "match: {id: edge}\non_error: alone\n", "edge/e.yaml", cluster("e"))
	d.kept(1)
	edge, other := d.of("edge"), d.of("other")
	edge.took(xds.Cluster, "e")
	other.took(xds.Cluster, "a")
	write(t, d.dir, "edge/x.yaml", "nonsense", "a.yaml", cluster("a2")+"---\n"+cluster("b2"))
	other.took(xds.Cluster, "a2", "b2")
	if line := d.logged("configuration error"); line["group"] != "edge" || !strings.Contains(line["error"].(string), "edge/x.yaml:1:1") {
		t.Error(line)
	}
	chancery(t, 1, "edge/x.yaml:1:1: group edge: ", "reload", d.dir)
	chancery(t, 1, "reload rejected for 1 group, keeping the previous configuration of it; the others are loaded", "reload", d.dir)
	d.tells(port, "/metrics", "xds_server_config_last_load_successful 0\n")
	d.tells(port, "/readyz?verbose", "not those of 1 group, which keep their last good: edge")

	asks := d.asks("http://127.0.0.1:" + admin)
	asks("status", 1, "The load of group edge ", "edge/x.yaml:1:1")
	asks("get groups -o json", 0, `"rejected": {`, "edge/x.yaml:1:1")
	asks("wait --for=synced", 1, "not synced: the load of group edge ", "edge/x.yaml:1:1")
	asks("wait --for=synced -g zz", 4, `no group has the name "zz"`)
	asks("wait --for=synced --node zz --revision 1 --timeout 10ms", 124, "not synced after 10ms: no client with node id zz is connected")
	asks("wait --for=synced --revision 99 --timeout 10ms", 124, "not synced after 10ms: revision 99 is not served yet: ")
	asks("wait --for=synced --node other", 0, "ok: 1 connected: 1 synced")

	d.kept(2) // the served configuration is on disk a little later
	d.killed()
	write(t, d.dir, "a.yaml", "nonsense", "edge/group.yaml", "nonsense: 1")
	d = serveDir(t, d.dir, flags...)
	d.of("edge").took(xds.Cluster, "e")
	d.of("other").took(xds.Cluster, "a2", "b2")

	write(t, d.dir, "a.yaml", cluster("a3"), "edge/group.yaml", "match: {id: edge}\n", "edge/x.yaml", "# mended\n")
	if err := os.Remove(filepath.Join(d.dir, "edge", "x.yaml")); err != nil {
		t.Fatal(err)
	}
	d.loads(port)
}

func TestGroupsChecked(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.yaml", cluster("a"), "edge/group.yaml", "match: {cluster: edge}\n", "edge/r.yaml", routeTo("away"), "away/group.yaml", "match: {cluster: away}\n", "away/c.yaml", cluster("away"))
	chancery(t, 0, "ok: 3 resources in 5 files of 3 groups", "check", root)
	chancery(t, 0, `RDS "r" refers to CDS "away", which no group has that a node sees together with "edge" (group "away" has it)`, "check", root)
	chancery(t, 0, `"group": "edge"`, "check", root, "-o", "json")
	write(t, root, "edge/group.yaml", "match: {cluster: edge}\ninclude: [away]\n")
	chancery(t, 0, "files of 3 groups: CDS 2, RDS 1\n", "check", root, "--ignore", "XDS0202")
	write(t, root, "edge/group.yaml", "match: {clstr: edge}\n")
	chancery(t, 1, `edge/group.yaml:1:9: `, "check", root)
	chancery(t, 1, "XDS0701", "check", root)
}
