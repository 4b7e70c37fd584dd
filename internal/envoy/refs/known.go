package refs

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// Facts about messages, beyond the fields that name a resource. A missing reference causes an outage,
// because a cluster would be removed while a route uses it. So the lists below contain only messages
// that were reviewed and found harmless. Any other message may refer to any resource ([xds.Wildcard]),
// for example a new extension of Envoy until it is reviewed.

// reviewed are the packages whose messages name clusters only in fields with a rule. They do not name
// clusters in a script, a plug-in or a file. They also set no fixed header, metadata or filter state
// from which another filter takes a cluster name. The names omit the prefix "envoy." and the suffix
// ".v3".
//
// Some packages are missing although they look harmless: packages that set headers and metadata
// (header_mutation, set_metadata, set_filter_state, custom_response, *_to_metadata), packages that read
// their own files (dns_filter), and sni_cluster, whose cluster name comes with the connection.
var reviewed = packages(`
config accesslog cluster common.key_value common.matcher common.mutation_rules core endpoint grpc_credential listener
	ratelimit rbac route trace
type . http matcher metadata tracing
service runtime

extensions access_loggers.file access_loggers.filters.cel access_loggers.filters.process_ratelimit
	access_loggers.fluentd access_loggers.grpc access_loggers.open_telemetry access_loggers.stats access_loggers.stream
extensions clusters.aggregate clusters.composite clusters.dns clusters.dynamic_forward_proxy clusters.mcp_multicluster
	clusters.original_dst clusters.redis
extensions common.async_files common.dynamic_forward_proxy common.matching common.ratelimit
extensions compression.brotli.compressor compression.brotli.decompressor compression.gzip.compressor
	compression.gzip.decompressor compression.zstd.compressor compression.zstd.decompressor
extensions early_data filters.common.fault

extensions filters.http.adaptive_concurrency filters.http.admission_control filters.http.alternate_protocols_cache
	filters.http.bandwidth_limit filters.http.basic_auth filters.http.buffer filters.http.cache filters.http.cache_v2
	filters.http.cdn_loop filters.http.composite filters.http.compressor filters.http.connect_grpc_bridge
	filters.http.cors filters.http.credential_injector filters.http.csrf filters.http.decompressor
	filters.http.dynamic_forward_proxy filters.http.ext_authz filters.http.ext_proc filters.http.fault
	filters.http.filter_chain filters.http.gcp_authn filters.http.grpc_http1_bridge
	filters.http.grpc_http1_reverse_bridge filters.http.grpc_json_transcoder filters.http.grpc_stats
	filters.http.grpc_web filters.http.gzip filters.http.health_check filters.http.jwt_authn filters.http.kill_request
	filters.http.mcp_router filters.http.oauth2 filters.http.on_demand filters.http.original_src filters.http.ratelimit
	filters.http.rbac filters.http.router filters.http.stateful_session filters.http.upstream_codec

extensions filters.listener.http_inspector filters.listener.local_ratelimit filters.listener.original_dst
	filters.listener.original_src filters.listener.proxy_protocol filters.listener.tls_inspector

extensions filters.network.connection_limit filters.network.direct_response filters.network.dubbo_proxy
	filters.network.dubbo_proxy.router filters.network.echo filters.network.ext_authz filters.network.generic_proxy
	filters.network.generic_proxy.action filters.network.generic_proxy.codecs.dubbo
	filters.network.generic_proxy.codecs.http1 filters.network.generic_proxy.matcher
	filters.network.generic_proxy.router filters.network.http_connection_manager filters.network.local_ratelimit
	filters.network.mongo_proxy filters.network.ratelimit filters.network.rbac filters.network.redis_proxy
	filters.network.sni_dynamic_forward_proxy filters.network.tcp_bandwidth_limit filters.network.tcp_proxy
	filters.network.thrift_proxy filters.network.thrift_proxy.filters.ratelimit filters.network.thrift_proxy.router
	filters.network.zookeeper_proxy

extensions filters.udp.udp_proxy filters.udp.udp_proxy.session.dynamic_forward_proxy
	filters.udp.udp_proxy.session.http_capsule

extensions formatter.cel formatter.generic_secret formatter.metadata formatter.req_without_query
extensions grpc_service.call_credentials.access_token grpc_service.call_credentials.file_based_metadata
	grpc_service.call_credentials.google_compute_engine grpc_service.call_credentials.google_iam
	grpc_service.call_credentials.google_refresh_token grpc_service.call_credentials.service_account_jwt_access
	grpc_service.call_credentials.sts_service grpc_service.channel_credentials.google_default
	grpc_service.channel_credentials.insecure grpc_service.channel_credentials.local
	grpc_service.channel_credentials.tls grpc_service.channel_credentials.xds
extensions health_check.event_sinks.file health_checkers.redis health_checkers.thrift
extensions http.cache.file_system_http_cache http.cache.simple_http_cache http.cache_v2.file_system_http_cache
	http.cache_v2.simple_http_cache http.header_formatters.preserve_case http.header_validators.envoy_default
	http.injected_credentials.generic http.injected_credentials.oauth2 http.original_ip_detection.custom_header
	http.original_ip_detection.xff http.stateful_session.cookie http.stateful_session.envelope
	http.stateful_session.header
extensions internal_redirect.allow_listed_routes internal_redirect.previous_routes internal_redirect.safe_cross_scheme
extensions key_value.file_based
extensions load_balancing_policies.client_side_weighted_round_robin load_balancing_policies.cluster_provided
	load_balancing_policies.common load_balancing_policies.least_request load_balancing_policies.maglev
	load_balancing_policies.override_host load_balancing_policies.pick_first load_balancing_policies.random
	load_balancing_policies.ring_hash load_balancing_policies.round_robin load_balancing_policies.subset
	load_balancing_policies.wrr_locality
extensions matching.common_inputs.environment_variable matching.common_inputs.network matching.common_inputs.ssl
	matching.common_inputs.transport_socket matching.input_matchers.consistent_hashing matching.input_matchers.ip
	matching.input_matchers.metadata matching.input_matchers.runtime_fraction
extensions network.dns_resolver.apple network.dns_resolver.cares network.dns_resolver.getaddrinfo
	network.dns_resolver.hickory
extensions outlier_detection_monitors.common outlier_detection_monitors.consecutive_errors
extensions path.match.uri_template path.rewrite.uri_template
extensions quic.connection_debug_visitor quic.connection_id_generator quic.connection_id_generator.quic_lb
	quic.crypto_stream quic.proof_source quic.server_preferred_address
extensions rate_limit_descriptors.expr rate_limit_descriptors.jwt_claim
extensions rbac.audit_loggers.stream rbac.matchers.upstream_ip_port rbac.principals.mtls_authenticated
extensions regex_engines request_id.uuid
extensions retry.host.omit_canary_hosts retry.host.omit_host_metadata retry.host.previous_hosts
	retry.priority.previous_priorities
extensions router.cluster_specifiers.matcher
extensions tracers.fluentd tracers.opentelemetry.resource_detectors tracers.opentelemetry.samplers
extensions transport_sockets.alts transport_sockets.http_11_proxy transport_sockets.internal_upstream
	transport_sockets.proxy_protocol transport_sockets.quic transport_sockets.raw_buffer transport_sockets.s2a
	transport_sockets.starttls transport_sockets.tap transport_sockets.tcp_stats transport_sockets.tls
	transport_sockets.tls.cert_mappers.filter_state_override transport_sockets.tls.cert_mappers.sni
	transport_sockets.tls.cert_mappers.static_name transport_sockets.tls.cert_selectors.on_demand_secret
extensions udp_packet_writer upstreams.http upstreams.http.generic upstreams.http.http upstreams.http.tcp
	upstreams.http.udp upstreams.tcp upstreams.tcp.generic
`)

