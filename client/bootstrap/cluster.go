package bootstrap

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/local"
)

// A serverCluster is a static cluster of management servers. Envoy balances load among them. Here
// the first server is preferred, and the other servers are fallbacks (gRFC A71).
type serverCluster struct {
	targets   []string // gRPC targets
	addresses []hostPort
	tls       *tls.Config // nil: plain text
}

// A hostPort is a TCP address, or the path of a unix socket.
type hostPort struct{ host, port, path string }

func (c *serverCluster) credentials(protocol string) credentials.TransportCredentials {
	if c.tls == nil {
		return insecure.NewCredentials()
	}
	creds := credentials.NewTLS(c.config(protocol))
	if c.tls.ServerName == "" {
		return creds
	}
	return fixedName{creds, c.tls.ServerName}
}

// A fixedName verifies the server against the name in "sni", whatever the authority of the calls.
type fixedName struct {
	credentials.TransportCredentials
	name string
}

// ClientHandshake implements [credentials.TransportCredentials].
func (n fixedName) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.TransportCredentials.ClientHandshake(ctx, n.name, conn)
}

// Info implements [credentials.TransportCredentials]. It has no server name, because gRPC would use it
// as the authority.
func (n fixedName) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: n.TransportCredentials.Info().SecurityProtocol}
}

// Clone implements [credentials.TransportCredentials].
func (n fixedName) Clone() credentials.TransportCredentials {
	return fixedName{n.TransportCredentials.Clone(), n.name}
}

func (c *serverCluster) config(protocol string) *tls.Config {
	if c.tls == nil {
		return nil
	}
	config := c.tls.Clone()
	config.NextProtos = []string{protocol}
	return config
}

// urls returns the base URLs for polls.
func (c *serverCluster) urls() []restServer {
	scheme := "http://"
	if c.tls != nil {
		scheme = "https://"
	}
	var all []restServer
	for _, a := range c.addresses {
		if a.path != "" {
			all = append(all, restServer{url: scheme + "localhost", unix: a.path})
			continue
		}
		all = append(all, restServer{url: scheme + net.JoinHostPort(a.host, a.port)})
	}
	return all
}

