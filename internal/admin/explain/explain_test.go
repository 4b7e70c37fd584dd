package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

const (
	ofCluster  = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster`
	ofEndpoint = `"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment`
	ofListener = `"@type": type.googleapis.com/envoy.config.listener.v3.Listener`
	ofFilter   = `"@type": type.googleapis.com/envoy.config.listener.v3.Filter`
	ofRoute    = `"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration`
)

func resources(all ...string) string { return "resources:\n" + strings.Join(all, "") }

func cluster(name string) string {
	return fmt.Sprintf("- %s\n  name: %s\n  connect_timeout: 1s\n", ofCluster, name)
}

func edsCluster(name string) string {
	return cluster(name) + "  type: EDS\n  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}\n"
}

func endpoints(name string) string {
	return fmt.Sprintf("- %s\n  cluster_name: %s\n", ofEndpoint, name)
}

func route(name, to string) string {
	return fmt.Sprintf("- %s\n  name: %s\n  virtual_hosts:\n  - name: all\n    domains: ['*']\n    routes:\n    - match: {prefix: /}\n      route:\n        cluster: %s\n", ofRoute, name, to)
}

// listener returns a listener with a TCP proxy that refers to a cluster.
func listener(name, to string) string {
	return fmt.Sprintf(`- %s
  name: %s
  address: {socket_address: {address: 127.0.0.1, port_value: 1000}}
  filter_chains:
  - filters:
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: x
        cluster: %s
`, ofListener, name, to)
}

// httpListener returns a listener that refers to routes.
func httpListener(name, to string) string {
	return fmt.Sprintf(`- %s
  name: %s
  address: {socket_address: {address: 127.0.0.1, port_value: 1000}}
  filter_chains:
  - filters:
    - name: http
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: x
        http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
        rds: {route_config_name: %s, config_source: {ads: {}, resource_api_version: V3}}
`, ofListener, name, to)
}

// wrapped returns a cluster whose version the file supplies.
func wrapped(version string) string {
	return `{"@type": type.googleapis.com/envoy.service.discovery.v3.Resource, name: a, version: "` + version +
		`", resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a}}`
}

// takes makes a client subscribe to resources and accept them.
func takes(c *xdstest.Client, t *xds.Type, names ...string) {
	c.Subscribe(t, names...)
	c.ACK(c.Next(t))
}

