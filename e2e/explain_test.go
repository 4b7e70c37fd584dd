package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
)

// A faulty is a file with a mistake that Envoy refuses, and good resources. The line with the
// mistake ends with "# here".
type faulty struct {
	name     string
	typ      string // what is refused
	resource string // at fault
	good     string // a good resource of the same response; "": none
	file     string
	text     string // text in Envoy's error, so that the case tests the intended mistake
}

const (
	yamlListener = `"@type": type.googleapis.com/envoy.config.listener.v3.Listener`
	yamlCluster  = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster`
	yamlTCP      = `"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy`
)

// goodListener returns a listener without a mistake.
func goodListener(name string, port int) string {
	return fmt.Sprintf(`
- %s
  name: %s
  address: {socket_address: {address: 127.0.0.1, port_value: %d}}
  filter_chains:
  - filters:
    - name: tcp
      typed_config: {%s, stat_prefix: x, cluster: other}`, yamlListener, name, port, yamlTCP)
}

func goodCluster(name string) string {
	return fmt.Sprintf(`
- %s
  name: %s
  connect_timeout: 1s
  load_assignment: {cluster_name: %s}`, yamlCluster, name, name)
}

// faults are files that Envoy 1.40 refuses, with its errors.
func faults(port, port2 int) []faulty {
	return []faulty{
		{name: "a listener that breaks a rule itself", typ: "LDS", resource: "bad", good: "good", text: "Proto constraint validation failed", file: goodListener("good", port) + `
- ` + yamlListener + `
  name: bad
  address:
    socket_address:
      address: 127.0.0.1
      port_value: 200000 # here
  filter_chains: [{filters: []}]`},
		{name: "a listener that breaks a rule inside of typed_config", typ: "LDS", resource: "bad", good: "good", text: "Error adding/updating listener(s) bad", file: goodListener("good", port) + fmt.Sprintf(`
- `+yamlListener+`
  name: bad
  address: {socket_address: {address: 127.0.0.1, port_value: %d}}
  filter_chains:
  - filters:
    - name: tcp
      typed_config:
        `+yamlTCP+`
        stat_prefix: "" # here
        cluster: other`, port2)},
		{name: "a listener with an extension that Envoy has not", typ: "LDS", resource: "bad", good: "good", text: "no.such.filter", file: goodListener("good", port) + fmt.Sprintf(`
- `+yamlListener+`
  name: bad
  address: {socket_address: {address: 127.0.0.1, port_value: %d}}
  filter_chains:
  - filters:
    - name: no.such.filter # here
      typed_config:
        "@type": type.googleapis.com/xds.type.v3.TypedStruct
        type_url: type.googleapis.com/no.such.Message`, port2)},
		{name: "a cluster with a timeout below zero", typ: "CDS", resource: "bad", good: "good", text: "Expected positive duration", file: goodCluster("good") + `
- ` + yamlCluster + `
  name: bad
  connect_timeout: -1s # here`},
		{name: "a cluster that breaks a rule itself", typ: "CDS", resource: "bad", good: "good", text: "Proto constraint validation failed", file: goodCluster("good") + `
- ` + yamlCluster + `
  name: bad
  connect_timeout: 0s # here`},
		{name: "a cluster of type EDS without a source", typ: "CDS", resource: "bad", good: "good", text: "cannot create an EDS cluster without an EDS config", file: goodCluster("good") + `
- ` + yamlCluster + `
  name: bad
  connect_timeout: 1s
  type: EDS # here`},
		{name: "a cluster with a transport socket that Envoy has not", typ: "CDS", resource: "bad", good: "good", text: "no.such.socket", file: goodCluster("good") + `
- ` + yamlCluster + `
  name: bad
  connect_timeout: 1s
  load_assignment: {cluster_name: bad}
  transport_socket:
    name: no.such.socket # here`},
		{name: "endpoints with a port that is too high", typ: "EDS", resource: "e2", good: "e1", text: "", file: `
- ` + yamlCluster + `
  name: e1
  connect_timeout: 1s
  type: EDS
  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}
- ` + yamlCluster + `
  name: e2
  connect_timeout: 1s
  type: EDS
  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: e1
  endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: e2
  endpoints:
  - lb_endpoints:
    - endpoint:
        address:
          socket_address:
            address: 127.0.0.1
            port_value: 99999 # here`},
		{name: "routes with two wildcard domains", typ: "RDS", resource: "rt", text: "Only a single wildcard domain is permitted", file: fmt.Sprintf(`
- `+yamlListener+`
  name: good
  address: {socket_address: {address: 127.0.0.1, port_value: %d}}
  filter_chains:
  - filters:
    - name: http
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: x
        http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
        rds: {route_config_name: rt, config_source: {ads: {}, resource_api_version: V3}}
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: rt
  virtual_hosts:
  - name: a
    domains: ["*"]
    routes: [{match: {prefix: /}, route: {cluster: other}}]
  - name: b
    domains: ["*"] # here
    routes: [{match: {prefix: /}, route: {cluster: other}}]`, port)},
	}
}

