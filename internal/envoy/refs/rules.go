package refs

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// A rule declares that a string field names resources of a type.
type rule struct {
	to *xds.Type

	// from is the field with the ConfigSource or ExtensionConfigSource of the named resource. If that
	// is unset or a file, the field does not refer to a resource of a management server. "" means that
	// the message has no such field.
	from protoreflect.Name
}

var cluster = rule{to: xds.Cluster}

// rules lists every field that names a resource of a type known to xds: a string, a list of strings, or
// a map with names as keys. A test compares it with the descriptors, so a new field of Envoy's API is
// noticed.
//
// Three kinds of names are handled externalTypes: the assignment of an EDS cluster, whose name has a
// default (see assignment); the cluster in the address of a reverse tunnel (see tunnel); and the fields
// in [unnamed].
var rules = map[protoreflect.FullName]rule{
	"envoy.config.core.v3.ApiConfigSource.cluster_names":                                                        cluster,
	"envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name":                                                   cluster,
	"envoy.config.core.v3.HttpUri.cluster":                                                                      cluster,
	"envoy.config.metrics.v3.StatsdSink.tcp_cluster_name":                                                       cluster,
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster":                                             cluster,
	"envoy.config.route.v3.RouteAction.cluster":                                                                 cluster,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.name":                                                  cluster,
	"envoy.config.trace.v3.DatadogConfig.collector_cluster":                                                     cluster,
	"envoy.config.trace.v3.LightstepConfig.collector_cluster":                                                   cluster,
	"envoy.config.trace.v3.ZipkinConfig.collector_cluster":                                                      cluster,
	"envoy.data.dns.v3.DnsTable.DnsEndpoint.cluster_name":                                                       cluster,
	"envoy.data.dns.v3.DnsTable.DnsServiceTarget.cluster_name":                                                  cluster,
	"envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig.cluster":                                 cluster,
	"envoy.extensions.clusters.aggregate.v3.ClusterConfig.clusters":                                             cluster,
	"envoy.extensions.clusters.composite.v3.ClusterConfig.ClusterEntry.name":                                    cluster,
	"envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster.cluster":                            cluster,
	"envoy.extensions.filters.http.cache_v2.v3.CacheV2Config.override_upstream_cluster":                         cluster,
	"envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig.cluster":                                   cluster,
	"envoy.extensions.filters.http.health_check.v3.HealthCheck.cluster_min_healthy_percentages":                 cluster,
	"envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpCluster.cluster":                                  cluster,
	"envoy.extensions.filters.network.client_ssl_auth.v3.ClientSSLAuth.auth_api_cluster":                        cluster,
	"envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction.cluster":                                       cluster,
	"envoy.extensions.filters.network.generic_proxy.action.v3.RouteAction.cluster":                              cluster,
	"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.cluster":                     cluster,
	"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.ReadCommandPolicy.cluster":   cluster,
	"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy.cluster": cluster,
	"envoy.extensions.filters.network.rocketmq_proxy.v3.RouteAction.cluster":                                    cluster,
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight.name":                 cluster,
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.cluster":                                            cluster,
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy.cluster":                  cluster,
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster":                                      cluster,
	"envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight.name":                       cluster,
	"envoy.extensions.filters.udp.udp_proxy.v3.Route.cluster":                                                   cluster,
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.cluster":                                          cluster,
	"envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig.default_cluster":                               cluster,
	"envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction.cluster":                               cluster,
	"envoy.extensions.router.cluster_specifiers.priority_group.v3.ClusterWeight.cluster_name":                   cluster,
	"envoy.extensions.tracers.fluentd.v3.FluentdConfig.cluster":                                                 cluster,

	"envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name": {to: xds.Route, from: "config_source"},
	"envoy.config.route.v3.ScopedRouteConfiguration.route_configuration_name":           {to: xds.Route},

	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig.name":                                         {to: xds.Secret, from: "sds_config"},
	"envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.prefetch_secret_names": {to: xds.Secret, from: "config_source"},

	// "The name of the filter configuration. It also serves as a resource name in ExtensionConfigDS."
	"envoy.config.cluster.v3.Filter.name":                                         {to: xds.ExtensionConfig, from: "config_discovery"},
	"envoy.config.listener.v3.Filter.name":                                        {to: xds.ExtensionConfig, from: "config_discovery"},
	"envoy.config.listener.v3.ListenerFilter.name":                                {to: xds.ExtensionConfig, from: "config_discovery"},
	"envoy.extensions.filters.http.composite.v3.DynamicConfig.name":               {to: xds.ExtensionConfig, from: "config_discovery"},
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter.name": {to: xds.ExtensionConfig, from: "config_discovery"},
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter.name": {to: xds.ExtensionConfig, from: "config_discovery"},
}

// nameField maps each field with a source to the field with the name.
var nameField = map[protoreflect.FullName]protoreflect.FullName{}

func init() {
	for name, r := range rules {
		if r.from != "" {
			nameField[name.Parent().Append(r.from)] = name
		}
	}
}

// sources are fields with a source but without a name. The value is the type whose resources they all
// fetch. It is nil if the source belongs to the enclosing message, or fetches no resources.
var sources = map[protoreflect.FullName]*xds.Type{
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds.scoped_rds_config_source": xds.ScopedRoute,

	"envoy.config.core.v3.ExtensionConfigSource.config_source":    nil,
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig.eds_config": nil,
	"envoy.config.cluster.v3.Cluster.lrs_server":                  nil, // the server for Envoy's load reports
}
