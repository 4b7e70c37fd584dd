package envoybinary

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/source/dir"
)

// SAFE-3: Envoy refuses a listener with a route to an unknown cluster where check with a bootstrap does.
func TestAgreesWithEnvoyAboutRoutesInListeners(t *testing.T) {
	needEnvoy(t)
	type object = map[string]any
	mirror := []object{{"cluster": "missing"}}
	for name, tt := range map[string]struct {
		route, redirect, host, config object
		scoped, accepted              bool
	}{
		"a cluster":              {route: object{"cluster": "missing"}},
		"a cluster of its own":   {route: object{"cluster": "own"}, accepted: true},
		"a weighted cluster":     {route: object{"weighted_clusters": object{"clusters": []object{{"name": "missing", "weight": 1}}}}},
		"a mirror of a route":    {route: object{"cluster": "own", "request_mirror_policies": mirror}},
		"a mirror of a host":     {route: object{"cluster": "own"}, host: object{"request_mirror_policies": mirror}},
		"a mirror of the routes": {route: object{"cluster": "own"}, config: object{"request_mirror_policies": mirror}},
		"a mirror that a route overrides": {route: object{"cluster": "own", "request_mirror_policies": []object{{"cluster": "own"}}},
			host: object{"request_mirror_policies": mirror}, accepted: true},
		"a cluster without validation": {route: object{"cluster": "missing"}, config: object{"validate_clusters": false}, accepted: true},
		"a cluster by a header":        {route: object{"cluster_header": "x"}, accepted: true},
		"a mirror next to a redirect":  {redirect: object{"host_redirect": "x"}, host: object{"request_mirror_policies": mirror}},
		"a scope":                      {route: object{"cluster": "missing"}, scoped: true},
		"a scope without validation":   {route: object{"cluster": "missing"}, config: object{"validate_clusters": false}, scoped: true, accepted: true},
		"a matcher": {host: object{"routes": nil, "request_mirror_policies": mirror, "matcher": object{"on_no_match": object{"action": object{"name": "a", "typed_config": object{
			"@type": "type.googleapis.com/envoy.config.route.v3.Route", "match": object{"prefix": "/"}, "route": object{"cluster": "missing"}}}}}}, accepted: true},
	} {
		t.Run("SAFE-3 "+name, func(t *testing.T) {
			t.Parallel()
			with := func(base object, more object) object {
				maps.Copy(base, more)
				return base
			}
			route := object{"match": object{"prefix": "/"}}
			if tt.redirect != nil {
				route["redirect"] = tt.redirect
			} else {
				route["route"] = tt.route
			}
			host := with(object{"name": "v", "domains": []string{"*"}, "routes": []object{route}}, tt.host)
			routes := with(object{"virtual_hosts": []object{host}}, tt.config)
			router := object{"name": "r", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}
			manager := object{
				"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": "s", "route_config": routes, "http_filters": []object{router},
			}
			if tt.scoped {
				delete(manager, "route_config")
				builder := object{"fragments": []object{{"header_value_extractor": object{"name": "h", "index": 0, "element_separator": ","}}}}
				scope := object{"name": "s", "key": object{"fragments": []object{{"string_key": "k"}}}, "route_configuration": with(routes, object{"name": "r"})}
				manager["scoped_routes"] = object{"name": "scopes", "scope_key_builder": builder,
					"scoped_route_configurations_list": object{"scoped_route_configurations": []object{scope}}}
			}
			listener := object{
				"name": "l", "address": object{"socket_address": object{"address": "127.0.0.1", "port_value": 1}},
				"default_filter_chain": object{"filters": []object{{"name": "h", "typed_config": manager}}},
			}
			bootstrap := object{"static_resources": object{"clusters": []object{{"name": "own", "connect_timeout": "1s"}}}}
			root := t.TempDir()
			write := func(name string, o object) (path string, data []byte) {
				data, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				path = filepath.Join(root, name)
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				return path, data
			}
			_, data := write("_bootstrap.json", bootstrap)
			known := envoy.Envoy().New("envoy.config.bootstrap.v3.Bootstrap").Interface()
			if err := (protojson.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal(data, known); err != nil {
				t.Fatal(err)
			}
			file, _ := write("l.json", with(object{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener"}, listener))
			c := dir.Check(file, dir.Options{Bootstraps: []proto.Message{known}})
			if refused := strings.Contains(dir.Errors(c.Errors).Error(), "CDS"); refused == tt.accepted {
				t.Errorf("check: %v", c.Errors)
			}
			bootstrap["static_resources"].(object)["listeners"] = []object{listener}
			whole, _ := write("whole.json", bootstrap)
			out, err := exec.CommandContext(t.Context(), envoyPath, "--mode", "validate", "-l", "error", "-c", whole).CombinedOutput()
			if accepted := err == nil; accepted != tt.accepted || !accepted && !strings.Contains(string(out), "cluster 'missing'") {
				t.Errorf("Envoy: %v: %s", err, out)
			}
		})
	}
}