// lines returns the positions of the lines with mistakes, such as "case.yaml:5:".
func (f faulty) lines() (all []string) {
	for i, line := range strings.Split("resources:"+f.file, "\n") {
		if strings.HasSuffix(line, "# here") {
			all = append(all, fmt.Sprintf("case.yaml:%d:", i+1))
		}
	}
	return all
}

// For each mistake and each error text of a real Envoy, the refusal names the resource with the
// mistake and its line. Explain of another resource in the same response reports that line, too.
func TestExplainRefusals(t *testing.T) {
	t.Parallel()
	each(t, "OBS-1 HEAL-5 each refusal has the line that is at fault, in the log, too", func(t *testing.T, v variant) {
		at := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
		s := siteOf(t, func(w world) *rig {
			return newRig(t, w, sourcedBy(v, renamed), "--admin-listen", at)
		})
		s.provoked = `SOTW-14 DELTA-1 resource "good" twice` // the files of one case have this name twice
		s.start(v)
		admin, err := adminclient.Dial(adminclient.Target{URL: at})
		if err != nil {
			t.Fatal(err)
		}
		files := team{s.daemon, "."}
		for _, f := range faults(freePort(t), freePort(t)) {
			p := s.Mark("%s", f.name)
			files.has("case.yaml", []byte("resources:"+f.file+"\n"))
			s.sees(p, soon, "a NACK: "+f.name, func(rs tap.Records) bool { return len(rs.NACKs(f.typ)) > 0 })
			s.quiet()
			eventually(t, soon, "the refusal is explained: "+f.name, func() error { return f.explained(admin) })
			eventually(t, soon, "the log has the line: "+f.name, func() error {
				lines := s.daemon.logged("client refused a response (NACK)")
				if len(lines) == 0 {
					return errors.New("no line")
				}
				line, want := lines[len(lines)-1], f.lines()
				resources, places := fmt.Sprint(line["resources"]), fmt.Sprint(line["at"])
				if line["type"] != f.typ || !strings.HasPrefix(resources, "["+f.resource) || !strings.Contains(places, want[0]) ||
					len(strings.Fields(places)) != len(want) || line["one_of"] != nil {
					return fmt.Errorf("not %s at %s: %v", f.resource, want, line)
				}
				return nil
			})
			if out, err := exec.Command(binary, "status", "--admin", at).CombinedOutput(); err == nil || !strings.Contains(string(out), f.lines()[0]) {
				t.Errorf("%s: status lacks %s: %v\n%s", f.name, f.lines()[0], err, out)
			}
			s.Mark("reverted")
			files.has("case.yaml", []byte("# nothing\n"))
			s.nextChange()
			s.quiet()
			eventually(t, soon, "nothing is refused any more", func() error {
				x, err := admin.Explain(context.Background(), "e2e", "", "")
				if err == nil && x.Broken != "" {
					err = fmt.Errorf("broken at %s: %+v", x.Broken, x.Links)
				}
				return err
			})
		}
	})
}

// explained checks the daemon's explanation of the refusal.
func (f faulty) explained(admin *adminclient.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	refusals, err := admin.Refusals(ctx)
	if err != nil {
		return err
	}
	if len(refusals.Items) != 1 {
		return fmt.Errorf("%d refusals: %+v", len(refusals.Items), refusals.Items)
	}
	r := refusals.Items[0]
	if r.Type != f.typ || !strings.Contains(r.Error, f.text) || len(r.Resources) == 0 {
		return fmt.Errorf("refusal: %+v", r)
	}
	want := f.lines()
	if r.Resources[0].Name != f.resource || !strings.Contains(r.Resources[0].Place, want[0]) || len(r.Resources) != len(want) {
		return fmt.Errorf("the refusal is not of %s at %s: %+v", f.resource, want, r)
	}
	x, err := admin.Explain(ctx, "e2e", f.typ, f.resource)
	if err != nil {
		return err
	}
	if x.Broken != "valid" && x.Broken != "accepted" || !contains(x, want[0]) {
		return fmt.Errorf("%s is broken at %q, not at %s: %+v", f.resource, x.Broken, want[0], x)
	}
	if f.good == "" {
		return nil
	}
	if x, err = admin.Explain(ctx, "e2e", f.typ, f.good); err != nil {
		return err
	}
	if x.Broken != "accepted" || !contains(x, want[0]) {
		return fmt.Errorf("%s, which came with it, is broken at %q, not because of %s: %+v", f.good, x.Broken, want[0], x)
	}
	return nil
}

