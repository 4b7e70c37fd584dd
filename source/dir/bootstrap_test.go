package dir

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
)

// Clusters in a bootstrap are not dangling, and resources that it refers to are not unused.
func TestBootstrapResourcesCount(t *testing.T) {
	const proxy = `{"name":"tcp","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy","stat_prefix":"t","cluster":"%"}}`
	listener := func(filter string) string {
		return `"name":"l","address":{"socket_address":{"address":"127.0.0.1","port_value":1}},"filter_chains":[{"filters":[` + filter + `]}]`
	}
	to := func(cluster string) string { return listener(strings.ReplaceAll(proxy, "%", cluster)) }
	sni := listener(`{"name":"sni","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster"}}`)
	b := newFixture(t, "a.yaml", "{"+clusterURL+", name: own}\n", "l.json", `{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener",`+to("kept")+`}`)
	const unused, missed = `nothing refers to CDS "own"`, `CDS "kept", which no file has`
	for name, tt := range map[string]struct {
		bootstraps []string
		want       []string
	}{
		"none":                                  {nil, []string{unused, missed}},
		"nothing relevant":                      {[]string{`{"node":{"id":"n"}}`}, []string{unused, missed}},
		"a cluster":                             {[]string{`{}`, `{"static_resources":{"clusters":[{"name":"kept"}]}}`}, []string{unused}},
		"a secret is not a cluster":             {[]string{`{"static_resources":{"secrets":[{"name":"kept"}]}}`}, []string{unused, missed}},
		"a listener":                            {[]string{`{"static_resources":{"listeners":[{` + to("own") + `}]}}`}, []string{missed}},
		"a listener with a subscribed resource": {[]string{`{"static_resources":{"listeners":[{` + sni + `}]}}`}, []string{missed}},
		"a runtime, which may be anything":      {[]string{`{"layered_runtime":{"layers":[{"name":"a","static_layer":{"x":1}}]}}`}, []string{unused, missed}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []proto.Message
			for _, json := range tt.bootstraps {
				m := envoyapi.Envoy().New("envoy.config.bootstrap.v3.Bootstrap").Interface()
				if err := (protojson.UnmarshalOptions{Resolver: envoyapi.Envoy()}).Unmarshal([]byte(json), m); err != nil {
					t.Fatal(err)
				}
				all = append(all, m)
			}
			c := Check(b.dir, Options{Bootstraps: all})
			said := Errors(append(c.Errors, c.Warnings...)).Error()
			for _, want := range []string{unused, missed} {
				if is := strings.Contains(said, want); is != slices.Contains(tt.want, want) {
					t.Errorf("%q: %v\n%s", want, is, said)
				}
			}
		})
	}
}
