package bootstrap

import (
	"errors"
	"fmt"

	"github.com/chancery-xds/chancery/internal/listen"
)

// xds is the name of the server's cluster.
const xds = "xds"

// Envoy returns Envoy's bootstrap (envoy.config.bootstrap.v3.Bootstrap) as JSON. Envoy then gets
// listeners and clusters from the server, and all resources that they refer to. Equal options give
// equal bytes.
func Envoy(o Options) ([]byte, error) {
	server, err := o.check()
	if err != nil {
		return nil, err
	}
	if o.REST && o.Delta {
		return nil, errors.New("REST has no delta (incremental) xDS")
	}
	cluster, err := o.cluster(server)
	if err != nil {
		return nil, err
	}
	return o.envoy(
		field{"static_resources", object{{"clusters", list{cluster}}}},
		field{"dynamic_resources", o.dynamic()},
	)
}

// EnvoyFiles returns a bootstrap like [Envoy], with listeners and clusters from files. The parameters
// are the paths of two DiscoveryResponses, and of the directory in which a rename makes Envoy read them
// again. Only the node and the admin interface of the options are used.
func EnvoyFiles(o Options, listeners, clusters, watched string) ([]byte, error) {
	if err := o.checkNode(); err != nil {
		return nil, err
	}
	source := func(path string) object {
		return object{
			{"resource_api_version", "V3"},
			{"path_config_source", object{{"path", path}, {"watched_directory", object{{"path", watched}}}}},
		}
	}
	return o.envoy(field{"dynamic_resources", object{{"cds_config", source(clusters)}, {"lds_config", source(listeners)}}})
}

// envoy returns a bootstrap with the given fields for the sources of resources.
func (o Options) envoy(resources ...field) ([]byte, error) {
	if o.Cluster == "" {
		o.Cluster = DefaultCluster
	}
	if o.Admin == "" {
		o.Admin = DefaultAdmin
	}
	admin, err := listen.Parse(o.Admin)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	if admin.Network == "tcp" && admin.IP() == nil {
		return nil, fmt.Errorf("--admin: %s: Envoy listens on IP addresses, such as 127.0.0.1", admin)
	}
	b := object{{"node", object{{"id", o.Node}, {"cluster", o.Cluster}}}}
	b = append(b, resources...)
	if o.RE2ProgramSize > 0 {
		// A default Envoy has only the admin layer.
		b = append(b, field{"layered_runtime", object{{"layers", list{
			object{{"name", "limits"}, {"static_layer", object{{"re2.max_program_size.error_level", o.RE2ProgramSize}}}},
			object{{"name", "admin"}, {"admin_layer", object{}}},
		}}}})
	}
	return encode(append(b, field{"admin", object{{"address", address(admin)}}}), "  ")
}

// dynamic returns the dynamic_resources.
func (o Options) dynamic() object {
	api := "GRPC"
	if o.Delta {
		api = "DELTA_GRPC"
	}
	stream := object{
		{"api_type", api},
		{"transport_api_version", "V3"},
		{"grpc_services", list{object{{"envoy_grpc", object{{"cluster_name", xds}}}}}},
		// "Only the first request on a stream is guaranteed to carry the node
		// identifier."
		{"set_node_on_first_message_only", true},
	}
	if o.REST {
		stream = object{
			{"api_type", "REST"},
			{"transport_api_version", "V3"},
			{"cluster_names", list{xds}},
			// The server holds a poll until there is news, for 30 s at most.
			{"refresh_delay", "1s"},
			{"request_timeout", "31s"},
		}
	}
	source := object{{"resource_api_version", "V3"}, {"ads", object{}}}
	if o.PerType || o.REST {
		source[1] = field{"api_config_source", stream}
		return object{{"cds_config", source}, {"lds_config", source}}
	}
	return object{{"ads_config", stream}, {"cds_config", source}, {"lds_config", source}}
}

// cluster returns the server's cluster.
func (o Options) cluster(server listen.Address) (object, error) {
	tls, err := o.envoyTLS(server)
	if err != nil {
		return nil, err
	}
	c := object{{"name", xds}, {"type", "STATIC"}}
	if server.Network == "tcp" && server.IP() == nil {
		// With the default, localhost is ::1, where a server that listens on
		// 127.0.0.1 is not.
		c = object{{"name", xds}, {"type", "STRICT_DNS"}, {"dns_lookup_family", "V4_PREFERRED"}}
	}
	c = append(c,
		field{"connect_timeout", "5s"},
		field{"load_assignment", object{
			{"cluster_name", xds},
			{"endpoints", list{object{{"lb_endpoints", list{object{{"endpoint", object{{"address", address(server)}}}}}}}}},
		}},
	)
	if !o.REST { // a held poll uses a plain connection, which costs the server less than a stream
		c = append(c, field{"typed_extension_protocol_options", object{{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions", object{
			{"@type", "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"},
			{"explicit_http_config", object{{"http2_protocol_options", object{
				// Detect a server that disappeared without closing the connection.
				{"connection_keepalive", object{{"interval", "30s"}, {"timeout", "5s"}}},
			}}}},
		}}}})
	}
	if server.Network == "tcp" {
		c = append(c, field{"upstream_connection_options", object{
			{"tcp_keepalive", object{{"keepalive_probes", 3}, {"keepalive_time", 30}, {"keepalive_interval", 5}}},
		}})
	}
	return append(c, field{"transport_socket", tls}), nil
}

// envoyTLS returns the transport socket of the cluster; nil for plain text.
func (o Options) envoyTLS(server listen.Address) (any, error) {
	t := o.TLS
	if t == nil {
		return nil, nil
	}
	if t.CA == "" {
		return nil, errors.New("TLS: the CA of the server's certificate is missing (--tls-ca): without one Envoy trusts any server")
	}
	name := t.ServerName
	if name == "" {
		name = server.Host
	}
	if name == "" {
		return nil, errors.New("TLS: a unix socket needs the name in the server's certificate (--tls-server-name)")
	}
	sni, kind := name, "DNS"
	if (listen.Address{Host: name}).IP() != nil {
		sni, kind = "", "IP_ADDRESS" // SNI does not allow addresses
	}
	protocol := "h2" // gRPC servers require it
	if o.REST {
		protocol = "http/1.1"
	}
	common := object{{"alpn_protocols", list{protocol}}}
	if t.Cert != "" {
		common = append(common, field{"tls_certificates", list{object{
			{"certificate_chain", object{{"filename", t.Cert}}},
			{"private_key", object{{"filename", t.Key}}},
		}}})
	}
	common = append(common, field{"validation_context", object{
		{"trusted_ca", object{{"filename", t.CA}}},
		{"match_typed_subject_alt_names", list{object{{"san_type", kind}, {"matcher", object{{"exact", name}}}}}},
	}})
	return object{
		{"name", "envoy.transport_sockets.tls"},
		{"typed_config", object{
			{"@type", "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"},
			{"sni", sni},
			{"common_tls_context", common},
		}},
	}, nil
}

// address returns an envoy.config.core.v3.Address.
func address(a listen.Address) object {
	if a.Network == "unix" {
		return object{{"pipe", object{{"path", a.Path}}}}
	}
	return object{{"socket_address", object{{"address", a.Host}, {"port_value", a.Port}}}}
}
