package dir

import (
	"strings"
	"testing"
)

// References count across all groups that a node may see at once.
func TestReferencesAcrossGroups(t *testing.T) {
	route := func(cluster string) string {
		return `{"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", name: r, virtual_hosts: [{name: h, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: ` + cluster + "}}]}]}\n"
	}
	const listener = `{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", name: l, api_listener: {api_listener: {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", rds: {route_config_name: r, config_source: {ads: {}}}}}}` + "\n"
	for name, tt := range map[string]struct {
		web, more, root string // group.yaml of the group of the route, of that of its cluster, and of the root
		want            bool   // the reference is dangling, and the cluster is unused
	}{
		"other values of one field":               {"match: {cluster: web}", "match: {cluster: [db, cache]}", "", true},
		"one value in common":                     {"match: {cluster: web}", "match: {cluster: [db, web]}", "", false},
		"prefixes that exclude others":            {`match: {id: "web-*"}`, `match: {id: "db-*"}`, "", true},
		"a prefix of the other":                   {`match: {id: "web-*"}`, `match: {id: "we*"}`, "", false},
		"a value with the prefix":                 {`match: {id: "web-*"}`, `match: {id: web-1}`, "", false},
		"a value without":                         {`match: {id: "web-*"}`, `match: {id: db-1}`, "", true},
		"other fields":                            {"match: {cluster: web}", "match: {id: db}", "", false},
		"metadata, which may be a list":           {"match: {metadata: {a: x}}", "match: {metadata: {a: y}}", "", false},
		"an include":                              {"match: {cluster: web}\ninclude: [more]", "", "", false},
		"included by it":                          {"", "match: {cluster: db}\ninclude: [web]", "", false},
		"a group that no node gets":               {"match: {cluster: web}", "", "", false},
		"for nodes that match no group":           {"match: {cluster: web}", "", "otherwise: more", true},
		"included, for nodes that match no group": {"", "", "otherwise: web", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "group.yaml", tt.root+"\n", "web/group.yaml", tt.web+"\n", "web/r.yaml", listener+"---\n"+route("c"), "more/group.yaml", tt.more+"\n", "more/c.yaml", clusters("c"), "more/l.yaml", strings.ReplaceAll(listener, "name: r", "name: r2"))
			c := Check(b.dir, Options{})
			if len(c.Errors) > 0 {
				t.Fatal(Errors(c.Errors))
			}
			missing, unused := false, false
			for _, p := range c.Warnings {
				missing = missing || strings.Contains(p.Message, `refers to CDS "c"`) && p.Group == "web" && p.Pos.Column > 1
				unused = unused || strings.Contains(p.Message, `nothing refers to CDS "c"`) && p.Group == "more"
			}
			if missing != tt.want || unused != tt.want {
				t.Errorf("missing %v, unused %v, want %v: %v", missing, unused, tt.want, c.Warnings)
			}
		})
	}
}

func TestCheckReportsGroups(t *testing.T) {
	b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", alone+"mtch: {}\n", "edge/x.yaml", bad, "edge/s.yaml", placed("s", "[canary]"))
	if c := Check(b.dir, Options{}); len(c.Errors) != 3 { // also errors of groups with "on_error: alone"
		t.Error(Errors(c.Errors))
	}
	b.write("edge/group.yaml", alone+edgeGroup)
	if c := Check(b.dir, Options{}); len(c.Errors) != 2 || c.Errors[0].Group != "edge" {
		t.Error(Errors(c.Errors))
	}
	// For a single file, the existing groups are unknown.
	if c := Check(b.dir+"/edge/s.yaml", Options{}); len(c.Errors) != 0 {
		t.Error(Errors(c.Errors))
	}
	b.write("edge/group.yaml", "match: {}\n")
	if c := Check(b.dir+"/edge/group.yaml", Options{}); len(c.Errors) != 1 || !strings.Contains(c.Errors[0].Message, "no file has a resource") {
		t.Error(Errors(c.Errors))
	}
}