// cluster reads the static cluster with a name.
func (m *maker) cluster(name, at string) (*serverCluster, error) {
	static, ok := m.clusters[name]
	switch {
	case name == "":
		return nil, m.errorf(at, "is empty")
	case !ok:
		return nil, m.errorf(at, "there is no static cluster %q", name)
	}
	is, err := static.message(m.decoder())
	if err != nil {
		return nil, err
	}
	if t := enum(is, "type"); t == "EDS" || t == "ORIGINAL_DST" {
		return nil, m.errorf(is.field("type"), "%s is not supported: a management server's cluster needs fixed addresses", t)
	}
	c := &serverCluster{}
	if err := m.endpoints(is, c); err != nil {
		return nil, err
	}
	matches := is.Get(is.Descriptor().Fields().ByName("transport_socket_matches")).List()
	if matches.Len() > 0 {
		return nil, m.errorf(is.field("transport_socket_matches"), "is not supported: set transport_socket")
	}
	if socket := sub(is, "transport_socket"); socket.IsValid() {
		c.tls, err = m.socket(located{socket, is.field("transport_socket")}, c.addresses)
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// endpoints reads the addresses. Addresses with the highest priority come first.
func (m *maker) endpoints(is located, c *serverCluster) error {
	assignment := located{sub(is, "load_assignment"), is.field("load_assignment")}
	localities := assignment.Get(assignment.Descriptor().Fields().ByName("endpoints")).List()
	var order []located
	for i := range localities.Len() {
		order = append(order, located{localities.Get(i).Message(), assignment.field("endpoints") + "[" + itoa(i) + "]"})
	}
	priority := func(l located) uint64 { return l.Get(l.Descriptor().Fields().ByName("priority")).Uint() }
	slices.SortStableFunc(order, func(a, b located) int { return int(priority(a)) - int(priority(b)) })
	for _, l := range order {
		endpoints := l.Get(l.Descriptor().Fields().ByName("lb_endpoints")).List()
		for i := range endpoints.Len() {
			e := located{endpoints.Get(i).Message(), l.field("lb_endpoints") + "[" + itoa(i) + "]"}
			a := located{sub(sub(e, "endpoint"), "address"), e.field("endpoint.address")}
			if err := m.address(a, c); err != nil {
				return err
			}
		}
	}
	if len(c.targets) == 0 {
		return m.errorf(assignment.path, "has no endpoint")
	}
	return nil
}

// address adds an envoy.config.core.v3.Address.
func (m *maker) address(a located, c *serverCluster) error {
	switch is := which(a, "address"); is {
	case "socket_address":
		s := located{sub(a, "socket_address"), a.field("socket_address")}
		port := s.Get(s.Descriptor().Fields().ByName("port_value")).Uint()
		host := str(s, "address")
		switch {
		case host == "":
			return m.errorf(s.field("address"), "is empty")
		case port == 0 || port > 65535:
			return m.errorf(s.field("port_value"), "a port from 1 to 65535 is needed")
		case enum(s, "protocol") != "TCP":
			return m.errorf(s.field("protocol"), "must be TCP")
		}
		h := hostPort{host: host, port: strconv.FormatUint(port, 10)}
		scheme := "dns:///"
		if net.ParseIP(host) != nil {
			scheme = "passthrough:///"
		}
		c.addresses, c.targets = append(c.addresses, h), append(c.targets, scheme+net.JoinHostPort(host, h.port))
	case "pipe":
		path := str(sub(a, "pipe"), "path")
		target := "unix:" + path
		if abstract, ok := strings.CutPrefix(path, "@"); ok {
			target = "unix-abstract:" + abstract
		}
		if path == "" {
			return m.errorf(a.field("pipe.path"), "is empty")
		}
		c.addresses, c.targets = append(c.addresses, hostPort{path: path}), append(c.targets, target)
	default:
		return m.errorf(a.path, "a socket_address or a pipe is needed")
	}
	return nil
}

// google reads the target and credentials of a google_grpc service.
func (m *maker) google(g located, r *grpcServer) (err error) {
	for _, name := range []string{"channel_credentials_plugin", "call_credentials_plugin"} {
		if g.Get(g.Descriptor().Fields().ByName(protoName(name))).List().Len() > 0 {
			return m.errorf(g.field(name), "is not supported")
		}
	}
	if str(g, "credentials_factory_name") != "" {
		return m.errorf(g.field("credentials_factory_name"), "is not supported")
	}
	creds := located{sub(g, "channel_credentials"), g.field("channel_credentials")}
	switch which(creds, "credential_specifier") {
	case "":
		r.credentials = insecure.NewCredentials()
	case "local_credentials":
		r.credentials = local.NewCredentials()
	case "ssl_credentials":
		ssl := located{sub(creds, "ssl_credentials"), creds.field("ssl_credentials")}
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if err := m.pair(ssl, "cert_chain", "private_key", config); err != nil {
			return err
		}
		if err := m.roots(ssl, "root_certs", config); err != nil {
			return err
		}
		r.credentials = credentials.NewTLS(config)
	case "google_default":
		made := m.Credentials["google_default"]
		if made == nil {
			return m.errorf(creds.field("google_default"), "%s", unsupported([]string{"google_default"}))
		}
		var more credentialsList
		r.credentials, more, err = made(nil)
		if err != nil {
			return m.errorf(creds.field("google_default"), "%w", err)
		}
		r.perRPC = slices.Concat(r.perRPC, more)
	}
	calls := g.Get(g.Descriptor().Fields().ByName("call_credentials")).List()
	for i := range calls.Len() {
		call := located{calls.Get(i).Message(), fmt.Sprintf("%s[%d]", g.field("call_credentials"), i)}
		is := which(call, "credential_specifier")
		if is != "access_token" {
			return m.errorf(call.path, "%q is not supported: use access_token", is)
		}
		r.perRPC = slices.Concat(r.perRPC, credentialsList{bearer{map[string]string{"authorization": "Bearer " + str(call, "access_token")}, true}})
	}
	return nil
}