// Each case is a failure that operators may meet. The answer names the broken link, the place if it
// is known, and the remedy.
var failures = []struct {
	name   string
	files  []string
	act    func(r *fixture)
	node   string // "edge-1" if empty
	what   string
	broken string // "": none
	says   []string
}{
	{
		name: "nothing is wrong", files: []string{"c.yaml", resources(cluster("a"))}, what: "CDS a",
		act:  func(r *fixture) { takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster) },
		says: []string{"defined: ok: CDS \"a\" is of group \"default\" [c.yaml:2:3]", "connected: ok: envoy 1.40.0", "subscribed: ok: the client subscribes to all CDS", "accepted: ok: the client has accepted version "},
	},
	{
		name: "SOTW-13 only the version that the file supplies changes", what: "CDS a",
		files: []string{"c.yaml", wrapped("1")},
		act: func(r *fixture) {
			c := xdstest.Delta(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			first := c.Next(xds.Cluster)
			c.ACK(first)
			r.write("c.yaml", wrapped("2"))
			r.load("")
			c.ExpectNothing()
		},
		says: []string{"accepted: ok: the client has accepted the content of version 2 (its file supplies the version, and the server sends only changed content)"},
	},
	{
		name: "wrong node id", what: "CDS a", node: "egde-1", broken: selected,
		files: []string{"edge/group.yaml", "match: {id: \"edge-*\"}\n", "edge/c.yaml", resources(cluster("a")), "c.yaml", resources(cluster("b"))},
		act:   func(r *fixture) { takes(xdstest.SotW(r, r.conn, r.node("egde-1")), xds.Cluster) },
		says:  []string{`selected: BROKEN: CDS "a" is of group "edge", and the node (id "egde-1", cluster "") gets group default: otherwise [edge/group.yaml:1:`, `id is like "edge-*"`},
	},
	{
		name: "wrong node id, looked for by the right one", what: "CDS a", broken: connected,
		files: []string{"edge/group.yaml", "match: {id: \"edge-*\"}\n", "edge/c.yaml", resources(cluster("a"))},
		act:   func(r *fixture) { takes(xdstest.SotW(r, r.conn, r.node("edge-01")), xds.Cluster) },
		says:  []string{`connected: BROKEN: no client with node id "edge-1" is connected, and none was lately`, `did you mean "edge-01"?`, "accepted: ?"},
	},
	{
		name: "impersonation", what: "CDS a", broken: allowed, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			r.deps.Denied = func(node string) (api.Event, bool) {
				return api.Event{At: time.Now(), Peer: "192.0.2.1:5", Text: `mtls DNS "web": it may not be this node`}, node == "edge-1"
			}
			r.Explainer = New(r.deps)
		},
		says: []string{`allowed: BROKEN: the client at 192.0.2.1:5 was refused 0 s ago: mtls DNS "web": it may not be this node`, `connected: BROKEN: the server ended its stream 0 s ago: the step "allowed" has the reason`},
	},
	{
		name: "wrong group", what: "CDS a", broken: selected,
		files: []string{"pay/group.yaml", "match: {cluster: pay}\n", "pay/c.yaml", resources(cluster("a")), "c.yaml", resources(cluster("b"))},
		act:   func(r *fixture) { takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster) },
		says:  []string{`group "pay"`, `cluster is "pay"`, "pay/group.yaml:1:"},
	},
	{
		name: "no group at all", what: "CDS a", broken: selected,
		files: []string{"group.yaml", "otherwise: refuse\n", "pay/group.yaml", "match: {cluster: pay}\n", "pay/c.yaml", resources(cluster("a"))},
		says:  []string{"no group matches a node with id \"edge-1\"", "otherwise"},
	},
	{
		name: "not authorised", what: "CDS a", broken: allowed, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			r.deps.Allowed = func(st *server.Stream, n *xds.Node, _ *xds.Type, _ string) (bool, string) {
				return st == nil || n.ID != "edge-1", "access.yaml:3:5: it may see CDS \"edge-*\""
			}
			r.Explainer = New(r.deps)
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{"allowed: BROKEN: the client may not have it: access.yaml:3:5"},
	},
	{
		name: "refused by the rules of access", what: "CDS a", broken: allowed, files: []string{"c.yaml", resources(cluster("a"))},
		act:  func(r *fixture) { r.seen.refuse("edge-1", "PermissionDenied", `the certificate is of "pay-1"`) },
		says: []string{`the client was refused 0 s ago: the certificate is of "pay-1"`},
	},
	{
		name: "unsubscribed", what: "EDS b", broken: subscribed,
		files: []string{"c.yaml", resources(edsCluster("a"), edsCluster("b")), "e.yaml", resources(endpoints("a"), endpoints("b"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Cluster)
			takes(c, xds.Endpoint, "a")
		},
		says: []string{`referenced: ok: CDS "b" refers to it [c.yaml:`, "subscribed: BROKEN: the client subscribes to 1 name of EDS, and not to this one", "config_source"},
	},
	{
		name: "on demand, with the wildcard", what: "CDS b", broken: subscribed,
		files: []string{"c.yaml", resources(cluster("a"), strings.Replace(cluster("b"), "  name:", "  x-chancery: {on_demand: true}\n  name:", 1))},
		act:   func(r *fixture) { takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster) },
		says:  []string{"subscribed: BROKEN: the client subscribes to all CDS that are not on demand, and not to this one", "advice: the resource is on demand (on_demand in its file), so a wildcard does not include it: the client must subscribe to it by name\n"},
	},
	{
		name: "by name, without the wildcard", what: "CDS b", broken: subscribed,
		files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
		act:   func(r *fixture) { takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster, "a") },
		says:  []string{"the client subscribes to 1 name of CDS, and not to this one", "advice: the client subscribes to CDS by name, without a wildcard: it must subscribe to this one by name, too\n"},
	},
	{
		name: "a type that was never asked for", what: "EDS a", broken: subscribed,
		files: []string{"c.yaml", resources(edsCluster("a")), "e.yaml", resources(endpoints("a"))},
		act:   func(r *fixture) { takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster) },
		says:  []string{"the client has not subscribed to any EDS; it subscribes to CDS"},
	},
	{
		name: "nothing refers to it", what: "EDS b", broken: referenced,
		files: []string{"c.yaml", resources(edsCluster("a")), "e.yaml", resources(endpoints("a"), endpoints("b"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Cluster)
			takes(c, xds.Endpoint, "a")
		},
		says: []string{"no resource of the node refers to it by name, so the client does not subscribe to it"},
	},
	{
		name: "missing reference", what: "RDS r", broken: valid,
		files: []string{"c.yaml", resources(cluster("search")), "r.yaml", resources(route("r", "serch"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Cluster)
			takes(c, xds.Route, "r")
		},
		says: []string{`valid: BROKEN: it refers to CDS "serch", which no file has (did you mean "search"?)`, "[r.yaml:10:18]", "accepted: ok"},
	},
	{
		name: "only what another group hides refers to it", what: "EDS b", broken: referenced,
		files: []string{
			"c.yaml", resources(edsCluster("a"), strings.Replace(edsCluster("x"), "eds_cluster_config: {", "eds_cluster_config: {service_name: b, ", 1)), "e.yaml", resources(endpoints("a"), endpoints("b")),
			"edge/group.yaml", "match: {id: edge-1}\ninclude: [default]\n", "edge/c.yaml", resources(cluster("x")),
		},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Cluster)
			takes(c, xds.Endpoint, "a")
		},
		says: []string{"no resource of the node refers to it by name, so the client does not subscribe to it"},
	},
	{
		name: "what is referred to is missing", what: "RDS r", broken: defined,
		files: []string{"c.yaml", resources(cluster("a")), "l.yaml", resources(httpListener("l", "r"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Listener)
			c.Subscribe(xds.Route, "r")
		},
		says: []string{`no file has RDS "r", to which LDS "l" refers [l.yaml:12:34]`},
	},
	{
		name: "refused", what: "CDS bad", broken: valid,
		files: []string{"c.yaml", resources(cluster("good"), strings.Replace(cluster("bad"), "1s", "-1s", 1))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.NACK(c.Next(xds.Cluster), "Invalid duration: Expected positive duration: seconds: -1")
		},
		says: []string{"valid: BROKEN: resources[1].connect_timeout: must be more than 0s, not -1s [c.yaml:7:20]", "accepted: BROKEN: the client refused it 0 s ago: Invalid duration", "[c.yaml:7:20]"},
	},
	{
		name: "refused with another one", what: "CDS good", broken: accepted,
		files: []string{"c.yaml", resources(cluster("good"), strings.Replace(cluster("bad"), "1s", "-1s", 1))},
		act: func(r *fixture) {
			c := xdstest.Delta(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.NACK(c.Next(xds.Cluster), "Invalid duration: Expected positive duration: seconds: -1")
		},
		says: []string{`valid: ok`, `because of CDS "bad"; whether it applied this resource is unknown`, "[c.yaml:7:20]", `correct CDS "bad" (c.yaml:7:20)`},
	},
	{
		name: "a client that does not answer", what: "CDS a", broken: accepted, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.Next(xds.Cluster)
			r.late = 5 * time.Minute
		},
		says: []string{"sent: ok: version ", ", 5 m ago", "accepted: BROKEN: not answered for 5 m", "the client does not answer: look at its log"},
	},
	{
		name: "a client that did not answer before", what: "CDS b", broken: sent, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.Next(xds.Cluster)
			r.write("b.yaml", resources(cluster("b")))
			r.load("")
			r.late = 5 * time.Minute
		},
		says: []string{"not sent yet: the client has not answered an earlier response of CDS (nonce 1), sent 5 m ago"},
	},
	{
		name: "the file has a mistake", what: "CDS new", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("n.yaml", resources(cluster("new")+"  conect_timeout: 1s\n"))
			r.load("conect_timeout")
		},
		says: []string{"loaded: BROKEN: for ", `a file that may have CDS "new" cannot be loaded`, "conect_timeout", "[n.yaml:5:3", "defined: ?"},
	},
	{
		name: "another file has a mistake", what: "CDS new", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("n.yaml", resources(cluster("new")), "o.yaml", resources(cluster("other")+"  typo: 1\n"))
			r.load("typo")
		},
		says: []string{"loaded: BROKEN: its file was read, but that load was rejected 0 s ago", "[o.yaml:5:3", "[n.yaml:2:3]"},
	},
	{
		name: "its own file has a mistake among others", what: "CDS new", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("b.yaml", resources(cluster("b")+"  typo: 1\n"), "n.yaml", resources(cluster("new"), cluster("a")))
			r.load("typo")
		},
		says: []string{"loaded: BROKEN: its file was read, but that load was rejected 0 s ago", "[n.yaml:5:3", "(and 1 more)"},
	},
	{
		name: "seen by nobody, and no rule is known", what: "CDS a", broken: allowed, files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
		act: func(r *fixture) {
			policy, problems := access.Parse("access.yaml", []byte(`rules: [{identity: {kind: none}, node: {id: "**"}, names: {CDS: [b]}}]`))
			if policy == nil {
				r.Fatal(problems)
			}
			conn := xdstest.Serve(r, server.New(access.New(r.st, policy, access.Options{}), server.WithObserver(r.seen), server.WithLogger(slog.New(slog.DiscardHandler))))
			takes(xdstest.SotW(r, conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{`allowed: BROKEN: the node's groups have CDS "a", and the client does not see it`},
	},
	{
		name: "a name in no file, of a client that asks for all", what: "CDS nope", broken: defined, files: []string{"c.yaml", resources(cluster("a"))},
		act:  func(r *fixture) { takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster) },
		says: []string{`sent: ok: the client was sent all CDS that it may have, and "nope" is not among them`, "accepted: ?: there is nothing to accept"},
	},
	{
		name: "a name in no file, of which SotW cannot say so", what: "RDS other", broken: defined, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Cluster)
			c.Subscribe(xds.Route, "other")
			c.ExpectNothing()
			r.stands(xds.Route, "other", api.NotSent)
		},
		says: []string{"sent: ?: nothing was sent: SotW cannot say that a resource does not exist; the client waits for its own timeout (15 s in Envoy)", "accepted: ?: there is nothing to accept"},
	},
	{
		name: "gone from the files, of which SotW cannot say so", what: "RDS r", broken: defined, files: []string{"c.yaml", resources(cluster("a")), "r.yaml", resources(route("r", "a"), route("s", "a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Route, "r")
			r.write("r.yaml", resources(route("s", "a")))
			r.load("")
			c.ExpectNothing()
			r.stands(xds.Route, "r", api.NotSent)
		},
		says: []string{"sent: ?: nothing was sent: SotW cannot say that a resource does not exist any more; the client keeps version ", "accepted: ?: there is nothing to accept"},
	},
	{
		name: "a name in no file, of which delta can say so", what: "RDS other", broken: defined, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.Delta(r, r.conn, xdstest.WithNode(xds.Node{ID: "edge-1"})), xds.Route, "other")
			r.stands(xds.Route, "other", api.Absent)
		},
		says: []string{"sent: ok: the client was told that it does not exist", "accepted: ok: the client knows that it does not exist"},
	},
	{
		name: "HEAL-5 refused with others, and the text names none", what: "CDS a", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.NACK(c.Next(xds.Cluster), "no")
		},
		says: []string{"accepted: BROKEN: the client refused the response with this resource 0 s ago; which resource is faulty is unknown; its error: no"},
	},
	{
		name: "in quarantine", what: "CDS a", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
		act: func(r *fixture) {
			r.deps.Held = func(_ *server.Stream, t *xds.Type) []quarantine.Held {
				if !t.Is(xds.Cluster) {
					return nil
				}
				return []quarantine.Held{{Name: "a", Refused: "v2", Instead: "v1"}}
			}
			r.Explainer = New(r.deps)
			takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{"sent: ok: version v2 was sent, and is now withheld", "accepted: BROKEN: ", " until the resource changes, and gets all other resources (quarantine: named)"},
	},
	{
		name: "HEAL-3 runs on a version that other clients accepted", what: "CDS a", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
		act: func(r *fixture) {
			r.deps.Held = func(_ *server.Stream, t *xds.Type) []quarantine.Held {
				if !t.Is(xds.Cluster) {
					return nil
				}
				return []quarantine.Held{{Name: "a", Refused: "v2", Instead: "v1", Others: true}}
			}
			r.Explainer = New(r.deps)
			takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{"accepted: BROKEN: ", "; it had none, and gets version v1, which other clients accepted, until the resource changes (quarantine: named)"},
	},
	{
		name: "in quarantine with others", what: "CDS b", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), cluster("b"), cluster("c"))},
		act: func(r *fixture) {
			r.deps.Held = func(_ *server.Stream, t *xds.Type) []quarantine.Held {
				if !t.Is(xds.Cluster) {
					return nil
				}
				return []quarantine.Held{{Name: "a", Refused: "v2", By: quarantine.Found}, {Name: "b", Refused: "v2", By: quarantine.Found}, {Name: "c", Refused: "v2", By: quarantine.Searching}}
			}
			r.Explainer = New(r.deps)
			takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster)
			blamed := r.Blame(context.Background(), []api.Refusal{{Type: "CDS", Error: "no", Nodes: []string{"edge-1"}}})[0].Resources
			if len(blamed) != 2 || blamed[0].Name != "a" || blamed[1].Name != "b" || !strings.HasSuffix(blamed[1].Place, "c.yaml:5:3") {
				r.Errorf("faulty resources: %+v", blamed)
			}
		},
		says: []string{"accepted: BROKEN: the client refused it", "found by bisecting", "[c.yaml:5:3]"},
	},
	{
		name: "another one is in quarantine", what: "CDS b", files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
		act: func(r *fixture) {
			r.deps.Held = func(*server.Stream, *xds.Type) []quarantine.Held {
				return []quarantine.Held{{Name: "a", Refused: "v2"}}
			}
			r.Explainer = New(r.deps)
			takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{"accepted: ok"},
	},
	{
		name: "the file is newer than what is served", what: "CDS a", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("c.yaml", resources(strings.Replace(cluster("a"), "1s", "2s", 1)), "o.yaml", resources(cluster("other")+"  typo: 1\n"))
			r.load("typo")
		},
		says: []string{"loaded: BROKEN: the served version is older than its file", "[o.yaml:5:3", "accepted: ok"},
	},
	{
		name: "a mistake that changes nothing here", what: "CDS a", files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("o.yaml", resources(cluster("other")+"  typo: 1\n"))
			r.load("typo")
		},
		says: []string{"loaded: ok: the last load was rejected 0 s ago", "but that changes nothing here"},
	},
	{
		name: "a mistake in its own file", what: "CDS a", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("b.yaml", resources(cluster("b")+"  typo: 1\n"), "c.yaml", resources(cluster("a")+"  typo: 1\n"))
			r.load("typo")
		},
		says: []string{"loaded: BROKEN: the served version is older than its file: the load was rejected 0 s ago", "[c.yaml:5:3", "advice: correct c.yaml:5:3"},
	},
	{
		name: "its own file is no YAML any more", what: "CDS a", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("c.yaml", resources("- [\n"))
			r.load("c.yaml")
		},
		says: []string{"loaded: BROKEN: the served version is older than its file", "[c.yaml:"},
	},
	{
		name: "its own file has become empty", what: "CDS a", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("c.yaml", "")
			r.load("has become empty")
		},
		says: []string{"loaded: BROKEN: the served version is older than its file", "has become empty", "[c.yaml"},
	},
	{
		name: "it is gone from its file, and another has a mistake", what: "CDS a", broken: loaded, files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.write("c.yaml", resources(cluster("b")), "o.yaml", resources(cluster("other")+"  typo: 1\n"))
			r.load("typo")
		},
		says: []string{"loaded: BROKEN: the served version is older than its file", "[o.yaml:5:3"},
	},
	{
		name: "the file of its group is gone", what: "CDS a", broken: loaded,
		files: []string{"edge/group.yaml", "match: {id: \"edge-*\"}\n", "edge/c.yaml", resources(cluster("a")), "c.yaml", resources(cluster("b"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.remove("edge/group.yaml")
			r.load("edge/group.yaml is gone")
		},
		says: []string{"loaded: BROKEN: the load was rejected 0 s ago, and the previous configuration is served: group \"edge\": edge/group.yaml is gone", "advice: restore edge/group.yaml; or, to confirm the removal of its group, run chancery reload --allow-mass-delete"},
	},
	{
		name: "the file of a group that is alone is gone, and the node is of another", what: "CDS a", node: "other", broken: loaded,
		files: []string{"edge/group.yaml", "on_error: alone\nmatch: {id: \"edge-*\"}\n", "edge/c.yaml", resources(cluster("a")), "c.yaml", resources(cluster("b"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("other")), xds.Cluster)
			r.remove("edge/group.yaml")
			r.load("")
		},
		says: []string{"loaded: BROKEN: the load was rejected 0 s ago", "selected: BROKEN: CDS \"a\" is of group \"edge\", and the node (id \"other\", cluster \"\") gets group default: otherwise\n", "advice: restore edge/group.yaml; or"},
	},
	{
		name: "no client is connected, and Envoy is known to refuse the resource", what: "LDS in", broken: connected,
		files: []string{"l.yaml", strings.Replace(resources(listener("in", "a")), "stat_prefix: x", "stat_prefix: \"\"", 1), "c.yaml", resources(cluster("a"))},
		act:   func(*fixture) {},
		says:  []string{"valid: BROKEN: Envoy is known to refuse this: "},
	},
	{
		name: "an accepted resource is valid, though Envoy is known to refuse it", what: "LDS in",
		files: []string{"l.yaml", strings.Replace(resources(listener("in", "a")), "stat_prefix: x", "stat_prefix: \"\"", 1), "c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Cluster)
			takes(c, xds.Listener)
		},
		says: []string{"valid: ok: Envoy is known to refuse this, but the client has accepted it: "},
	},
	{
		name: "a group of others is not loaded", what: "CDS b", node: "other",
		files: []string{"edge/group.yaml", "on_error: alone\nmatch: {id: \"edge-*\"}\n", "edge/c.yaml", resources(cluster("a")), "c.yaml", resources(cluster("b"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("other")), xds.Cluster)
			r.remove("edge/group.yaml")
			r.load("")
		},
		says: []string{"loaded: ok: the last load was rejected 0 s ago"},
	},
	{
		name: "a name that is misspelled", what: "CDS pya", broken: defined, files: []string{"c.yaml", resources(cluster("pay"))},
		act:  func(r *fixture) { takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster) },
		says: []string{`defined: BROKEN: no file has CDS "pya"`, `did you mean "pay"?`},
	},
	{
		name: "too big", what: "CDS big", broken: sent,
		files: []string{"c.yaml", resources(cluster("big") + "  metadata: {filter_metadata: {x: {y: " + strings.Repeat("z", 5<<20) + "}}}\n")},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, xdstest.WithNode(xds.Node{ID: "edge-1", UserAgentName: "gRPC Go"}))
			c.Subscribe(xds.Cluster)
			synctest.Wait()
		},
		says: []string{"sent: BROKEN: the resource has 5.0 MiB; gRPC clients accept messages of at most 4.0 MiB", "[c.yaml:2:3]"},
	},
	{
		name: "not connected", what: "CDS a", broken: connected, files: []string{"c.yaml", resources(cluster("a"))},
		says: []string{`no client with node id "edge-1" is connected`},
	},
	{
		name: "not connected any more", what: "CDS a", broken: connected, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(c, xds.Cluster)
			c.Close()
			synctest.Wait()
		},
		says: []string{"it left 0 s ago: gone", "look at the client's log", "sent: ?"},
	},
	{
		name: "leaves again and again", what: "CDS", broken: connected, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			r.seen.loop = "it left right after a response of CDS with 5.7 MiB, 14 times"
		},
		says: []string{"connected: BROKEN: it left right after a response of CDS with 5.7 MiB, 14 times", "look at the client's log: it may not accept a response of this size"},
	},
	{
		name: "leaves again and again, and is not connected", what: "CDS big", broken: connected,
		files: []string{"c.yaml", resources(cluster("big") + "  metadata: {filter_metadata: {x: {y: " + strings.Repeat("z", 5<<20) + "}}}\n")},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, xdstest.WithNode(xds.Node{ID: "edge-1", UserAgentName: "gRPC Go"}))
			c.Subscribe(xds.Cluster)
			synctest.Wait()
			c.Close()
			synctest.Wait()
			r.seen.loop = "it left right after a response of CDS with 5.0 MiB, 3 times"
		},
		says: []string{"connected: BROKEN: it left right after a response of CDS with 5.0 MiB, 3 times: the resource has 5.0 MiB", "[c.yaml:2:3]", "make it smaller, or raise the client's limit"},
	},
	{
		name: "waiting for a parent", what: "LDS l", broken: sent,
		files: []string{"c.yaml", resources(cluster("a")), "l.yaml", resources(listener("l", "a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.Next(xds.Cluster)
			c.Subscribe(xds.Listener)
			c.ExpectNothing()
		},
		says: []string{`for the client's answer to CDS "a"`, `the client must accept CDS "a" first: chancery explain edge-1 CDS/a`},
	},
	{
		name: "its parent is refused", what: "EDS a", broken: referenced,
		files: []string{"c.yaml", resources(edsCluster("a")), "e.yaml", resources(endpoints("a"))},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.NACK(c.Next(xds.Cluster), "no")
		},
		says: []string{`CDS "a" refers to it, and the client has not accepted that (NACKED), so it does not ask`, `the client must accept CDS "a" first`},
	},
	{
		name: "the node's group has no content", node: "z", what: "", broken: connected,
		files: []string{"a/group.yaml", "match: {id: edge-1}\n", "a/c.yaml", resources(cluster("a"))},
		act:   func(r *fixture) { xdstest.SotW(r, r.conn, r.node("z")).Subscribe(xds.Cluster) },
		says: []string{
			`but group "default", which the node gets, has no resources: the server sends nothing`, "subscribed: ?: ",
			"sent: ?: its stream has not begun", "accepted: ?: its stream has not begun",
			`put resources into group "default", or give the node another group`, "chancery get groups",
		},
	},
	{
		name: "of several streams the worst counts", what: "CDS a", broken: accepted, files: []string{"c.yaml", resources(cluster("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Cluster)
			c.NACK(c.Next(xds.Cluster), "no")
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{"refuse"},
	},
	{
		name: "its parent is on another stream", what: "EDS a", broken: "",
		files: []string{"c.yaml", resources(edsCluster("a")), "e.yaml", resources(endpoints("a"))},
		act: func(r *fixture) {
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Endpoint, "a")
			synctest.Wait()
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{`referenced: ok: CDS "a" refers to it`, "client has accepted"},
	},
	{
		name: "its parent is on another stream, and neither leads to it", what: "EDS b", broken: subscribed,
		files: []string{"c.yaml", resources(edsCluster("a"), edsCluster("b")), "e.yaml", resources(endpoints("a"), endpoints("b"))},
		act: func(r *fixture) {
			first := xdstest.SotW(r, r.conn, r.node("edge-1")) // the client subscribes only to another parent
			takes(first, xds.Cluster, "a")
			takes(first, xds.Endpoint, "a")
			synctest.Wait()
			takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
		},
		says: []string{`referenced: ok: CDS "b" refers to it`, "subscribed: BROKEN: the client subscribes to 1 name of EDS, and not to this one"},
	},
	{
		name: "on demand resources are in no response with all", what: "CDS a", broken: accepted,
		files: []string{"c.yaml", resources(cluster("a"), cluster("big")+"  x-chancery: {on_demand: true}\n  metadata: {filter_metadata: {x: {y: "+strings.Repeat("z", 5<<20)+"}}}\n")},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, xdstest.WithNode(xds.Node{ID: "edge-1", UserAgentName: "gRPC Go"}))
			c.Subscribe(xds.Cluster)
			c.Next(xds.Cluster)
		},
		says: []string{"accepted: BROKEN: not answered"},
	},
	{
		name: "all of a type is too big together", what: "CDS a", broken: sent,
		files: []string{"c.yaml", resources(cluster("a"), cluster("big")+"  metadata: {filter_metadata: {x: {y: "+strings.Repeat("z", 5<<20)+"}}}\n")},
		act: func(r *fixture) {
			c := xdstest.SotW(r, r.conn, xdstest.WithNode(xds.Node{ID: "edge-1", UserAgentName: "gRPC Go"}))
			c.Subscribe(xds.Cluster)
			synctest.Wait()
		},
		says: []string{"sent: BROKEN: a response with all CDS has 5.0 MiB, and state of the world cannot split it"},
	},
	{
		name: "by an alias", what: "CDS nick", broken: "",
		files: []string{"c.yaml", resources("- \"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\n  name: a\n  aliases: [nick]\n  resource:\n    " + ofCluster + "\n    name: a\n")},
		act:   func(r *fixture) { takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster, "nick") },
		says:  []string{`CDS "nick", which is an alias of "a", is of group "default"`},
	},
	{
		name: "by a name of new style, with its parameters in another order", what: "CDS xdstp://x/envoy.config.cluster.v3.Cluster/a?b=1&a=2", broken: "",
		files: []string{"c.yaml", resources(cluster("xdstp://x/envoy.config.cluster.v3.Cluster/a?b=1&a=2"))},
		act: func(r *fixture) {
			takes(xdstest.Delta(r, r.conn, r.node("edge-1")), xds.Cluster, "xdstp://x/envoy.config.cluster.v3.Cluster/a?a=2&b=1")
		},
	},
}