// contains reports whether a link has a place.
func contains(x *api.Explanation, place string) bool {
	for _, l := range x.Links {
		if !l.OK && strings.Contains(l.Place, place) {
			return true
		}
	}
	return false
}

// Explain reports the broken link for each reason why a real Envoy lacks a resource.
func TestExplainLinks(t *testing.T) {
	t.Parallel()
	each(t, "OBS-1 the broken link is named", func(t *testing.T, v variant) {
		at := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
		s := siteOf(t, func(w world) *rig { return newRig(t, w, sourcedBy(v, renamed), "--admin-listen", at) })
		s.start(v)
		admin, err := adminclient.Dial(adminclient.Target{URL: at})
		if err != nil {
			t.Fatal(err)
		}
		here, pay := team{s.daemon, "."}, team{s.daemon, "pay"}
		// broken waits until explain reports this broken link with a text.
		broken := func(node, typ, name, link, text string) {
			t.Helper()
			eventually(t, soon, "broken: "+link, func() error {
				x, err := admin.Explain(context.Background(), node, typ, name)
				if err != nil {
					return err
				}
				if link == "" && x.Broken == "" {
					return nil
				}
				for _, l := range x.Links {
					if l.Name == link && x.Broken == link && strings.Contains(l.Text+" "+l.Place+" "+x.Advice, text) {
						return nil
					}
				}
				return fmt.Errorf("broken at %q: %+v", x.Broken, x)
			})
		}
		broken("e2e", "CDS", "backend", "", "")
		broken("e2ee", "CDS", "backend", "connected", `did you mean "e2e"?`)
		broken("e2e", "CDS", "backnd", "defined", `did you mean "backend"?`)

		s.Mark("a file of another group")
		pay.has("group.yaml", []byte("match: {id: pay}\n"))
		pay.has("case.yaml", []byte("resources:"+goodCluster("billing")+"\n"))
		broken("e2e", "CDS", "billing", "selected", `id is "pay"`)

		s.Mark("endpoints to which nothing refers, and routes to a cluster that no file has")
		here.has("case.yaml", documentsOf(assignment("lonely", 1), routes("side", "2", "nowhere")))
		s.commit("its routes are of another file", func(w world) { w.drop(routes("side", "", "")) })
		broken("e2e", "EDS", "lonely", "referenced", "no resource of the node refers to it")
		broken("e2e", "RDS", "side", "valid", `it refers to CDS "nowhere", which no file has`)
		s.commit("back", func(w world) { w.set(routes("side", "1", "other")) })
		here.has("case.yaml", []byte("# nothing\n"))
		eventually(t, soon, "side serves", s.side.gets(answer{"b", "1"}))

		s.Mark("a file with a mistake")
		here.has("case.yaml", []byte("resources:"+goodCluster("new")+"\n  conect_timeout: 1s\n"))
		broken("e2e", "CDS", "new", "loaded", "case.yaml:6:3")
		here.has("case.yaml", []byte("# nothing\n"))
		broken("e2e", "", "", "", "")

		s.Mark("a listener with routes that no file has")
		here.has("case.yaml", documentsOf(httpListener("waits", freePort(t), "none")))
		broken("e2e", "RDS", "none", "defined", `to which LDS "waits" refers`)
		broken("e2e", "", "", "defined", `RDS "none"`)
		here.has("case.yaml", []byte("# nothing\n"))
		broken("e2e", "", "", "", "")

		s.Mark("a cluster of type EDS that is refused: no client subscribes to its endpoints")
		bad := edsCluster("parent", time.Second)
		bad.ConnectTimeout.Seconds = -1
		here.has("case.yaml", documentsOf(bad, assignment("parent", 1)))
		broken("e2e", "EDS", "parent", "referenced", "NACKED")
		here.has("case.yaml", []byte("# nothing\n"))
		broken("e2e", "", "", "", "")

		s.Mark("Envoy stands still")
		if err := s.envoy.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		here.has("case.yaml", []byte("resources:"+goodCluster("late")+"\n"))
		broken("e2e", "CDS", "late", "accepted", "not answered for")
		here.has("case.yaml", []byte("resources:"+goodCluster("late")+goodCluster("later")+"\n"))
		broken("e2e", "CDS", "later", "sent", "the client has not answered an earlier response of CDS")
		if err := s.envoy.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		broken("e2e", "CDS", "later", "", "")
	})
}
