package secrets

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Soon is the time before a certificate's end at which Chancery begins to warn.
const Soon = 30 * 24 * time.Hour

// A Certificate describes PEM data in a message: a chain of certificates and its key, one of these, or
// certificate authorities.
type Certificate struct {
	Path string    // path of the message; "" for the message itself
	Ends time.Time // the first end in the chain; zero if no certificate can be read

	// Err is the reason why no client can use it: the certificate or the key is missing, or they do not
	// match. It quotes nothing.
	Err error
}

// certificate checks a TlsCertificate; nil if it has no inline data. Files are on the client's machine,
// so they cannot be checked here.
func certificate(m protoreflect.Message) *Certificate {
	return checkPair(data(m, "certificate_chain"), data(m, "private_key"))
}

// authorities checks a CertificateValidationContext.
func authorities(m protoreflect.Message) *Certificate { return checkCA(data(m, "trusted_ca")) }

// checkPair checks a chain and its key. Nil means that the data is not inline.
func checkPair(chain, key []byte) *Certificate {
	c := &Certificate{}
	leaf := c.read(chain)
	if len(key) > 0 && !hasBlock(key, "PRIVATE KEY") && c.Err == nil {
		c.Err = errors.New("private_key has no private key in PEM")
	}
	if leaf == nil {
		if chain == nil && c.Err == nil {
			return nil
		}
		return c
	}
	if own := privateKey(key); own != nil && c.Err == nil {
		public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if ok && !public.Equal(own.Public()) {
			c.Err = errors.New("private_key is not the key of the certificate")
		}
	}
	return c
}

// checkCA checks certificate authorities; nil if they are fine.
func checkCA(ca []byte) *Certificate {
	if len(ca) == 0 || hasBlock(ca, "CERTIFICATE") {
		return nil
	}
	return &Certificate{Err: errors.New("trusted_ca has no certificate in PEM")}
}

// read sets the end of a chain and returns its first certificate; nil if that cannot be read.
func (c *Certificate) read(chain []byte) (leaf *x509.Certificate) {
	if chain == nil {
		return nil
	}
	if !hasBlock(chain, "CERTIFICATE") {
		c.Err = errors.New("certificate_chain has no certificate in PEM")
		return nil
	}
	for rest := chain; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return leaf
		}
		if !strings.HasSuffix(block.Type, "CERTIFICATE") {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil { // other readers may accept it
			if leaf == nil {
				return nil
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
}

// hasBlock reports whether PEM text has a block of a kind, in any form: "RSA PRIVATE KEY", "ENCRYPTED
// PRIVATE KEY", "TRUSTED CERTIFICATE" and others.
func hasBlock(text []byte, kind string) bool {
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, kind) {
			return true
		}
	}
}

// privateKey returns the first private key in PEM text; nil if none can be read, for example because it
// needs a password.
func privateKey(text []byte) crypto.Signer {
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
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

// data returns the inline data of a DataSource field; nil if the data is somewhere else.
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