// The explanation of each failure names the broken link.
func TestExplain(t *testing.T) {
	for _, f := range failures {
		within(t, f.name, func(t *testing.T) {
			r := start(t, f.files...)
			if f.act != nil {
				f.act(r)
			}
			synctest.Wait()
			x, text := r.explain(cmp.Or(f.node, "edge-1"), f.what)
			r.says(x, text, f.broken, f.says...)
		})
	}
}

// stands checks the state of one resource of edge-1.
func (r *fixture) stands(t *xds.Type, name string, want api.State) {
	r.Helper()
	synctest.Wait()
	all, err := r.ClientResources(context.Background(), "edge-1", t.String(), name, 0)
	if err != nil || len(all.Items) != 1 || all.Items[0].State != want {
		r.Errorf("%v, %+v", err, all.Items)
	}
}

// The reported error is that of the resource's own group, even if no error has a line.
func TestErrorOfOwnGroupIsReported(t *testing.T) {
	kept := dir.RejectedGroups{{Group: "a", Err: errors.New("all is gone")}, {Group: "b", Err: errors.New("half is gone")}, {Group: "c", Err: errors.New("some is gone")}}
	for group, want := range map[string]string{"a": `group "a": all is gone`, "b": `group "b": half is gone`, "c": `group "c": some is gone`, "other": `group "a": all is gone`} {
		if text, place := mistake(kept, dir.Occurrence{Group: group}); text != want || place != "" {
			t.Errorf("%s: %q at %q", group, text, place)
		}
	}
}

