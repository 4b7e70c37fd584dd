package explain

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// If the node gets no registered endpoints of a cluster, Explain names the groups for which endpoints are
// registered. It also reports a registered cluster whose endpoints are gone.
func TestRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "edge/group.yaml", "match: {id: edge-1}\n", "web/group.yaml", "match: {id: web-1}\n",
			"edge/a.yaml", resources(cluster("a")), "web/a.yaml", resources(cluster("a")))
		counts := map[string]int{"default/away": 1, "web/away": 1, "edge/gone": 0, "edge/here": 2}
		r.deps.Registered = func(group, name string) (string, int, bool) {
			n, ok := counts[group+"/"+name]
			return "registered", n, ok
		}
		r.Explainer = New(r.deps)
		takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
		r.deps.Store = func() (string, bool) { return "revision r9 of a store", true }
		r.Explainer = New(r.deps)
		if x, err := r.Explain(t.Context(), "edge-1", "", ""); err != nil || !strings.Contains(r.text(x), "the server serves revision r9 of a store") || strings.Contains(r.text(x), "files") {
			t.Error(err, r.text(x))
		}
		for name, want := range map[string][]string{
			"away": {"endpoints of \"away\" are registered in group default, web, which the node does not get", "chancery endpoints put away -g edge"},
			"gone": {"all registered endpoints of \"gone\" in group \"edge\" are gone", "chancery endpoints put gone -g edge", "chancery endpoints rm --release gone -g edge"},
			"here": {"defined: ok: endpoints of \"here\" are registered, in group \"edge\""},
			"none": {"no revision that is served has EDS \"none\""},
		} {
			_, text := r.explain("edge-1", "EDS "+name)
			for _, w := range want {
				if !strings.Contains(text, w) {
					t.Errorf("%s: no %q in\n%s", name, w, text)
				}
			}
		}
	})
}

// Endpoints that no served cluster uses get a warning, with the nearest name. A cluster may use another name
// for its endpoints.
func TestUnusedEndpoints(t *testing.T) {
	other := strings.Replace(edsCluster("other"), "eds_cluster_config: {", "eds_cluster_config: {service_name: svc, ", 1)
	r := start(t, "c.yaml", resources(edsCluster("backend"), other, cluster("static")))
	for name, want := range map[string]string{
		"backend": "", "svc": "",
		"bakcend": `no served cluster uses EDS with the name "bakcend": did you mean "backend"?`,
		"static":  `no served cluster uses EDS with the name "static"`,
		"other":   `no served cluster uses EDS with the name "other"`,
		"zzz":     `no served cluster uses EDS with the name "zzz"`,
	} {
		if got := r.Unused(name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
	many := make([]string, maxUsers+1)
	for i := range many {
		many[i] = cluster(fmt.Sprint("c", i))
	}
	if got := start(t, "c.yaml", resources(many...)).Unused("c0"); got != "" {
		t.Errorf("%q", got)
	}
}