// packages parses a list. Each line begins with the first part of its names; an indented line continues
// the previous one.
func packages(list string) map[protoreflect.FullName]bool {
	all := map[protoreflect.FullName]bool{
		"xds.core.v3": true, "xds.type.matcher.v3": true, "xds.type.v3": true, // except TypedStruct, see packed
		"envoy.config.cluster.redis": true,
	}
	first := ""
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) > 0 && line[0] != '\t' {
			first, words = words[0], words[1:]
		}
		for _, w := range words {
			name := strings.ReplaceAll("envoy."+first+"."+w+".v3", "...", ".")
			all[protoreflect.FullName(name)] = true
		}
	}
	return all
}

// readable reports whether descriptors reveal all references in the messages of a package. This holds
// for v3, whose ConfigSources are known. Messages of v2 have other ConfigSources.
func readable(pkg protoreflect.FullName) bool {
	return pkg == "envoy.config.cluster.redis" || pkg.Name() == "v3" && (strings.HasPrefix(string(pkg), "envoy.") || strings.HasPrefix(string(pkg), "xds."))
}

// unnamed are the fields that refer to resources of a type without naming them.
var unnamed = map[protoreflect.FullName]*xds.Type{
	// The name comes with the request or the connection.
	"envoy.config.route.v3.RouteAction.cluster_header":                                               xds.Cluster,
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster_header":                           xds.Cluster,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.cluster_header":                             xds.Cluster,
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster_header":                    xds.Cluster,
	"envoy.extensions.filters.http.on_demand.v3.OnDemandCds.source":                                  xds.Cluster,
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.OnDemand.odcds_config":                   xds.Cluster,
	"envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.config_source": xds.Secret,

	// The name of a plug-in. With VHDS, the plug-in is in another resource than the virtual host.
	"envoy.config.route.v3.RouteAction.cluster_specifier_plugin": xds.Cluster,

	// A collection: its name, or the common prefix of its names, is not a resource name.
	"envoy.config.route.v3.Vhds.config_source":                                                       xds.VirtualHost,
	"envoy.config.endpoint.v3.LedsClusterLocalityConfig.leds_config":                                 xds.LbEndpoint,
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds.scoped_rds_config_source": xds.ScopedRoute,
}

