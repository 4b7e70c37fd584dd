package dir

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
)

// inlineRoutes is a listener with routes inside it. ROUTE, HOST and CONFIG are fields of these messages.
func inlineRoutes(route, host, config string) string {
	return strings.NewReplacer("ROUTE", route, "HOST", host, "CONFIG", config).Replace(`{` + listenerURL + `, name: l,
address: {socket_address: {address: 127.0.0.1, port_value: 80}}, filter_chains: [{filters: [{name: h, typed_config: {
"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: s,
http_filters: [{name: r, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}],
route_config: {CONFIG virtual_hosts: [{HOST name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {
ROUTE}}]}]}}}]}]}`)
}

// routeConfiguration is a resource with a route to the cluster "missing"; before and after are parts of it.
func routeConfiguration(message, before, after string) string {
	return `{"@type": type.googleapis.com/envoy.config.route.v3.` + message + `, name: r,
` + before + `virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: missing}}]}]}` + after
}

func bootstrapOf(t *testing.T, json string) []proto.Message {
	t.Helper()
	m := envoyapi.Envoy().New("envoy.config.bootstrap.v3.Bootstrap").Interface()
	if err := (protojson.UnmarshalOptions{Resolver: envoyapi.Envoy()}).Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	return []proto.Message{m}
}

