package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/chancery-xds/chancery/internal/disk"
)

// content is the content of the files.
type content struct {
	files         Files
	cert, key, ca []byte
}

// A sum is a hash of the content.
type sum = [sha256.Size]byte

// read returns the content of the files, and its sum.
func read(f Files) (content, sum, error) {
	c, h := content{files: f}, sha256.New()
	into := []*[]byte{&c.cert, &c.key, &c.ca}
	for i, path := range f.paths() {
		b, err := disk.ReadSecret(path)
		if err != nil {
			return c, sum{}, fmt.Errorf("TLS: %w", err)
		}
		one := sha256.Sum256(b)
		h.Write(one[:])
		*into[i] = b
	}
	return c, sum(h.Sum(nil)), nil
}

// config makes a server's TLS configuration.
func (c content) config() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("TLS: certificate %s, key %s: %w", c.files.Cert, c.files.Key, err)
	}
	t := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2"},
		// Streams last long, so session tickets save little. A ticket could also outlive the CA that
		// verified the client.
		SessionTicketsDisabled: true,
	}
	if c.files.ClientCA != "" {
		t.ClientCAs, err = Pool(c.ca)
		if err != nil {
			return nil, fmt.Errorf("TLS: %s: %w", c.files.ClientCA, err)
		}
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return t, nil
}

// Pool returns the certificates of a PEM file. All of them must be valid: if Pool left out an invalid
// certificate, only the clients that need it would notice.
func Pool(b []byte) (*x509.CertPool, error) {
	p, n := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		block, b = pem.Decode(b)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("contains a %s, but only certificates are allowed", block.Type)
		}
		n++
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n, err)
		}
		p.AddCert(cert)
	}
	if n == 0 {
		return nil, errors.New("contains no certificate")
	}
	return p, nil
}