// externalTypes lists the types that a resource from a file or another server may refer to, by the field
// with its ConfigSource. Resources of other fields may refer to anything.
var externalTypes = map[protoreflect.FullName][]*xds.Type{
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig.eds_config":                                    {xds.LbEndpoint},
	"envoy.config.cluster.v3.Cluster.lrs_server":                                                     nil, // no resources
	"envoy.config.endpoint.v3.LedsClusterLocalityConfig.leds_config":                                 nil,
	"envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket.config_source":  nil, // a number of tokens
	"envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.config_source": nil,
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig.sds_config":                           nil,
}

// foreignSources are the fields that fetch resources of types unknown to xds. Their removal is never delayed,
// but they may refer to anything.
var foreignSources = map[protoreflect.FullName]bool{
	"envoy.config.listener.v3.Listener.FcdsConfig.config_source":                    true, // filter chains
	"envoy.extensions.clusters.aggregate.v3.AggregateClusterResource.config_source": true, // lists of clusters
	"envoy.extensions.filters.network.dubbo_proxy.v3.Drds.config_source":            true,
	"envoy.extensions.filters.network.generic_proxy.v3.GenericRds.config_source":    true,
	"envoy.extensions.filters.network.thrift_proxy.v3.Trds.config_source":           true,
}

// plainData are the fields with a Struct, a Value or Metadata that contain no resource names. In other
// fields, a filter may read a cluster name from such data: Lua reads the metadata of routes.
var plainData = setOf(
	// Compared with the metadata of endpoints.
	"envoy.config.cluster.v3.Cluster.LbSubsetConfig.default_subset",
	"envoy.config.cluster.v3.Cluster.TransportSocketMatch.match",
	"envoy.config.core.v3.HealthCheck.transport_socket_match_criteria",
	"envoy.config.route.v3.RouteAction.metadata_match",
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.metadata_match",
	"envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction.metadata_match",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight.metadata_match",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.metadata_match",
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.metadata_match",
	"envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight.metadata_match",
	"envoy.extensions.load_balancing_policies.common.v3.OrcaOobReportingConfig.transport_socket_match_criteria",
	"envoy.extensions.load_balancing_policies.subset.v3.Subset.default_subset",
	// Metadata of an object that is already selected.
	"envoy.config.cluster.v3.Cluster.metadata",
	"envoy.config.endpoint.v3.LbEndpoint.metadata",
	"envoy.config.endpoint.v3.LocalityLbEndpoints.metadata",
	// The format of log lines and responses.
	"envoy.config.core.v3.SubstitutionFormatString.json_format",
	"envoy.config.trace.v3.XRayConfig.SegmentFields.aws",
	"envoy.extensions.access_loggers.file.v3.FileAccessLog.json_format",
	"envoy.extensions.access_loggers.file.v3.FileAccessLog.typed_json_format",
	"envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig.record",
	// Flags and numbers.
	"envoy.service.runtime.v3.Runtime.layer",
)

func setOf(names ...protoreflect.FullName) map[protoreflect.FullName]bool {
	all := make(map[protoreflect.FullName]bool, len(names))
	for _, n := range names {
		all[n] = true
	}
	return all
}
