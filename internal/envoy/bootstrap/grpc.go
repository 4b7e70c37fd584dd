package bootstrap

import (
	"errors"
	"fmt"
	"strings"
)

// GRPC returns gRPC's bootstrap as JSON, for GRPC_XDS_BOOTSTRAP (gRFC A27, with TLS as in A65). Equal
// options give equal bytes.
func GRPC(o Options) ([]byte, error) {
	server, err := o.check()
	switch {
	case err != nil:
		return nil, err
	case o.Delta:
		return nil, errors.New("gRPC clients support only SotW (state of the world), not delta")
	case o.PerType:
		return nil, errors.New("gRPC clients support only the aggregated service (ADS), not one for each type")
	case o.REST:
		return nil, errors.New("gRPC clients do not support REST")
	case o.Admin != "":
		return nil, errors.New("gRPC clients have no admin interface")
	}
	creds := object{{"type", "insecure"}}
	if t := o.TLS; t != nil {
		if server.Network == "unix" {
			return nil, errors.New("TLS: gRPC clients expect a certificate for the host they dial, and a unix socket has none")
		}
		if t.ServerName != "" && !strings.EqualFold(t.ServerName, server.Host) {
			return nil, fmt.Errorf("TLS: gRPC clients expect a certificate for the host they dial, %q, and cannot be told to expect %q", server.Host, t.ServerName)
		}
		creds = object{{"type", "tls"}, {"config", object{
			{"ca_certificate_file", t.CA},
			{"certificate_file", t.Cert},
			{"private_key_file", t.Key},
		}}}
	}
	return encode(object{
		{"xds_servers", list{object{
			{"server_uri", server.String()},
			{"channel_creds", list{creds}},
			{"server_features", list{"xds_v3"}},
		}}},
		// grpc-js rejects a node without a locality.
		{"node", object{{"id", o.Node}, {"cluster", o.Cluster}, {"locality", object{}}}},
		// Required by gRPC servers, which have no default: "if it is not present in the bootstrap then
		// server creation or start will fail" (gRFC A36).
		{"server_listener_resource_name_template", "grpc/server?xds.resource.listening_address=%s"},
	}, "  ")
}
