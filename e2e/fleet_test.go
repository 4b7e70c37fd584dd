package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A mistake is a change that Envoy refuses. Each one has its own group and its own listener.
type mistake struct {
	name      string
	good, bad string // the files; PORT and UPSTREAM are replaced
	tls       bool
}

const fleetHead = `
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: in
  address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
  filter_chains:
  - TLS
    filters:
    - name: http
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: in
        ROUTES
        http_filters: [FILTERS]
`

const fleetRoutes = `
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: local
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - match: {MATCH}
      direct_response: {status: 200, body: {inline_string: BODY}}
    - match: {prefix: /}
      direct_response: {status: 200, body: {inline_string: BODY}}
`

const (
	fleetRDS    = `rds: {route_config_name: local, config_source: {ads: {}, resource_api_version: V3}}`
	fleetRouter = `{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}`
	fleetInline = `route_config: {name: local, virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, %s}]}]}`
	fleetOK     = `direct_response: {status: 200, body: {inline_string: good}}`
)

func fleetListener(routes, filters, tls string) string {
	return strings.NewReplacer("ROUTES", routes, "FILTERS", filters, "TLS", tls).Replace(fleetHead)
}

func routesWith(match, body string) string {
	return strings.NewReplacer("MATCH", match, "BODY", body).Replace(fleetRoutes)
}