// SAFE-3: Envoy 1.40 refuses each of these resources that is an error here, with "route: unknown cluster", "unknown weighted
// cluster" or "unknown shadow cluster".
func TestRouteToUnknownClusterThatEnvoyValidates(t *testing.T) {
	const own, mirror = clusterURL + "\nname: own\n", "request_mirror_policies: [{cluster: missing}], "
	const static = `{"static_resources": {"clusters": [{"name": "kept"}]}, "dynamic_resources": {"cds_config": {"ads": {}}}}`
	for name, tt := range map[string]struct {
		route, host, config string
		refused             string // the place of the error; "": it is a warning
	}{
		"a cluster":                         {route: "cluster: missing", refused: "l.yaml:6:10: "},
		"a weighted cluster":                {route: "weighted_clusters: {clusters: [{name: own, weight: 1}, {name: missing, weight: 1}]}", refused: "l.yaml:6:63: "},
		"a mirror of a route":               {route: mirror + "cluster: own", refused: "l.yaml:6:37: "},
		"a mirror of a virtual host":        {route: "cluster: own", host: mirror, refused: "l.yaml:5:"},
		"a mirror of the routes":            {route: "cluster: own", config: mirror, refused: "l.yaml:5:"},
		"a mirror that the route overrides": {route: "request_mirror_policies: [{cluster: own}], cluster: own", host: mirror},
		"without validation":                {route: "cluster: missing", config: "validate_clusters: false, "},
	} {
		t.Run("SAFE-3 "+name, func(t *testing.T) {
			b := newFixture(t, "own.yaml", own, "l.yaml", inlineRoutes(tt.route, tt.host, tt.config))
			errs, warnings := problemsOf(b.dir, Check(b.dir, Options{Bootstraps: bootstrapOf(t, static)}))
			if tt.refused == "" {
				if errs != "" || !strings.Contains(warnings, "XDS0201 ") {
					t.Errorf("errors %q, warnings %q", errs, warnings)
				}
			} else if !strings.HasPrefix(errs, "XDS0415 "+tt.refused) || !strings.Contains(errs, `LDS "l" refers to CDS "missing", which no file has`) || strings.Contains(warnings, "XDS0201") {
				t.Errorf("errors %q, warnings %q", errs, warnings)
			}
			// Without a bootstrap its clusters are unknown.
			errs, warnings = problemsOf(b.dir, Check(b.dir, Options{}))
			if errs != "" || strings.Contains(warnings, requiredHint) != (tt.refused != "") {
				t.Errorf("without a bootstrap: errors %q, warnings %q", errs, warnings)
			}
		})
	}
	for name, tt := range map[string]struct {
		resource string
		refused  string // the place of the error; "": it is a warning
	}{
		"a mirror next to a redirect": {
			resource: strings.Replace(inlineRoutes("", mirror, ""), "route: {\n}", `redirect: {host_redirect: x}`, 1), refused: "l.yaml:5:"},
		"a matcher of routes, which Envoy does not check": {resource: strings.Replace(inlineRoutes("", mirror, ""), "routes: [{match: {prefix: /}, route: {\n}}]",
			`matcher: {on_no_match: {action: {name: a, typed_config: {"@type": type.googleapis.com/envoy.config.route.v3.Route, match: {prefix: /}, route: {cluster: missing}}}}}`, 1)},
		"routes of a scope inside the listener": {resource: strings.NewReplacer("route_config: {", `scoped_routes: {name: scopes, scope_key_builder: {fragments: [{header_value_extractor: {name: h, index: 0}}]},
scoped_route_configurations_list: {scoped_route_configurations: [{name: s, key: {fragments: [{string_key: k}]}, route_configuration: {`, "}}]}]}}}]}]}", "}}]}]}}]}}}}]}]}").
			Replace(inlineRoutes("cluster: missing", "", "")), refused: "l.yaml:7:10: "},
		"RDS":                           {resource: routeConfiguration("RouteConfiguration", "", "")},
		"RDS with validate_clusters":    {resource: routeConfiguration("RouteConfiguration", "validate_clusters: true, ", ""), refused: "l.yaml:2:"},
		"SRDS with routes":              {resource: routeConfiguration("ScopedRouteConfiguration", "key: {fragments: [{string_key: k}]}, route_configuration: {name: x, ", "}"), refused: "l.yaml:2:"},
		"SRDS with routes, unvalidated": {resource: routeConfiguration("ScopedRouteConfiguration", "key: {fragments: [{string_key: k}]}, route_configuration: {name: x, validate_clusters: false, ", "}")},
	} {
		t.Run("SAFE-3 "+name, func(t *testing.T) {
			b := newFixture(t, "own.yaml", own, "l.yaml", tt.resource)
			errs, warnings := problemsOf(b.dir, Check(b.dir, Options{Bootstraps: bootstrapOf(t, static)}))
			if tt.refused == "" {
				if errs != "" || !strings.Contains(warnings, "XDS0201 ") {
					t.Errorf("errors %q, warnings %q", errs, warnings)
				}
			} else if !strings.HasPrefix(errs, "XDS0415 "+tt.refused) || strings.Count(errs, "\n") > 1 || strings.Contains(warnings, "XDS0201") {
				t.Errorf("errors %q, warnings %q", errs, warnings)
			}
			// A server knows no bootstrap.
			b.src = New(b.dir, b.st, Options{References: true})
			b.expectLoad("", "")
			if got := fmt.Sprint(b.src.Summary().Warnings); strings.Contains(got, requiredHint) != (tt.refused != "") || !strings.Contains(got, `refers to CDS "missing"`) {
				t.Errorf("at load: %s", got)
			}
		})
	}
	for name, tt := range map[string]struct {
		bootstrap, cluster string
		ignore             []findings.Code
		refused, doubtful  bool
	}{
		"SAFE-3 a cluster of the bootstrap":                        {bootstrap: static, cluster: "kept"},
		"SAFE-3 another cluster":                                   {bootstrap: static, cluster: "kep", refused: true},
		"SAFE-3 a bootstrap without a source of clusters":          {bootstrap: `{}`, cluster: "kept", refused: true},
		"SAFE-3 a bootstrap whose clusters come from another file": {bootstrap: `{"dynamic_resources": {"cds_config": {"path_config_source": {"path": "/x"}}}}`, cluster: "kept", doubtful: true},
		"SAFE-3 the error is ignored":                              {bootstrap: static, cluster: "kep", ignore: []findings.Code{findings.UnknownCluster}},
		"SAFE-3 the warning is ignored, which leaves the error":    {bootstrap: static, cluster: "kep", ignore: []findings.Code{findings.Dangling}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "own.yaml", own, "l.yaml", inlineRoutes("cluster: "+tt.cluster, "", ""))
			errs, warnings := problemsOf(b.dir, CheckAll([]string{b.dir}, nil, Options{Bootstraps: bootstrapOf(t, tt.bootstrap)}, tt.ignore...))
			if strings.Contains(errs, "XDS0415") != tt.refused || strings.Contains(warnings, "XDS0201") != tt.doubtful {
				t.Errorf("errors %q, warnings %q", errs, warnings)
			}
		})
	}
}

// problemsOf returns the errors and the warnings of a check with their codes, without the directory.
func problemsOf(root string, c Checked) (errs, warnings string) {
	text := func(all []findings.Problem) string {
		var b strings.Builder
		for _, p := range all {
			b.WriteString(string(p.Code) + " " + strings.ReplaceAll(p.Error(), root+"/", "") + "\n")
		}
		return b.String()
	}
	return text(c.Errors), text(c.Warnings)
}
