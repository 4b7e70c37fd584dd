package secret

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Soon is how long before its end a certificate is worth a warning.
const Soon = 30 * 24 * time.Hour

// A Certificate is a chain of certificates that a TlsCertificate has in it.
type Certificate struct {
	Path string    // of the TlsCertificate; "" for the message itself
	Ends time.Time // when the first of the chain to end does; zero if none can be read

	// Err says why no client can use it: there is no certificate, the key is none, or
	// it is another's. It quotes nothing.
	Err error
}

// certificate looks at a TlsCertificate; nil if it has no certificate in it. What a
// file has that it names is on the client's machine: nobody here can know.
func certificate(m protoreflect.Message) *Certificate {
	return judge(data(m, "certificate_chain"), data(m, "private_key"))
}

// judge looks at a chain and its key, of which nil is in another place.
func judge(chain, key []byte) *Certificate {
	if chain == nil {
		return nil
	}
	c := &Certificate{}
	var leaf *x509.Certificate
	for rest := chain; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil { // what one reader refuses another may take
			if leaf == nil {
				return c
			}
			continue
		}
		if leaf == nil {
			leaf = one
		}
		if c.Ends.IsZero() || one.NotAfter.Before(c.Ends) {
			c.Ends = one.NotAfter
		}
	}
	if leaf == nil {
		c.Err = errors.New("certificate_chain has no certificate in PEM")
		return c
	}
	if len(key) > 0 && !holdsKey(key) {
		c.Err = errors.New("private_key has no private key in PEM")
		return c
	}
	if own := privateKey(key); own != nil {
		public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if ok && !public.Equal(own.Public()) {
			c.Err = errors.New("private_key is not the key of the certificate")
		}
	}
	return c
}

// holdsKey reports whether PEM says that it has a private key, in whatever form: "RSA
// PRIVATE KEY", "ENCRYPTED PRIVATE KEY" and others.
func holdsKey(text []byte) bool {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return true
		}
	}
}

// privateKey returns the first private key in PEM, nil if there is none that can be
// read, such as one with a password.
func privateKey(text []byte) crypto.Signer {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil
		}
		var key any
		if k, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			key = k
		} else if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			key = k
		} else if k, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			key = k
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer
		}
	}
}

// data returns what a DataSource in a field has in it, nil if it names another place.
func data(m protoreflect.Message, field protoreflect.Name) []byte {
	fd := m.Descriptor().Fields().ByName(field)
	if !m.Has(fd) {
		return nil
	}
	source := m.Get(fd).Message()
	fields := source.Descriptor().Fields()
	switch set := source.WhichOneof(source.Descriptor().Oneofs().ByName("specifier")); {
	case set == nil:
		return nil
	case set == fields.ByName("inline_string"):
		return []byte(source.Get(set).String())
	case set == fields.ByName("inline_bytes"):
		return source.Get(set).Bytes()
	}
	return nil
}
