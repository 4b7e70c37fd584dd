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

// Soon is how long before its end a certificate is worth a warning.
const Soon = 30 * 24 * time.Hour

// A Certificate is what a message has in PEM: a chain of certificates and its key, one of
// them, or authorities.
type Certificate struct {
	Path string    // of the message; "" for the message itself
	Ends time.Time // when the first of the chain to end does; zero if none can be read

	// Err says why no client can use it: there is no certificate, the key is none, or
	// it is another's. It quotes nothing.
	Err error
}

// certificate looks at a TlsCertificate; nil if nothing can be said of what it has in it.
// What a file has that it names is on the client's machine: nobody here can know.
func certificate(m protoreflect.Message) *Certificate {
	return judge(data(m, "certificate_chain"), data(m, "private_key"))
}

// authorities looks at a CertificateValidationContext.
func authorities(m protoreflect.Message) *Certificate { return judgeCA(data(m, "trusted_ca")) }

// judge looks at a chain and its key, of which nil is in another place.
func judge(chain, key []byte) *Certificate {
	c := &Certificate{}
	leaf := c.read(chain)
	if len(key) > 0 && !holds(key, "PRIVATE KEY") && c.Err == nil {
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

// judgeCA looks at authorities; nil if there is nothing to say.
func judgeCA(ca []byte) *Certificate {
	if len(ca) == 0 || holds(ca, "CERTIFICATE") {
		return nil
	}
	return &Certificate{Err: errors.New("trusted_ca has no certificate in PEM")}
}

// read notes when a chain ends, and returns the first of it; nil if it cannot be read.
func (c *Certificate) read(chain []byte) (leaf *x509.Certificate) {
	if chain == nil {
		return nil
	}
	if !holds(chain, "CERTIFICATE") {
		c.Err = errors.New("certificate_chain has no certificate in PEM")
		return nil
	}
	for rest := chain; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return leaf
		}
		if !strings.HasSuffix(block.Type, "CERTIFICATE") {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil { // what one reader refuses another may take
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

// holds reports whether PEM says that it has something of a kind, in whatever form: "RSA
// PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "TRUSTED CERTIFICATE" and others.
func holds(text []byte, kind string) bool {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, kind) {
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