func mistakes(t *testing.T) []mistake {
	byRDS := fleetListener(fleetRDS, fleetRouter, "name: all")
	inline := fleetListener(fmt.Sprintf(fleetInline, fleetOK), fleetRouter, "name: all")
	good := byRDS + routesWith("path: /x", "good")
	a := newAuthority(t, "fleet")
	secret := func(chain, key pair) string {
		text := func(b []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", `\n`) }
		return fmt.Sprintf(`
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: server
  tls_certificate: {certificate_chain: {inline_string: "%s\n"}, private_key: {inline_string: "%s\n"}}
`, text(chain.certificate), text(key.key))
	}
	one, two := a.issue(t, "one"), a.issue(t, "two")
	secure := fleetListener(fmt.Sprintf(fleetInline, fleetOK), fleetRouter, `transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
        common_tls_context: {tls_certificate_sds_secret_configs: [{name: server, sds_config: {ads: {}, resource_api_version: V3}}]}`)
	proxied := fleetListener(fmt.Sprintf(fleetInline, "route: {cluster: up}"), fleetRouter, "name: all") + `
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: up
  connect_timeout: 1s
  type: STATIC
`
	return []mistake{
		{name: "two domains * in a route configuration", good: good, bad: byRDS + routesWith("path: /x", "bad") + `
  - name: again
    domains: ["*"]
    routes: [{match: {prefix: /}, direct_response: {status: 500}}]
`},
		{name: "a regex that RE2 refuses", good: good, bad: byRDS + routesWith(`safe_regex: {regex: "^/(?!x)"}`, "bad")},
		{name: "a regex above the program size", good: good, bad: byRDS + routesWith(`safe_regex: {regex: "^/orders/[0-9a-z-]{40}/items$"}`, "bad")},
		{name: "routes inside the listener to an unknown cluster", good: inline,
			bad: fleetListener(fmt.Sprintf(fleetInline, "route: {cluster: nowhere}"), fleetRouter, "name: all")},
		{name: "an extension that Envoy does not have", good: inline, bad: fleetListener(fmt.Sprintf(fleetInline, fleetOK),
			`{name: no.such.filter, typed_config: {"@type": type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/no.such.Message}}, `+fleetRouter, "name: all")},
		{name: "HTTP filters without a router", good: inline,
			bad: fleetListener(fmt.Sprintf(fleetInline, fleetOK), `{name: fault, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault}}`, "name: all")},
		{name: "a cluster STATIC with an EDS config",
			good: proxied + "  load_assignment: {cluster_name: up, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: UPSTREAM}}}}]}]}\n",
			bad:  proxied + "  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}\n"},
		{name: "a key that does not match its certificate", tls: true, good: secure + secret(one, one), bad: secure + secret(two, one)},
		{name: "a listener on the address of another", good: inline,
			bad: inline + strings.Replace(fleetListener(fmt.Sprintf(fleetInline, strings.Replace(fleetOK, "good", "bad", 1)), fleetRouter, "name: all"), "name: in", "name: aa", 1)},
	}
}

// A client that starts while a refused change is in the files serves what its neighbours serve: at most
// a second after it is live, and from then on without a gap.
func TestFleetLastGood(t *testing.T) {
	t.Parallel()
	all := mistakes(t)
	up := newUpstream(t, "good")
	ports := make([]int, len(all))
	var root string
	write := func(i int, text string) {
		text = strings.NewReplacer("PORT", fmt.Sprint(ports[i]), "UPSTREAM", fmt.Sprint(up.port)).Replace(text)
		next := filepath.Join(filepath.Dir(root), fmt.Sprint("next", i))
		if err := errors.Join(os.WriteFile(next, []byte("resources:"+text), 0o600), os.Rename(next, filepath.Join(root, fmt.Sprint("g", i), "all.yaml"))); err != nil {
			t.Fatal(err)
		}
	}
	d := newDaemon(t, nil, func(dir string, _ int, _ world) error {
		root = dir
		for i := range all {
			group := filepath.Join(dir, fmt.Sprint("g", i))
			rules := fmt.Sprintf("on_error: alone\nmatch: {id: \"c%d-*\"}\n", i)
			if err := errors.Join(os.Mkdir(group, 0o755), os.WriteFile(filepath.Join(group, "group.yaml"), []byte(rules), 0o600)); err != nil {
				return err
			}
			ports[i] = freePort(t)
			write(i, all[i].good)
		}
		return nil
	}, "--quarantine", "--state-dir", t.TempDir())
	for i := range all {
		neighbour(t, d.addr(), fmt.Sprintf("c%d-old", i))
	}
	for i := range all {
		write(i, all[i].bad)
	}
	time.Sleep(time.Second)

	each := func(t *testing.T, id string, vs ...variant) {
		t.Run(id, func(t *testing.T) {
			for i, m := range all {
				t.Run("HEAL-3 "+m.name, func(t *testing.T) {
					t.Parallel()
					for _, v := range vs {
						t.Run(v.String(), func(t *testing.T) { m.serves(t, fmt.Sprintf("c%d-%s", i, id), v, d.port, ports[i]) })
					}
				})
			}
		})
	}
	each(t, "new", sotw, delta)
	time.Sleep(2 * time.Second) // the server stores what clients accepted
	d.kill()
	d.start()
	each(t, "restarted", delta)
	if n := len(d.logged("resource in quarantine: the client refuses it, and gets the others")); n < len(all) {
		t.Errorf("%d refusals are in the log", n)
	}
}

// serves starts an Envoy whose files have the mistake.
func (m mistake) serves(t *testing.T, id string, v variant, server, port int) {
	t.Helper()
	scheme := "http"
	if m.tls {
		scheme = "https"
	}
	web := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func() error { return getGood(web, fmt.Sprintf("%s://127.0.0.1:%d/", scheme, port)) }
	e := startEnvoy(t, id, v, server)
	eventually(t, 30*time.Second, "Envoy is live", e.Live)
	eventually(t, time.Second, "Envoy serves", get)
	for range 10 {
		if err := get(); err != nil {
			t.Fatalf("a gap: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func getGood(web *http.Client, url string) error {
	r, err := web.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK || string(b) != "good" {
		return fmt.Errorf("%s: %q", r.Status, b)
	}
	return nil
}

// Envoy names one resource in a NACK: a mistake in many route configurations costs no more time than in one.
func TestFleetLastGoodOfMany(t *testing.T) {
	t.Parallel()
	const all = 60
	var listeners, good, bad strings.Builder
	var ports []int
	var routes []string
	for i := range all {
		ports, routes = append(ports, freePort(t)), append(routes, fmt.Sprint("local", i))
		named := strings.NewReplacer("name: in", fmt.Sprint("name: in", i), "local", routes[i], "PORT", fmt.Sprint(ports[i]))
		listeners.WriteString(named.Replace(fleetListener(fleetRDS, fleetRouter, "name: all")))
		route := named.Replace(routesWith("path: /x", "good"))
		good.WriteString(route)
		bad.WriteString(route + `
  - name: again
    domains: ["*"]
    routes: [{match: {prefix: /}, direct_response: {status: 500}}]
`)
	}
	var file string
	write := func(routes string) error {
		next := filepath.Join(filepath.Dir(filepath.Dir(file)), "next")
		return errors.Join(os.WriteFile(next, []byte("resources:"+listeners.String()+routes), 0o600), os.Rename(next, file))
	}
	d := newDaemon(t, nil, func(dir string, _ int, _ world) error {
		file = filepath.Join(dir, "all.yaml")
		return write(good.String())
	}, "--quarantine")
	neighbour(t, d.addr(), "old", routes...)
	if err := write(bad.String()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	for _, v := range []variant{sotw, delta} {
		t.Run("HEAL-3 "+v.String(), func(t *testing.T) {
			e := startEnvoy(t, "new-"+v.String(), v, d.port)
			eventually(t, 30*time.Second, "Envoy is live", e.Live)
			eventually(t, time.Second, "Envoy serves", func() error {
				for _, port := range ports {
					if err := getGood(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/", port)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// A client that starts on one server of a store serves what the clients of another server run on, also after
// a sweep of the revision that they have.
func TestFleetLastGoodOfStore(t *testing.T) {
	t.Parallel()
	store, config, port := "file:"+filepath.Join(t.TempDir(), "store"), t.TempDir(), freePort(t)
	m := mistakes(t)[0]
	commit := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(config, "all.yaml"), []byte("resources:"+strings.ReplaceAll(text, "PORT", fmt.Sprint(port))), 0o600); err != nil {
			t.Fatal(err)
		}
		chancery(t, "apply", config, "--store", store, "-m", "files")
	}
	server := func() *daemon {
		d := &daemon{t: t, dir: "--store=" + store, port: freePort(t), log: filepath.Join(t.TempDir(), "chancery.log"),
			args: []string{"--quarantine", "--state-dir", t.TempDir(), "--drain", "200ms"}}
		d.start()
		t.Cleanup(d.stop)
		return d
	}
	commit(m.good)
	first, second := server(), server()
	neighbour(t, first.addr(), "c0-old")
	commit(m.bad)
	time.Sleep(4 * time.Second) // the first server notices the commit, and shares what its client accepted
	chancery(t, "sweep", "--store", store, "--keep", "1")
	t.Run("HEAL-3 on another server", func(t *testing.T) { m.serves(t, "new", delta, second.port, port) })
	first.kill()
	third := server()
	t.Run("HEAL-3 on a server that starts", func(t *testing.T) { m.serves(t, "newer", sotw, third.port, port) })
}

// neighbour is a client that accepts the first response of each type, and nothing later. It subscribes to the
// routes, by default to the one of its group.
func neighbour(t *testing.T, addr, id string, routes ...string) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wants := map[string][]string{
		"envoy.config.cluster.v3.Cluster": nil, "envoy.config.listener.v3.Listener": nil, "envoy.config.route.v3.RouteConfiguration": {"local"},
		"envoy.extensions.transport_sockets.tls.v3.Secret": {"server"},
	}
	if len(routes) > 0 {
		wants["envoy.config.route.v3.RouteConfiguration"] = routes
	}
	ask := func(typ string, r *discovery.DiscoveryResponse) {
		q := &discovery.DiscoveryRequest{Node: &core.Node{Id: id, UserAgentName: "envoy"}, TypeUrl: typ, ResourceNames: wants[strings.TrimPrefix(typ, "type.googleapis.com/")]}
		q.VersionInfo, q.ResponseNonce = r.GetVersionInfo(), r.GetNonce()
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
	}
	for typ := range wants {
		ask("type.googleapis.com/"+typ, nil)
	}
	named := map[string]bool{"RouteConfiguration": len(routes) > 0 || strings.HasPrefix(id, "c0") || strings.HasPrefix(id, "c1-") || strings.HasPrefix(id, "c2"), "Secret": strings.HasPrefix(id, "c7")}
	n := 2
	for _, wanted := range named {
		if wanted {
			n++
		}
	}
	for range n {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		ask(r.GetTypeUrl(), r)
	}
}
