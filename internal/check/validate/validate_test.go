package validate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
)

var known = New(envoy.Envoy())

func parse(t testing.TB, name protoreflect.FullName, json string) proto.Message {
	t.Helper()
	m := envoy.Envoy().New(name).Interface()
	if err := (protojson.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	cluster    = "envoy.config.cluster.v3.Cluster"
	listener   = "envoy.config.listener.v3.Listener"
	routes     = "envoy.config.route.v3.RouteConfiguration"
	assignment = "envoy.config.endpoint.v3.ClusterLoadAssignment"
	tlsSecret  = "envoy.extensions.transport_sockets.tls.v3.Secret"
	manager    = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	router     = `{"name":"r","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`
)

// Each mistake is reported with its path.
func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name, typ, json string
		want            []string // code, path and message
	}{
		{"nothing", cluster, `{"name":"c","connect_timeout":"1s"}`, nil},
		{"a string", cluster, `{}`, []string{"XDS0301 name: must not be empty"}},
		{"a number", assignment, `{"cluster_name":"e","endpoints":[{"priority":1},{"lb_endpoints":[{},{"endpoint":{"address":{"socket_address":{"address":"1.2.3.4","port_value":70000}}}}]}]}`,
			[]string{"XDS0301 endpoints[1].lb_endpoints[1].endpoint.address.socket_address.port_value: must be at most 65535, not 70000"}},
		{"a wrapped number", cluster, `{"name":"c","lb_subset_config":{},"max_requests_per_connection":0,"circuit_breakers":{"thresholds":[{"retry_budget":{"budget_percent":{"value":101}}}]}}`,
			[]string{"XDS0301 circuit_breakers.thresholds[0].retry_budget.budget_percent.value: must be at least 0 and at most 100, not 101"}},
		{"a duration that is below zero and too short", cluster, `{"name":"c","connect_timeout":"-1s"}`, []string{"XDS0301 connect_timeout: must be more than 0s, not -1s"}},
		{"a duration without a rule", cluster, `{"name":"c","dns_refresh_rate":"1s","cleanup_interval":"2s","upstream_connection_options":{"tcp_keepalive":{}},"health_checks":[{"timeout":"1s","interval":"1s","unhealthy_threshold":1,"healthy_threshold":1,"initial_jitter":"-2s","tcp_health_check":{}}]}`,
			[]string{"XDS0303 health_checks[0].initial_jitter: must not be negative"}},
		{"half a second below zero", cluster, `{"name":"c","cleanup_interval":"1s","health_checks":[{"timeout":"1s","interval":"1s","unhealthy_threshold":1,"healthy_threshold":1,"initial_jitter":"-0.5s","tcp_health_check":{}}]}`,
			[]string{"XDS0303 health_checks[0].initial_jitter: must not be negative"}},
		{"an enum", cluster, `{"name":"c","lb_policy":99}`, []string{"XDS0301 lb_policy: has no value 99"}},
		{"a list", routes, `{"name":"r","virtual_hosts":[{"name":"v"}]}`, []string{"XDS0301 virtual_hosts[0].domains: must have at least 1 item, not 0"}},
		{"a field and a oneof", routes, `{"name":"r","virtual_hosts":[{"name":"v","domains":["*"],"routes":[{},{"match":{},"redirect":{}}]}]}`, []string{
			"XDS0302 virtual_hosts[0].routes[0].match: is required in Route",
			"XDS0302 virtual_hosts[0].routes[0]: one of route, redirect, direct_response, filter_action, non_forwarding_action is required in Route",
			"XDS0302 virtual_hosts[0].routes[1].match: one of prefix, path, safe_regex, connect_matcher, path_separated_prefix, path_match_policy is required in RouteMatch",
		}},
		{"an item, and a header", routes, `{"name":"r","internal_only_headers":["x-a","b\nc"]}`, []string{"XDS0301 internal_only_headers[1]: must not contain NUL or line breaks"}},
		{"inside of an Any", listener, `{"name":"l","address":{"socket_address":{"address":"::1","port_value":1}},"filter_chains":[{"filters":[{"name":"h","typed_config":{"@type":"` + manager + `","rds":{"config_source":{"ads":{}}},"http_filters":[` + router + `]}}]}]}`, []string{
			"XDS0301 filter_chains[0].filters[0].typed_config.stat_prefix: must not be empty",
		}},
		{"inside of a map", cluster, `{"name":"c","typed_extension_protocol_options":{"a.b":{"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"}}}`, []string{
			`XDS0302 typed_extension_protocol_options["a.b"]: one of explicit_http_config, use_downstream_protocol_config, auto_config is required in HttpProtocolOptions`,
		}},
		{"one Any in another", listener, `{"name":"l","address":{"socket_address":{"address":"::1","port_value":1}},"default_filter_chain":{"filters":[{"name":"h","typed_config":{"@type":"` + manager + `","stat_prefix":"s","rds":{"config_source":{"ads":{}}},"http_filters":[{"name":"f","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault","max_active_faults":1,"delay":{"fixed_delay":"0s"}}},` + router + `]}}]}}`, []string{
			"XDS0301 default_filter_chain.filters[0].typed_config.http_filters[0].typed_config.delay.fixed_delay: must be more than 0s, not 0s",
		}},
		{"a listener for gRPC clients", listener, `{"name":"l","api_listener":{"api_listener":{"@type":"` + manager + `","rds":{"config_source":{"ads":{}}}}}}`, nil},
		{"secrets are not quoted", tlsSecret, `{"name":"s","tls_certificate":{"private_key":{"inline_string":""},"password":{"filename":""}}}`, []string{
			"XDS0301 tls_certificate.password.filename: must not be empty",
		}},
		{"an Any of an unknown type, and an undecodable one", cluster, `{"name":"c"}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := lines(known.Validate(parse(t, protoreflect.FullName(tt.typ), tt.json)))
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func lines(all []Violation) (lines []string) {
	for _, v := range all {
		lines = append(lines, fmt.Sprintf("%s %s: %s", v.Code, v.Path, v.Message))
	}
	return lines
}

// An Any that cannot be decoded is skipped: other checks report it.
func TestUnreadableAny(t *testing.T) {
	m := envoy.Envoy().New("google.protobuf.Any")
	for _, url := range []string{"type.googleapis.com/acme.Nothing", "type.googleapis.com/" + cluster} {
		m.Set(m.Descriptor().Fields().ByName("type_url"), protoreflect.ValueOfString(url))
		m.Set(m.Descriptor().Fields().ByName("value"), protoreflect.ValueOfBytes([]byte{0xff}))
		if got := known.Validate(m.Interface()); got != nil {
			t.Errorf("%s: %v", url, got)
		}
	}
}

// Nested Anys are limited, because each Any contains the bytes of all Anys inside it.
func TestNestedAnysAreLimited(t *testing.T) {
	m := parse(t, cluster, `{}`)
	for range 2 * maxAnyDepth {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		a := envoy.Envoy().New("google.protobuf.Any")
		a.Set(a.Descriptor().Fields().ByName("type_url"), protoreflect.ValueOfString("type.googleapis.com/"+string(m.ProtoReflect().Descriptor().FullName())))
		a.Set(a.Descriptor().Fields().ByName("value"), protoreflect.ValueOfBytes(b))
		m = a.Interface()
	}
	if got := known.Validate(m); got != nil {
		t.Errorf("every nested Any was checked: %v", got)
	}
}

// A validator is safe for concurrent use.
func TestConcurrentUse(t *testing.T) {
	v := New(envoy.Envoy())
	m := parse(t, routes, `{"virtual_hosts":[{"name":"","domains":["*"]},{"name":"b","domains":["*"]}]}`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := v.Validate(m); len(got) != 2 {
				t.Errorf("%v", got)
			}
		})
	}
	wg.Wait()
}
