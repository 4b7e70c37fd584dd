package secrets

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	authv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/auth"
	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
)

var ends = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

// A pair is a certificate and its key, in PEM.
type pair struct{ cert, pkcs8, own string }

func issue(t *testing.T, ends time.Time, key any) pair {
	t.Helper()
	var public any
	var own *pem.Block
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		der, err := x509.MarshalECPrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		public, own = &k.PublicKey, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
	case *rsa.PrivateKey:
		public, own = &k.PublicKey, &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}
	case ed25519.PrivateKey:
		public = k.Public()
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.Add(-time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	p := pair{cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	if der, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		t.Fatal(err)
	}
	p.pkcs8 = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if p.own = p.pkcs8; own != nil {
		p.own = string(pem.EncodeToMemory(own))
	}
	return p
}

func newPair(t *testing.T, ends time.Time) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return issue(t, ends, key)
}

func text(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

func TestCertificates(t *testing.T) {
	one, two := newPair(t, ends), newPair(t, ends.Add(-24*time.Hour))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, ed := issue(t, ends, rsaKey), issue(t, ends, edKey)
	secret := func(c *tlsv3.TlsCertificate) proto.Message {
		return &tlsv3.Secret{Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: c}}
	}
	with := func(cert, key string) proto.Message {
		return secret(&tlsv3.TlsCertificate{CertificateChain: text(cert), PrivateKey: text(key)})
	}
	file := &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "/etc/hosts"}}
	ca := func(d *corev3.DataSource) proto.Message {
		return &tlsv3.Secret{Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: d}}}
	}
	context := &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{
		{CertificateChain: text(one.cert)}, {CertificateChain: text(two.cert), PrivateKey: text(one.own)}}}}
	for _, tt := range []struct {
		name string
		m    proto.Message
		want string // path, end and error
	}{
		{"the matching key", with(one.cert, one.own), "tls_certificate 2031-05-06"},
		{"PKCS #8", with(one.cert, one.pkcs8), "tls_certificate 2031-05-06"},
		{"RSA", with(rs.cert, rs.own), "tls_certificate 2031-05-06"},
		{"Ed25519", with(ed.cert, ed.own), "tls_certificate 2031-05-06"},
		{"the key of another certificate", with(one.cert, two.own), "tls_certificate 2031-05-06 private_key is not the key of the certificate"},
		{"a key of another kind", with(one.cert, rs.own), "tls_certificate 2031-05-06 private_key is not the key of the certificate"},
		{"the first end of a chain", with(one.cert+two.cert, one.own), "tls_certificate 2031-05-05"},
		{"the key matches the first certificate", with(two.cert+one.cert, one.own), "tls_certificate 2031-05-05 private_key is not the key of the certificate"},
		{"no certificate", with(one.own, one.own), "tls_certificate 0001-01-01 certificate_chain has no certificate in PEM"},
		{"an unreadable certificate", with("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", one.own), "tls_certificate 0001-01-01"},
		{"an unreadable first certificate", with("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"+two.cert, one.own), "tls_certificate 0001-01-01"},
		{"an unreadable key", with(one.cert, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), "tls_certificate 2031-05-06"},
		{"a key whose first line has a typo", with(one.cert, strings.Replace(one.own, "KEY", "KY", 1)), "tls_certificate 2031-05-06 private_key has no private key in PEM"},
		{"a certificate in place of the key", with(one.cert, one.cert), "tls_certificate 2031-05-06 private_key has no private key in PEM"},
		{"an empty key", with(one.cert, ""), "tls_certificate 2031-05-06"},
		{"SAFE-11 an invalid key alone", secret(&tlsv3.TlsCertificate{CertificateChain: file, PrivateKey: text("junk")}), "tls_certificate 0001-01-01 private_key has no private key in PEM"},
		{"a key alone", secret(&tlsv3.TlsCertificate{CertificateChain: file, PrivateKey: text(one.own)}), ""},
		{"SAFE-11 an invalid chain", secret(&tlsv3.TlsCertificate{CertificateChain: text("junk"), PrivateKey: file}), "tls_certificate 0001-01-01 certificate_chain has no certificate in PEM"},
		{"a chain alone", secret(&tlsv3.TlsCertificate{CertificateChain: text(one.cert), PrivateKey: file}), "tls_certificate 2031-05-06"},
		{"an old PEM type", secret(&tlsv3.TlsCertificate{CertificateChain: text(strings.ReplaceAll(one.cert, "CERTIFICATE", "X509 CERTIFICATE")), PrivateKey: text(one.own)}), "tls_certificate 2031-05-06"},
		{"SAFE-11 invalid authorities", ca(text(one.own)), "validation_context 0001-01-01 trusted_ca has no certificate in PEM"},
		{"authorities", ca(text(one.own + two.cert)), ""},
		{"authorities in a file", ca(file), ""},
		{"no authorities", ca(text("")), ""},
		{"SAFE-11 authorities of v2", &authv2.Secret{Type: &authv2.Secret_ValidationContext{ValidationContext: &authv2.CertificateValidationContext{
			TrustedCa: &corev2.DataSource{Specifier: &corev2.DataSource_InlineBytes{InlineBytes: []byte("junk")}}}}}, "validation_context 0001-01-01 trusted_ca has no certificate in PEM"},
		{"SAFE-11 authorities in a TypedStruct", &xdsv3.TypedStruct{TypeUrl: "x/envoy.extensions.transport_sockets.tls.v3.CommonTlsContext", Value: asStruct(t, map[string]any{
			"combinedValidationContext": map[string]any{"default_validation_context": map[string]any{"trusted_ca": map[string]any{"inline_string": "junk"}}}})},
			"value.combined_validation_context.default_validation_context 0001-01-01 trusted_ca has no certificate in PEM"},
		{"as bytes", secret(&tlsv3.TlsCertificate{CertificateChain: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(one.cert)}}}), "tls_certificate 2031-05-06"},
		{"in a file on the client", secret(&tlsv3.TlsCertificate{CertificateChain: file}), ""},
		{"in a listener", &corev3.TransportSocket{ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t, context)}},
			"typed_config.common_tls_context.tls_certificates[0] 2031-05-06, typed_config.common_tls_context.tls_certificates[1] 2031-05-05 private_key is not the key of the certificate"},
		{"of v2", &authv2.Secret{Type: &authv2.Secret_TlsCertificate{TlsCertificate: &authv2.TlsCertificate{
			CertificateChain: &corev2.DataSource{Specifier: &corev2.DataSource_InlineString{InlineString: one.cert}},
			PrivateKey:       &corev2.DataSource{Specifier: &corev2.DataSource_InlineString{InlineString: two.own}}}}},
			"tls_certificate 2031-05-06 private_key is not the key of the certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range known.Find(tt.m).Certificates {
				s := c.Path + " " + c.Ends.UTC().Format(time.DateOnly)
				if c.Err != nil {
					s += " " + c.Err.Error()
				}
				got = append(got, s)
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("%s, want %s", s, tt.want)
			}
		})
	}
}

// A chain may contain the key too, before the certificates.
func TestKeyInChain(t *testing.T) {
	p := newPair(t, ends)
	chain := &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: p.pkcs8 + p.cert}}
	found := known.Find(&tlsv3.TlsCertificate{CertificateChain: chain}).Certificates
	if len(found) != 1 || found[0].Err != nil || !found[0].Ends.Equal(ends) {
		t.Errorf("%+v", found)
	}
}
