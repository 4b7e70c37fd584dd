package explain

import (
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
