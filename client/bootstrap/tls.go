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
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/envoy"
)

const upstreamTLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"

func protoName(s string) protoreflect.Name { return protoreflect.Name(s) }

// socket reads a transport_socket: TLS or plain text.
func (m *maker) socket(s located, addresses []hostPort) (*tls.Config, error) {
	packed := sub(s, "typed_config")
	at := s.field("typed_config")
	name := str(packed, "type_url")
	switch name = name[strings.LastIndexByte(name, '/')+1:]; name {
	case "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer":
		return nil, nil
	case upstreamTLS:
	default:
		return nil, m.errorf(at, "%q is not supported: use %s", name, upstreamTLS)
	}
	t := located{envoy.Envoy().New(upstreamTLS), at}
	value := packed.Get(packed.Descriptor().Fields().ByName("value")).Bytes()
	if err := (proto.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal(value, t.Interface()); err != nil {
		return nil, m.errorf(at, "%w", err)
	}
	return m.upstream(t, addresses)
}

// upstream reads an UpstreamTlsContext.
func (m *maker) upstream(t located, addresses []hostPort) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: str(t, "sni")}
	common := located{sub(t, "common_tls_context"), t.field("common_tls_context")}
	for f := range fieldsSet(common) {
		switch f {
		case "tls_certificates", "validation_context", "alpn_protocols":
		case "tls_params", "key_log": // these fields do not affect trust
		default:
			return nil, m.errorf(common.field(string(f)), "is not supported: use file names or PEM text in tls_certificates and validation_context")
		}
	}
	certs := common.Get(common.Descriptor().Fields().ByName("tls_certificates")).List()
	for i := range certs.Len() {
		c := located{certs.Get(i).Message(), common.field("tls_certificates") + "[" + itoa(i) + "]"}
		if err := m.pair(c, "certificate_chain", "private_key", config); err != nil {
			return nil, err
		}
	}
	validation := located{sub(common, "validation_context"), common.field("validation_context")}
	if !validation.IsValid() {
		return nil, m.errorf(validation.path, "is missing: without it, any server would be trusted")
	}
	return config, m.validation(validation, addresses, config)
}

// validation reads which servers the client trusts. An unsupported field is an error, because it could
// restrict trust.
func (m *maker) validation(v located, addresses []hostPort, config *tls.Config) error {
	for f := range fieldsSet(v) {
		switch f {
		case "trusted_ca", "system_root_certs", "match_typed_subject_alt_names":
		case "watched_directory", "max_verify_depth": // files are read once; Envoy without watched_directory does the same
		default:
			return m.errorf(v.field(string(f)), "is not supported")
		}
	}
	if err := m.roots(v, "trusted_ca", config); err != nil {
		return err
	}
	if config.RootCAs == nil && !sub(v, "system_root_certs").IsValid() {
		return m.errorf(v.path, "trusted_ca and system_root_certs are missing: without them, any server would be trusted")
	}
	all := v.Get(v.Descriptor().Fields().ByName("match_typed_subject_alt_names")).List()
	if all.Len() == 0 {
		// Envoy then accepts any name in the certificate. This client requires the host's name.
		if config.ServerName == "" && len(addresses) > 0 && addresses[0].path != "" {
			return m.errorf(v.path, "a unix socket needs sni or match_typed_subject_alt_names")
		}
		return nil
	}
	var any []func(*x509.Certificate) bool
	for i := range all.Len() {
		match, err := m.subjectAltName(located{all.Get(i).Message(), v.field("match_typed_subject_alt_names") + "[" + itoa(i) + "]"})
		if err != nil {
			return err
		}
		any = append(any, match)
	}
	// Verify the chain as usual, and one of the given names instead of the host's name.
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
			return errors.New("TLS: no name of the server's certificate matches match_typed_subject_alt_names")
		}
		return nil
	}
	return nil
}

// subjectAltName reads a SubjectAltNameMatcher.
func (m *maker) subjectAltName(a located) (func(*x509.Certificate) bool, error) {
	match, err := m.stringMatcher(located{sub(a, "matcher"), a.field("matcher")})
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
		return nil, m.errorf(a.field("san_type"), "%s is not supported: use DNS, URI, EMAIL or IP_ADDRESS", is)
	}
	dns := enum(a, "san_type") == "DNS"
	exact := str(sub(a, "matcher"), "exact")
	return func(c *x509.Certificate) bool {
		return slices.ContainsFunc(names(c), match) || dns && exact != "" && c.VerifyHostname(exact) == nil // the certificate may have a wildcard
	}, nil
}

// stringMatcher reads a StringMatcher.
func (m *maker) stringMatcher(s located) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if s.Get(s.Descriptor().Fields().ByName("ignore_case")).Bool() {
		fold = strings.ToLower
	}
	is := which(s, "match_pattern")
	want := ""
	if is != "safe_regex" && is != "custom" && is != "" {
		want = fold(str(s, string(is)))
		if want == "" {
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
	return nil, m.errorf(s.path, "%q is not supported", is)
}

// fieldsSet yields the names of the fields that are set.
func fieldsSet(m protoreflect.Message) func(yield func(protoreflect.Name) bool) {
	return func(yield func(protoreflect.Name) bool) {
		m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool { return yield(fd.Name()) })
	}
}

// roots sets the trusted certificates from a DataSource, if it is set.
func (m *maker) roots(in located, name string, config *tls.Config) error {
	b, err := m.bytes(in, name)
	if err != nil || b == nil {
		return err
	}
	var skipped []string
	config.RootCAs, skipped, err = certs.Pool(b)
	if err != nil {
		return m.errorf(in.field(name), "%w", err)
	}
	if m.Log != nil {
		for _, why := range skipped {
			m.Log.Warn("a certificate of a CA file is not used", "field", in.field(name), "reason", why)
		}
	}
	return nil
}

// pair adds a certificate with its private key, if they are set.
func (m *maker) pair(in located, chain, key string, config *tls.Config) error {
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
		return m.errorf(in.path, "%s and %s must be given together", chain, key)
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return m.errorf(in.path, "%w", err)
	}
	config.Certificates = append(config.Certificates, pair)
	return nil
}

// bytes reads a DataSource; nil: not set.
func (m *maker) bytes(in located, name string) ([]byte, error) {
	s := located{sub(in, name), in.field(name)}
	if !s.IsValid() {
		return nil, nil
	}
	switch is := which(s, "specifier"); is {
	case "filename":
		b, err := disk.ReadSecret(str(s, "filename"))
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
		return nil, m.errorf(s.path, "%s", fmt.Sprintf("%q is not a supported data source", is))
	}
}
