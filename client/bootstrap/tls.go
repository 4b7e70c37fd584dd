package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/envoy"
)

const upstreamTLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"

func protoName(s string) protoreflect.Name { return protoreflect.Name(s) }

// socket reads a transport_socket: TLS, or plain text.
func (m *maker) socket(s message, addresses []hostPort) (*tls.Config, error) {
	packed := sub(s, "typed_config")
	at := s.field("typed_config")
	name := str(packed, "type_url")
	switch name = name[strings.LastIndexByte(name, '/')+1:]; name {
	case "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer":
		return nil, nil
	case upstreamTLS:
	default:
		return nil, m.errorf(at, "%q is not supported: an %s is", name, upstreamTLS)
	}
	t := message{envoy.Envoy().New(upstreamTLS), at}
	value := packed.Get(packed.Descriptor().Fields().ByName("value")).Bytes()
	if err := (proto.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal(value, t.Interface()); err != nil {
		return nil, m.errorf(at, "%w", err)
	}
	return m.upstream(t, addresses)
}

// upstream reads an UpstreamTlsContext.
func (m *maker) upstream(t message, addresses []hostPort) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: str(t, "sni")}
	common := message{sub(t, "common_tls_context"), t.field("common_tls_context")}
	for f := range set(common) {
		switch f {
		case "tls_certificates", "validation_context", "alpn_protocols":
		case "tls_params", "key_log": // how, not whom
		default:
			return nil, m.errorf(common.field(string(f)), "is not supported: name files, or write PEM, in tls_certificates and validation_context")
		}
	}
	certs := common.Get(common.Descriptor().Fields().ByName("tls_certificates")).List()
	for i := range certs.Len() {
		c := message{certs.Get(i).Message(), common.field("tls_certificates") + "[" + itoa(i) + "]"}
		if err := m.pair(c, "certificate_chain", "private_key", config); err != nil {
			return nil, err
		}
	}
	validation := message{sub(common, "validation_context"), common.field("validation_context")}
	if !validation.IsValid() {
		return nil, m.errorf(validation.at, "is missing: without one any server would be trusted")
	}
	return config, m.validation(validation, addresses, config)
}

// validation reads whom the client trusts. A field that would make it stricter and is not known
// is an error.
func (m *maker) validation(v message, addresses []hostPort, config *tls.Config) error {
	for f := range set(v) {
		switch f {
		case "trusted_ca", "system_root_certs", "match_typed_subject_alt_names":
		case "watched_directory", "max_verify_depth": // files are read once, as Envoy does without one
		default:
			return m.errorf(v.field(string(f)), "is not supported")
		}
	}
	if err := m.roots(v, "trusted_ca", config); err != nil {
		return err
	}
	if config.RootCAs == nil && !sub(v, "system_root_certs").IsValid() {
		return m.errorf(v.at, "trusted_ca and system_root_certs are missing: without one any server would be trusted")
	}
	all := v.Get(v.Descriptor().Fields().ByName("match_typed_subject_alt_names")).List()
	if all.Len() == 0 {
		// Envoy takes any name of a certificate then. It is the host's that must be there.
		if config.ServerName == "" && len(addresses) > 0 && addresses[0].path != "" {
			return m.errorf(v.at, "a unix socket needs sni or match_typed_subject_alt_names")
		}
		return nil
	}
	var any []func(*x509.Certificate) bool
	for i := range all.Len() {
		match, err := m.alternative(message{all.Get(i).Message(), v.field("match_typed_subject_alt_names") + "[" + itoa(i) + "]"})
		if err != nil {
			return err
		}
		any = append(any, match)
	}
	// The chain is verified as usual, and any of the names instead of the host's.
	config.InsecureSkipVerify = true
	roots := config.RootCAs
	config.VerifyConnection = func(s tls.ConnectionState) error {
		leaf, between := s.PeerCertificates[0], x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
			return err
		}
		if !slices.ContainsFunc(any, func(match func(*x509.Certificate) bool) bool { return match(leaf) }) {
			return errors.New("TLS: no name of the server's certificate is one of match_typed_subject_alt_names")
		}
		return nil
	}
	return nil
}

