package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// HEAL-5: a refused virtual host is NACKED in status, wait, explain and metrics. The delta client asks for
// virtual hosts by a request without names, as Envoy does.
func TestRefusedVirtualHostIsShown(t *testing.T) {
	t.Parallel()
	port, socket := freePort(t), filepath.Join(t.TempDir(), "admin.sock")
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("testdata", "vhds-refusal", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	hosts := read("virtual-hosts.yaml")
	good, _, _ := strings.Cut(hosts, "---\n\"@type\": type.googleapis.com/envoy.config.route.v3.VirtualHost\nname: local/c")
	if good == hosts {
		t.Fatal("local/c is missing")
	}
	d := serve(t, []string{"--admin-listen", "unix://" + socket, "--metrics-listen", "127.0.0.1:" + port},
		"edge/group.yaml", "match: {id: edge-1}\n", "edge/l.yaml", read("listener-and-route.yaml"), "edge/h.yaml", good)
	asks := d.asks("unix://" + socket)
	d.tells(port, "/metrics", `xds_server_clients_nacked{group="edge",type="vhds"} 0`+"\n")
	d.tells(port, "/metrics", `xds_server_nacks_total{group="edge",type="vhds"} 0`+"\n")

	c := xdstest.Delta(t, d.conn, xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Route, "local")
	c.ACK(c.Expect(xds.Route, "local"))
	c.Subscribe(xds.VirtualHost)
	c.ACK(c.Expect(xds.VirtualHost, "local/a", "local/b"))
	asks("wait --for=synced --timeout 5s", 0, "ok: 1 connected: 1 synced")
	asks("status --all", 0, "1 connected: 1 synced", "VHDS")

	write(t, d.dir, "edge/h.yaml", hosts)
	r := c.Next(xds.VirtualHost)
	c.NACK(r, "Only unique values for domains are permitted. Duplicate entry of domain a.example in route local")
	asks("status", 1, "1 connected: 0 synced, 1 refusing", "h.yaml:1")
	asks("status edge-1", 1, "VHDS", "NACKED")
	asks("wait --for=synced --timeout 5s", 1, "1 refusing", "VHDS local/c", "h.yaml:1")
	asks("explain edge-1 vhds/local/c", 1, "✘ accepted", "h.yaml:1")
	asks("explain edge-1", 1, "local/c")
	asks("get vhds --node edge-1", 0, "local/c NACKED")
	d.tells(port, "/metrics", `xds_server_clients_nacked{group="edge",type="vhds"} 1`+"\n")
	d.tells(port, "/metrics", `xds_server_nacks_total{group="edge",type="vhds"} 1`+"\n")

	write(t, d.dir, "edge/h.yaml", good)
	c.ACK(c.Next(xds.VirtualHost)) // the removal
	if line := d.logged("client no longer refuses a type"); line["node"] != "edge-1" || line["type"] != "VHDS" {
		t.Errorf("HEAL-5 %v", line)
	}
	asks("status", 0, "1 connected: 1 synced")
	asks("get events --kind recover", 0, "recover edge-1 VHDS")
	d.tells(port, "/metrics", `xds_server_clients_nacked{group="edge",type="vhds"} 0`+"\n")
}
