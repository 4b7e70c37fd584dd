package dir

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// findings prints what a check found, a line each, with relative names.
func (b *fixture) findings() string {
	c := Check(b.dir, Options{})
	var out strings.Builder
	for _, n := range c.Counts {
		out.WriteString(n.Type.String() + " " + strings.Repeat("|", n.N) + "\n")
	}
	for _, p := range append(c.Errors, c.Warnings...) {
		out.WriteString(strings.ReplaceAll(strings.ReplaceAll(p.Error(), b.dir+"/", ""), b.dir, "DIR") + "\n")
	}
	return out.String()
}

func TestCheck(t *testing.T) {
	const noResource = "DIR: no file has a resource (is it the right directory? Names of files end in .yaml, .yml, .json, .txtpb, .textproto, .pb_text or .pb)\n"
	eds := func(name string) string {
		return "{" + clusterURL + ", name: " + name + ", type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}\n"
	}
	const routes = `{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: %}}]}]}` + "\n"
	to := func(cluster string) string { return strings.ReplaceAll(routes, "%", cluster) }
	for _, tt := range []struct {
		name  string
		files []string
		want  string
	}{
		{"nothing", nil, noResource},
		{"a reference whose name is in a readable file", []string{"a.yml.bak", eds("x")}, noResource},
		{"all there", []string{"a.yaml", eds("e"), "e.json", endpointsE, "r.yaml", to("e")}, "CDS |\nEDS |\nRDS |\n"},
		{"endpoints and a cluster that are not", []string{"a.yaml", eds("x"), "r.txtpb", `resources { [type.googleapis.com/envoy.config.route.v3.RouteConfiguration] {
name: "r" virtual_hosts { name: "v" domains: "*" routes { match { prefix: "/" } route { cluster: "none" } } } } }`},
			"CDS |\nRDS |\n" +
				"a.yaml:1:1: warning: nothing refers to CDS \"x\"\n" +
				"a.yaml:1:104: warning: eds_cluster_config: CDS \"x\" refers to EDS \"x\", which no file has (Envoy waits 15 s for endpoints that are missing, at each start)\n" +
				"r.txtpb: warning: resources[0].virtual_hosts[0].routes[0].route.cluster: RDS \"r\" refers to CDS \"none\", which no file has (requests to it fail, unless the client's bootstrap has it)\n"},
		{"by another name", []string{"a.yaml", eds("alias"), "e.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\naliases: [alias]\nresource: " + endpointsE},
			"CDS |\nEDS |\n"},
		{"which one is not known", []string{"a.yaml", "{" + clusterURL + ", name: x, cluster_type: {name: custom}}\n"}, "CDS |\n"},
		{"warnings of the files, too", []string{"a.yaml", eds("x"), "b.yaml", ""},
			"CDS |\n" +
				"a.yaml:1:104: warning: eds_cluster_config: CDS \"x\" refers to EDS \"x\", which no file has (Envoy waits 15 s for endpoints that are missing, at each start)\n" +
				"b.yaml: warning: the file is empty; a running server rejects a file that has become empty\n"},
		{"mistakes: the missing resource may be in the unreadable file", []string{"a.yaml", eds("x"), "b.yaml", "x: y", "c.yaml", ""},
			"CDS |\n" +
				"b.yaml:1:1: neither \"@type\" nor \"resources\" (it must be a resource, a DiscoveryResponse or the protocol's Resource)\n" +
				"c.yaml: warning: the file is empty; a running server rejects a file that has become empty\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := newFixture(t, tt.files...).findings(); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// A warning is logged when it appears, and not at each load.
func TestWarningIsLoggedOnce(t *testing.T) {
	b := newFixture(t, "a.yaml", clusterURL+"\nname: 12\n", "b.yaml", clusters("b"))
	var log strings.Builder
	b.src.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	w := watch.NewWatcher(b.src.opts.Log, b.src.opts.Poll)
	defer w.Close()
	reload := func(force bool) int {
		log.Reset()
		b.src.reload(order{force: force}, w)
		return strings.Count(log.String(), "level=WARN")
	}
	for i, tt := range []struct {
		change func()
		force  bool
		want   int
	}{
		{func() {}, false, 1},
		{func() {}, false, 0},
		{func() {}, true, 0},
		{func() { b.write("b.yaml", clusters("c")) }, false, 0},
		{func() { b.write("b.yaml", clusterURL+"\nname: 13\n") }, false, 1},
		{func() { b.write("b.yaml", clusters("c")) }, false, 0},
		{func() { b.write("b.yaml", clusterURL+"\nname: 13\n") }, false, 1},
	} {
		tt.change()
		if got := reload(tt.force); got != tt.want {
			t.Errorf("step %d: %d warnings, want %d: %s", i, got, tt.want, log.String())
		}
	}
}

// With adds problems, and reports as many as the option allows.
func TestWithLimitsProblems(t *testing.T) {
	b := newFixture(t, "a.yaml", strings.Repeat("---\nx: y\n", 3))
	c := Check(b.dir, Options{MaxProblems: -1})
	for most, want := range map[int]int{-1: 4, 0: 4, 2: 3, 1: 2} {
		got := c.With([]findings.Problem{{File: "z.yaml", Message: "more"}}, nil, most).Errors
		if len(got) != want || findings.Count(got) != 4 {
			t.Errorf("with the limit %d: %d are reported, want %d, and %d counted", most, len(got), want, findings.Count(got))
		}
	}
}
