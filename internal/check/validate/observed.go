package validate

import (
	"net"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

// observedRules are rules observed in Envoy that its API does not declare, by message type. A test gives an
// example of each to a real Envoy.
var observedRules = map[protoreflect.FullName]func(*walk, protoreflect.Message){
	"envoy.config.route.v3.RouteConfiguration":       (*walk).domains,
	"envoy.config.cluster.v3.Cluster":                (*walk).cluster,
	"envoy.config.endpoint.v3.ClusterLoadAssignment": (*walk).assignment,
	"envoy.config.listener.v3.Listener":              (*walk).listener,
	"envoy.config.listener.v3.FilterChain":           (*walk).networkFilters,
	"envoy.type.matcher.v3.RegexMatcher":             (*walk).regex,
	"xds.type.matcher.v3.RegexMatcher":               (*walk).regex,

	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": (*walk).httpFilters,
	"envoy.config.cluster.v3.Filter":                                         (*walk).settings,
	"envoy.config.listener.v3.Filter":                                        (*walk).settings,
	"envoy.config.listener.v3.ListenerFilter":                                (*walk).settings,
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter": (*walk).settings,
	"envoy.config.route.v3.WeightedCluster":                                  (*walk).weights,
	"envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext":         (*walk).certificates,
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig":              (*walk).sds,
}

func get(m protoreflect.Message, field protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(field))
}

func has(m protoreflect.Message, field protoreflect.Name) bool {
	return m.Has(m.Descriptor().Fields().ByName(field))
}

// in calls f while the walk's path is that of an item of a list.
func (w *walk) in(m protoreflect.Message, field protoreflect.Name, index int, f func()) {
	w.at = append(w.at, step{field: m.Descriptor().Fields().ByName(field), index: index})
	f()
	w.at = w.at[:len(w.at)-1]
}

// domains reports a domain that a route configuration has twice.
func (w *walk) domains(m protoreflect.Message) {
	first := map[string]string{}
	hosts := get(m, "virtual_hosts").List()
	for i := range hosts.Len() {
		host := hosts.Get(i).Message()
		domains, name := get(host, "domains").List(), get(host, "name").String()
		for k := range domains.Len() {
			domain := strings.ToLower(domains.Get(k).String())
			other, twice := first[domain]
			if !twice {
				first[domain] = name
				continue
			}
			w.in(m, "virtual_hosts", i, func() {
				w.in(host, "domains", k, func() {
					w.report(findings.DuplicateDomain, "", "", "domain %q of virtual host %q is already a domain of virtual host %q", domain, name, other)
				})
			})
		}
	}
}

// Values of Cluster.DiscoveryType.
const (
	static     = 0
	logicalDNS = 2
	eds        = 3
	original   = 4

	provided = 6 // a value of Cluster.LbPolicy
)

func (w *walk) cluster(m protoreflect.Message) {
	if which := m.WhichOneof(m.Descriptor().Oneofs().ByName("cluster_discovery_type")); which != nil && which.Name() != "type" {
		return
	}
	typ := get(m, "type").Enum()
	const remedy = "eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}"
	switch config := get(m, "eds_cluster_config").Message(); {
	case typ == eds && !has(m, "eds_cluster_config"):
		w.report(findings.EDS, "type", remedy, "a cluster of type EDS needs eds_cluster_config")
	case typ == eds && !has(config, "eds_config"):
		w.report(findings.EDS, "eds_cluster_config", remedy, "a cluster of type EDS needs eds_config")
	case typ != eds && has(m, "eds_cluster_config"):
		w.report(findings.EDS, "eds_cluster_config", "type: EDS", "eds_cluster_config is only for clusters of type EDS")
	}
	switch policy := get(m, "lb_policy").Enum(); {
	case has(m, "load_balancing_policy"):
	case typ == original && policy != provided:
		w.report(findings.LoadBalancing, "lb_policy", "lb_policy: CLUSTER_PROVIDED", "a cluster of type ORIGINAL_DST needs lb_policy: CLUSTER_PROVIDED")
	case typ != original && policy == provided:
		w.report(findings.LoadBalancing, "lb_policy", "", "lb_policy: CLUSTER_PROVIDED is only for clusters of type ORIGINAL_DST")
	}
	if typ == logicalDNS {
		w.logicalDNS(m)
	}
	if typ == static {
		w.addresses(get(m, "load_assignment").Message(), "load_assignment")
	}
}

func (w *walk) logicalDNS(m protoreflect.Message) {
	n := 0
	localities := get(get(m, "load_assignment").Message(), "endpoints").List()
	for i := range localities.Len() {
		n += get(localities.Get(i).Message(), "lb_endpoints").List().Len()
	}
	if localities.Len() != 1 || n != 1 {
		w.report(findings.LogicalDNS, "load_assignment", "", "a cluster of type LOGICAL_DNS needs one locality with one endpoint, but has %d with %d", localities.Len(), n)
	}
}

// assignment checks the endpoints of an EDS resource, which need IP addresses. An assignment inside a
// cluster is checked with the cluster.
func (w *walk) assignment(m protoreflect.Message) {
	if len(w.at) == 0 {
		w.addresses(m, "")
	}
}

