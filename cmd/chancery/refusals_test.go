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

// HEAL-5: a client that refuses the first version of a route configuration has none. No command shows the
// refused version as kept or accepted, also after the resource is removed from the files.
func TestRefusedFirstVersionIsNotKept(t *testing.T) {
	t.Parallel()
	route := func(name string) string {
		return "\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: " + name + "\n"
	}
	for _, flag := range []string{"--quarantine=true", "--quarantine=false"} {
		for _, variant := range []xds.Variant{xds.SotW, xds.Delta} {
			t.Run(variant.String()+" "+flag, func(t *testing.T) {
				t.Parallel()
				socket := filepath.Join(t.TempDir(), "admin.sock")
				d := serve(t, []string{"--admin-listen", "unix://" + socket, flag}, "r.yaml", route("r"), "s.yaml", route("s"))
				asks := d.asks("unix://" + socket)
				open := xdstest.SotW
				if variant == xds.Delta {
					open = xdstest.Delta
				}
				c := open(t, d.conn, xdstest.WithNode(xds.Node{ID: "edge-1"}))
				c.Subscribe(xds.Route, "r")
				c.NACK(c.Expect(xds.Route, "r"), "no")
				d.logged("client refused a response (NACK)")
				if flag == "--quarantine=true" {
					d.logged("resource in quarantine: the client refuses it, and gets the others")
				}
				asks("get all --node edge-1 --no-headers", 0, "RDS r NACKED 880a5864ec91 - ")
				if flag == "--quarantine=true" {
					asks("status edge-1", 1, "in quarantine: r version 880a5864ec91; it has no resource of that name")
					asks("explain edge-1 rds/r", 1, "✘ accepted the client refused it", "; it has none, and gets only the other resources")
				}

				write(t, d.dir, "r.yaml", route("q"))
				if variant == xds.Delta {
					c.ACK(c.ExpectRemoved(xds.Route, "r"))
				}
				d.logged("client no longer refuses a type")
				asks("status", 0, "1 connected: 1 synced")
				asks("explain edge-1 rds/r", 1, "✘ defined no file has RDS \"r\"")
				asks("explain edge-1", 1, "✘ defined", "✔ accepted")
			})
		}
	}
}

// HEAL-2: explain shows the next retry of a refused resource, unless the server does not retry.
func TestExplainShowsNextRetry(t *testing.T) {
	t.Parallel()
	const c = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n"
	for _, flag := range []string{"--quarantine=true", "--quarantine=false"} {
		for _, variant := range []xds.Variant{xds.SotW, xds.Delta} {
			for _, retries := range []string{"true", "false"} {
				t.Run(variant.String()+" "+flag+" "+retries, func(t *testing.T) {
					t.Parallel()
					socket := filepath.Join(t.TempDir(), "admin.sock")
					d := serve(t, []string{"--admin-listen", "unix://" + socket, flag, "--retry-refused=" + retries}, "a.yaml", c)
					asks := d.asks("unix://" + socket)
					open := xdstest.SotW
					if variant == xds.Delta {
						open = xdstest.Delta
					}
					client := open(t, d.conn, xdstest.WithNode(xds.Node{ID: "edge-1"}))
					client.Subscribe(xds.Cluster)
					client.NACK(client.Expect(xds.Cluster, "a"), "unknown field a") // goes straight to the slow step
					d.logged("client refused a response (NACK)")
					if flag == "--quarantine=true" {
						d.logged("resource in quarantine: the client refuses it, and gets the others")
					}
					want := []string{"→ correct", "if the cause was outside of the configuration, and is gone: chancery resync edge-1 CDS/a"}
					if retries == "true" {
						want = []string{"; next retry in ", "is gone: the server sends it again in ", "; to send it at once: chancery resync edge-1 CDS/a"}
					}
					asks("explain edge-1 cds/a", 1, want...)
				})
			}
		}
	}
}