// says compares an explanation with the expected texts.
func (r *fixture) says(x api.Explanation, text, broken string, says ...string) {
	r.Helper()
	if x.Broken != broken {
		r.Errorf("not broken at %q:\n%s", broken, text)
	}
	for _, say := range says {
		if !strings.Contains(text, say) {
			r.Errorf("without %q:\n%s", say, text)
		}
	}
	for i, l := range x.Links {
		if l.Text == "" || strings.Contains(l.Text, "%!") {
			r.Errorf("link %d says %q", i, l.Text)
		}
	}
	if (x.Broken == "") != (x.Advice == "") {
		r.Errorf("advice without a broken link, or the reverse:\n%s", text)
	}
}

// A node, type or name that does not exist causes an error with the reason.
func TestExplainErrors(t *testing.T) { synctest.Test(t, explainsNothing) }

func explainsNothing(t *testing.T) {
	r := start(t, "c.yaml", resources(cluster("a")))
	takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
	ctx := context.Background()
	var missing *NotFound
	if _, err := r.Explain(ctx, "edge-1", "clsuter", "a"); !errors.As(err, &missing) || missing.Field != "type" {
		t.Errorf("type: %v", err)
	}
	if _, err := r.Explain(ctx, "edge-1", "", "a"); !errors.As(err, &missing) || missing.Field != "type" {
		t.Errorf("no type: %v", err)
	}
	if _, err := r.ClientResources(ctx, "edge-2", "", "", 0); !errors.As(err, &missing) || missing.Field != "node" || missing.Hint != `did you mean "edge-1"?` {
		t.Errorf("node: %v", err)
	}
	if _, err := r.ClientResources(ctx, "edge-1", "cds", "b", 0); !errors.As(err, &missing) || missing.Field != "name" {
		t.Errorf("name: %v", err)
	}
	if _, err := r.Served(ctx, Query{Type: "CDS", Name: "b"}); !errors.As(err, &missing) || missing.Field != "name" {
		t.Errorf("served: %v", err)
	}
	if _, err := r.Served(ctx, Query{Group: "defautl"}); !errors.As(err, &missing) || missing.Field != "group" || missing.Hint != `did you mean "default"?` {
		t.Errorf("group: %v", err)
	}
	over, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("enough"))
	if _, err := r.Explain(over, "edge-1", "CDS", "a"); err == nil || err.Error() != "enough" {
		t.Errorf("the cause of an ended context: %v", err)
	}
}
