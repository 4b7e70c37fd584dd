package validate

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Each case is a message that Envoy rejects although it follows the API's rules, or a similar one that
// Envoy accepts. Package internal/check/envoybinary tests that an installed Envoy agrees.
func TestObservedRules(t *testing.T) {
	const (
		at       = `"address":{"socket_address":{"address":"127.0.0.1","port_value":1}}`
		echo     = `{"name":"e","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}`
		rbac     = `{"name":"b","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC","stat_prefix":"s"}}`
		cors     = `{"name":"c","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}}`
		disabled = `{"name":"r","disabled":true,"typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`
		unknown  = `{"name":"u","typed_config":{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"c"}}`
		ads      = `{"ads":{}}`
		tls      = `"transport_socket":{"name":"t","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"`
		chain    = "filter_chains[0]."
		config   = chain + "filters[0].typed_config."
	)
	endpoint := func(address string) string {
		return `{"endpoint":{"address":{"socket_address":{"address":"` + address + `","port_value":1}}}}`
	}
	of := func(typ, address string) string {
		return `{"name":"c","type":"` + typ + `","load_assignment":{"cluster_name":"c","endpoints":[{"lb_endpoints":[` + address + `]}]}}`
	}
	hosts := func(list string) string { return `{"name":"r","virtual_hosts":[` + list + `]}` }
	regexp := func(expr string) string {
		return hosts(`{"name":"v","domains":["*"],"routes":[{"match":{"safe_regex":{"regex":"` + expr + `"}},"redirect":{}}]}`)
	}
	weighted := func(clusters string) string {
		return hosts(`{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"weighted_clusters":{` + clusters + `}}}]}`)
	}
	listening := func(fields string) string { return `{"name":"l",` + at + `,` + fields + `}` }
	filters := func(list string) string { return listening(`"filter_chains":[{"filters":[` + list + `]}]`) }
	http := func(list string) string {
		return filters(`{"name":"h","typed_config":{"@type":"` + manager + `","stat_prefix":"s","rds":{"config_source":` + ads + `},"http_filters":[` + list + `]}}`)
	}
	secure := func(context string) string {
		return listening(`"filter_chains":[{"filters":[` + echo + `],` + tls + context + `}}}]`)
	}
	for _, tt := range []struct{ name, typ, json, want string }{
		{"a domain of two virtual hosts", routes, hosts(`{"name":"a","domains":["x","y"]},{"name":"b","domains":["z","Y"]}`), `XDS0401 virtual_hosts[1].domains[1]: domain "y" of virtual host "b" is already a domain of virtual host "a"`},
		{"a domain twice in one", routes, hosts(`{"name":"a","domains":["x","x"]}`), `XDS0401 virtual_hosts[0].domains[1]: domain "x" of virtual host "a" is already a domain of virtual host "a"`},
		{"domains with the same end", routes, hosts(`{"name":"a","domains":["*.x"]},{"name":"b","domains":["x","y.x"]}`), ""},

		{"EDS without its settings", cluster, `{"name":"c","type":"EDS"}`, "XDS0402 type: a cluster of type EDS needs eds_cluster_config"},
		{"EDS without a source", cluster, `{"name":"c","type":"EDS","eds_cluster_config":{}}`, "XDS0402 eds_cluster_config: a cluster of type EDS needs eds_config"},
		{"EDS", cluster, `{"name":"c","type":"EDS","eds_cluster_config":{"eds_config":` + ads + `}}`, ""},
		{"EDS settings of another type", cluster, `{"name":"c","type":"STRICT_DNS","eds_cluster_config":{"eds_config":` + ads + `}}`, "XDS0402 eds_cluster_config: eds_cluster_config is only for clusters of type EDS"},
		{"EDS settings without a type", cluster, `{"name":"c","eds_cluster_config":{"eds_config":` + ads + `}}`, "XDS0402 eds_cluster_config: eds_cluster_config is only for clusters of type EDS"},
		{"a custom type", cluster, `{"name":"c","cluster_type":{"name":"x"},"lb_policy":"CLUSTER_PROVIDED"}`, ""},

		{"ORIGINAL_DST in turn", cluster, `{"name":"c","type":"ORIGINAL_DST"}`, "XDS0411 lb_policy: a cluster of type ORIGINAL_DST needs lb_policy: CLUSTER_PROVIDED"},
		{"ORIGINAL_DST with a policy", cluster, `{"name":"c","type":"ORIGINAL_DST","load_balancing_policy":{"policies":[{"typed_extension_config":{"name":"p","typed_config":{"@type":"type.googleapis.com/envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided"}}}]}}`, ""},
		{"CLUSTER_PROVIDED", cluster, `{"name":"c","lb_policy":"CLUSTER_PROVIDED"}`, "XDS0411 lb_policy: lb_policy: CLUSTER_PROVIDED is only for clusters of type ORIGINAL_DST"},

		{"LOGICAL_DNS with one", cluster, of("LOGICAL_DNS", endpoint("a.example")), ""},
		{"LOGICAL_DNS with two", cluster, of("LOGICAL_DNS", endpoint("a.example")+","+endpoint("b.example")), "XDS0408 load_assignment: a cluster of type LOGICAL_DNS needs one locality with one endpoint, but has 1 with 2"},
		{"LOGICAL_DNS with two localities", cluster, `{"name":"c","type":"LOGICAL_DNS","load_assignment":{"cluster_name":"c","endpoints":[{"lb_endpoints":[` + endpoint("a") + `]},{"lb_endpoints":[` + endpoint("b") + `]}]}}`,
			"XDS0408 load_assignment: a cluster of type LOGICAL_DNS needs one locality with one endpoint, but has 2 with 2"},

		{"a host in a static cluster", cluster, of("STATIC", endpoint("::1")+","+endpoint("a.example")), `XDS0407 load_assignment.endpoints[0].lb_endpoints[1].endpoint.address.socket_address.address: "a.example" is not an IP address`},
		{"a host name that is resolved", cluster, of("STRICT_DNS", endpoint("a.example")), ""},
		{"a host in an assignment", assignment, `{"cluster_name":"e","endpoints":[{},{"lb_endpoints":[` + endpoint("a.example") + `]}]}`, `XDS0407 endpoints[1].lb_endpoints[0].endpoint.address.socket_address.address: "a.example" is not an IP address`},
		{"an address with a zone", assignment, `{"cluster_name":"e","endpoints":[{"lb_endpoints":[` + endpoint("fe80::1%eth0") + `]}]}`, ""},
		{"a host name with a resolver", assignment, `{"cluster_name":"e","endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"a","port_value":1,"resolver_name":"x"}}}}]}]}`, ""},

		{"a listener without an address", listener, `{"name":"l","filter_chains":[{}]}`, "XDS0406 : the listener has no address"},
		{"a listener at a host name", listener, `{"name":"l","address":{"socket_address":{"address":"a.example","port_value":1}},"filter_chains":[{}]}`, `XDS0407 address.socket_address.address: "a.example" is not an IP address`},
		{"an internal listener", listener, `{"name":"l","internal_listener":{}}`, ""},
		{"no chains", listener, `{"name":"l",` + at + `}`, "XDS0406 : the listener has no filter_chains"},
		{"UDP without chains", listener, `{"name":"l","address":{"socket_address":{"protocol":"UDP","address":"127.0.0.1","port_value":1}}}`, ""},
		{"a default chain", listener, listening(`"default_filter_chain":{}`), ""},
		{"two chains without a match", listener, listening(`"filter_chains":[{"filters":[` + echo + `]},{}]`), "XDS0409 filter_chains[1]: this filter chain has the same filter_chain_match as filter_chains[0]"},
		{"two chains with a matcher", listener, listening(`"filter_chains":[{"name":"a"},{"name":"b"}],"filter_chain_matcher":{"on_no_match":{"action":{"name":"a","typed_config":{"@type":"type.googleapis.com/google.protobuf.StringValue","value":"a"}}}}`), ""},

		{"an unclosed group", routes, regexp("a(hunter2"), "XDS0404 virtual_hosts[0].routes[0].match.safe_regex.regex: RE2 does not accept this regular expression: missing closing )"},
		{"\\C, which Go does not support", routes, regexp(`\\C+`), ""},
		{"a backslash before a C", routes, regexp(`(\\\\C`), "XDS0404 virtual_hosts[0].routes[0].match.safe_regex.regex: RE2 does not accept this regular expression: missing closing )"},

		{"a Unicode class with a long name", routes, regexp(`\\p{Letter}+`), "XDS0404 virtual_hosts[0].routes[0].match.safe_regex.regex: RE2 does not accept this regular expression: it has no such Unicode class"},
		{"a Unicode class of Go", routes, regexp(`\\P{^LC}`), "XDS0404 virtual_hosts[0].routes[0].match.safe_regex.regex: RE2 does not accept this regular expression: it has no such Unicode class"},
		{"Unicode classes of RE2", routes, regexp(`\\p{Lu}\\p{Greek}\\p{^Any}\\\\p{Letter}`), ""},
		{"a character beyond Latin-1", routes, regexp(`\\x{100}`), "XDS0404 virtual_hosts[0].routes[0].match.safe_regex.regex: Envoy does not accept this regular expression: it reads bytes, and \\x{...} is above FF"},
		{"a character of Latin-1", routes, regexp(`\\x{0ff}\\x41`), ""},
		{"weights of zero", routes, weighted(`"clusters":[{"name":"a"},{"name":"b","weight":0}]`), "XDS0414 virtual_hosts[0].routes[0].route.weighted_clusters.clusters: the weights add up to 0"},
		{"weights of the runtime", routes, weighted(`"runtime_key_prefix":"w","clusters":[{"name":"a"}]`), ""},
		{"a weight", routes, weighted(`"clusters":[{"name":"a"},{"name":"b","weight":1}]`), ""},

		{"a terminal filter at the end", listener, filters(rbac + "," + echo), ""},
		{"a chain without a terminal filter", listener, filters(echo + "," + rbac), `XDS0405 ` + chain + `filters[0]: filter "e" is a terminal filter, but is not the last of its chain`},
		{"two terminal filters", listener, filters(echo + "," + echo + "," + echo), `XDS0405 ` + chain + `filters[0]: filter "e" is a terminal filter, but is not the last of its chain`},
		{"no terminal filter", listener, filters(rbac), `XDS0405 ` + chain + `filters[0]: filter "b" is the last of its chain, but is not a terminal filter`},
		{"an unknown filter at the end", listener, filters(unknown), ""},
		{"no router", listener, http(cors), `XDS0405 ` + config + `http_filters[0]: filter "c" is the last of its chain, but is not a terminal filter`},
		{"a disabled router", listener, http(disabled), `XDS0405 ` + config + `http_filters[0]: filter "r" is the terminal filter of its chain, but is disabled`},
		{"a router first", listener, http(router + "," + cors), `XDS0405 ` + config + `http_filters[0]: filter "r" is a terminal filter, but is not the last of its chain`},
		{"no settings", listener, filters(`{"name":"n"}`), `XDS0412 ` + chain + `filters[0]: filter "n" has no typed_config`},
		{"no settings of an HTTP filter", listener, http(`{"name":"n"},` + router), `XDS0412 ` + config + `http_filters[0]: filter "n" has no typed_config`},
		{"settings without a type", listener, filters(`{"name":"n","typed_config":{}}`), `XDS0412 ` + chain + `filters[0].typed_config: typed_config of filter "n" has no "@type"`},
		{"settings of an HTTP filter without a type", listener, http(`{"name":"n","typed_config":{}},` + router), `XDS0412 ` + config + `http_filters[0].typed_config: typed_config of filter "n" has no "@type"`},
		{"no settings of an optional filter", listener, http(`{"name":"n","is_optional":true},` + router), ""},
		{"settings without a type of an optional filter", listener, http(`{"name":"n","is_optional":true,"typed_config":{}},` + router), ""},
		{"no settings of a listener filter", listener, listening(`"listener_filters":[{"name":"n"}],"default_filter_chain":{}`), `XDS0412 listener_filters[0]: filter "n" has no typed_config`},
		{"settings of a listener filter without a type", listener, listening(`"listener_filters":[{"name":"n","typed_config":{}}],"default_filter_chain":{}`), `XDS0412 listener_filters[0].typed_config: typed_config of filter "n" has no "@type"`},
		{"discovered settings of a listener filter", listener, listening(`"listener_filters":[{"name":"n","config_discovery":{"config_source":` + ads + `,"type_urls":["a/b"]}}],"default_filter_chain":{}`), ""},
		{"no settings of a cluster filter", cluster, `{"name":"c","filters":[{"name":"n"}]}`, `XDS0412 filters[0]: filter "n" has no typed_config`},
		{"discovered settings of a cluster filter", cluster, `{"name":"c","filters":[{"name":"n","config_discovery":{"config_source":` + ads + `,"type_urls":["a/b"]}}]}`, ""},
		{"discovered settings", listener, filters(`{"name":"n","config_discovery":{"config_source":` + ads + `,"type_urls":["a/b"]}}`), ""},

		{"a server without a certificate", listener, secure(`,"common_tls_context":{"validation_context":{"trusted_ca":{"filename":"/ca"}}}`), "XDS0413 " + chain + "transport_socket.typed_config.common_tls_context: a server needs tls_certificates, or tls_certificate_sds_secret_configs"},
		{"a certificate", listener, secure(`,"common_tls_context":{"tls_certificates":[{"certificate_chain":{"filename":"/c"}}]}`), ""},
		{"a certificate from ADS", listener, secure(`,"common_tls_context":{"tls_certificate_sds_secret_configs":[{"name":"s","sds_config":` + ads + `}]}`), ""},
		{"a certificate without a source", listener, secure(`,"common_tls_context":{"tls_certificate_sds_secret_configs":[{"name":"s"}]}`), `XDS0410 ` + chain + `transport_socket.typed_config.common_tls_context.tls_certificate_sds_secret_configs[0]: secret "s" has no sds_config, so Envoy's bootstrap must have it`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := lines(known.Validate(parse(t, protoreflect.FullName(tt.typ), tt.json)))
			slices.Sort(got)
			if strings.Join(got, "\n") != tt.want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), tt.want)
			}
		})
	}
}