// addresses reports host names in an assignment where Envoy does not resolve them.
func (w *walk) addresses(m protoreflect.Message, at string) {
	if at != "" {
		at += "."
	}
	localities := get(m, "endpoints").List()
	for i := range localities.Len() {
		endpoints := get(localities.Get(i).Message(), "lb_endpoints").List()
		for k := range endpoints.Len() {
			address := get(get(endpoints.Get(k).Message(), "endpoint").Message(), "address").Message()
			if wrong := malformed(address); wrong != "" {
				path := at + step{m.Descriptor().Fields().ByName("endpoints"), i, protoreflect.MapKey{}}.String() + "." +
					step{localities.Get(i).Message().Descriptor().Fields().ByName("lb_endpoints"), k, protoreflect.MapKey{}}.String() +
					".endpoint.address.socket_address.address"
				w.report(findings.HostName, path, "type: STRICT_DNS resolves host names", "%q is not an IP address", wrong)
			}
		}
	}
}

// malformed returns the host name of a core.v3.Address that needs an IP address; "" if the address is
// valid.
func malformed(address protoreflect.Message) string {
	if !has(address, "socket_address") {
		return ""
	}
	socket := get(address, "socket_address").Message()
	ip := get(socket, "address").String()
	if host, _, zoned := strings.Cut(ip, "%"); zoned {
		ip = host
	}
	if ip == "" || has(socket, "resolver_name") || net.ParseIP(ip) != nil {
		return ""
	}
	return ip
}

func (w *walk) listener(m protoreflect.Message) {
	if has(m, "api_listener") || has(m, "internal_listener") {
		return
	}
	if !has(m, "address") {
		w.report(findings.NoFilterChain, "", "address: {socket_address: {address: 0.0.0.0, port_value: 8080}}", "the listener has no address")
		return
	}
	if wrong := malformed(get(m, "address").Message()); wrong != "" {
		w.report(findings.HostName, "address.socket_address.address", "", "%q is not an IP address", wrong)
	}
	udp := get(get(get(m, "address").Message(), "socket_address").Message(), "protocol").Enum() == 1
	chains := get(m, "filter_chains").List()
	if !udp && chains.Len() == 0 && !has(m, "default_filter_chain") && !has(m, "fcds_config") && !has(m, "filter_chain_matcher") {
		w.report(findings.NoFilterChain, "", "", "the listener has no filter_chains")
	}
	if !has(m, "filter_chain_matcher") {
		w.equalMatches(m, chains)
	}
}

// equalMatches reports filter chains with equal match criteria, which Envoy cannot distinguish.
func (w *walk) equalMatches(m protoreflect.Message, chains protoreflect.List) {
	first := map[string]int{}
	for i := range chains.Len() {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(get(chains.Get(i).Message(), "filter_chain_match").Message().Interface())
		if err != nil {
			continue
		}
		other, twice := first[string(b)]
		if !twice {
			first[string(b)] = i
			continue
		}
		w.in(m, "filter_chains", i, func() {
			w.report(findings.SameMatch, "", "", "this filter chain has the same filter_chain_match as filter_chains[%d]", other)
		})
	}
}

func (w *walk) sds(m protoreflect.Message) {
	if name := get(m, "name").String(); !has(m, "sds_config") && name != "" && !slices.Contains(*w.secrets.Load(), name) {
		w.report(findings.SecretSource, "", "sds_config: {ads: {}, resource_api_version: V3}", "secret %q has no sds_config, so Envoy's bootstrap must have it", name)
	}
}

// settings reports a filter that has only a name, without typed_config.
func (w *walk) settings(m protoreflect.Message) {
	name := get(m, "name").String()
	switch optional := m.Descriptor().Fields().ByName("is_optional"); {
	case has(m, "config_discovery"):
	case optional != nil && m.Get(optional).Bool(): // Envoy ignores the filter
	case !has(m, "typed_config"):
		w.report(findings.NoSettings, "", "", "filter %q has no typed_config", name)
	case get(get(m, "typed_config").Message(), "type_url").String() == "":
		w.report(findings.NoSettings, "typed_config", "", `typed_config of filter %q has no "@type"`, name)
	}
}

func (w *walk) weights(m protoreflect.Message) {
	sum := uint64(0)
	clusters := get(m, "clusters").List()
	for i := range clusters.Len() {
		sum += get(get(clusters.Get(i).Message(), "weight").Message(), "value").Uint()
	}
	if sum == 0 && clusters.Len() > 0 && !has(m, "runtime_key_prefix") {
		w.report(findings.Weights, "clusters", "", "the weights add up to 0")
	}
}

// certificates reports a server without a source for its certificate.
func (w *walk) certificates(m protoreflect.Message) {
	found := false
	get(m, "common_tls_context").Message().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		found = found || strings.Contains(string(f.Name()), "tls_certificate")
		return true
	})
	if !found {
		w.report(findings.NoCert, "common_tls_context", "", "a server needs tls_certificates, or tls_certificate_sds_secret_configs")
	}
}