// alternative reads a SubjectAltNameMatcher.
func (m *maker) alternative(a message) (func(*x509.Certificate) bool, error) {
	match, err := m.text(message{sub(a, "matcher"), a.field("matcher")})
	if err != nil {
		return nil, err
	}
	var names func(*x509.Certificate) []string
	switch is := enum(a, "san_type"); is {
	case "DNS":
		names = func(c *x509.Certificate) []string { return c.DNSNames }
	case "URI":
		names = func(c *x509.Certificate) (all []string) {
			for _, u := range c.URIs {
				all = append(all, u.String())
			}
			return all
		}
	case "EMAIL":
		names = func(c *x509.Certificate) []string { return c.EmailAddresses }
	case "IP_ADDRESS":
		names = func(c *x509.Certificate) (all []string) {
			for _, ip := range c.IPAddresses {
				all = append(all, net.IP.String(ip))
			}
			return all
		}
	default:
		return nil, m.errorf(a.field("san_type"), "%s is not supported: DNS, URI, EMAIL and IP_ADDRESS are", is)
	}
	dns := enum(a, "san_type") == "DNS"
	exact := str(sub(a, "matcher"), "exact")
	return func(c *x509.Certificate) bool {
		return slices.ContainsFunc(names(c), match) || dns && exact != "" && c.VerifyHostname(exact) == nil // a wildcard in the certificate
	}, nil
}

// text reads a StringMatcher.
func (m *maker) text(s message) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if s.Get(s.Descriptor().Fields().ByName("ignore_case")).Bool() {
		fold = strings.ToLower
	}
	is := which(s, "match_pattern")
	want := ""
	if is != "safe_regex" && is != "custom" && is != "" {
		if want = fold(str(s, string(is))); want == "" {
			return nil, m.errorf(s.field(string(is)), "is empty")
		}
	}
	switch is {
	case "exact":
		return func(s string) bool { return fold(s) == want }, nil
	case "prefix":
		return func(s string) bool { return strings.HasPrefix(fold(s), want) }, nil
	case "suffix":
		return func(s string) bool { return strings.HasSuffix(fold(s), want) }, nil
	case "contains":
		return func(s string) bool { return strings.Contains(fold(s), want) }, nil
	case "safe_regex":
		re, err := regexp.Compile(`\A(?:` + str(sub(s, "safe_regex"), "regex") + `)\z`)
		if err != nil {
			return nil, m.errorf(s.field("safe_regex.regex"), "%w", err)
		}
		return re.MatchString, nil
	}
	return nil, m.errorf(s.at, "%q is not supported", is)
}

// set yields the names of the fields that are set.
func set(m protoreflect.Message) func(yield func(protoreflect.Name) bool) {
	return func(yield func(protoreflect.Name) bool) {
		m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool { return yield(fd.Name()) })
	}
}

// roots sets the certificates that a DataSource has; nothing if it is not set.
func (m *maker) roots(in message, name string, config *tls.Config) error {
	b, err := m.bytes(in, name)
	if err != nil || b == nil {
		return err
	}
	if config.RootCAs, err = certs.Pool(b); err != nil {
		return m.errorf(in.field(name), "%w", err)
	}
	return nil
}

// pair adds a certificate and its private key; nothing if neither is set.
func (m *maker) pair(in message, chain, key string, config *tls.Config) error {
	c, err := m.bytes(in, chain)
	if err != nil {
		return err
	}
	k, err := m.bytes(in, key)
	if err != nil {
		return err
	}
	if c == nil && k == nil {
		return nil
	}
	if c == nil || k == nil {
		return m.errorf(in.at, "%s and %s must be given together", chain, key)
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return m.errorf(in.at, "%w", err)
	}
	config.Certificates = append(config.Certificates, pair)
	return nil
}

// bytes reads a DataSource; nil if it is not set.
func (m *maker) bytes(in message, name string) ([]byte, error) {
	s := message{sub(in, name), in.field(name)}
	if !s.IsValid() {
		return nil, nil
	}
	switch is := which(s, "specifier"); is {
	case "filename":
		b, err := os.ReadFile(str(s, "filename"))
		if err != nil {
			return nil, m.errorf(s.field("filename"), "%w", err)
		}
		return b, nil
	case "inline_string":
		return []byte(str(s, "inline_string")), nil
	case "inline_bytes":
		return s.Get(s.Descriptor().Fields().ByName("inline_bytes")).Bytes(), nil
	case "environment_variable":
		v, ok := os.LookupEnv(str(s, "environment_variable"))
		if !ok {
			return nil, m.errorf(s.field("environment_variable"), "the variable is not set")
		}
		return []byte(v), nil
	default:
		return nil, m.errorf(s.at, "%s", fmt.Sprintf("%q is no source of data", is))
	}
}
