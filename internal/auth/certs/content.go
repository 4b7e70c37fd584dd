package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"

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

// config makes a server's TLS configuration. skipped are the unusable certificates of the CA file.
func (c content) config() (t *tls.Config, skipped []string, err error) {
	pair, err := tls.X509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, nil, fmt.Errorf("TLS: certificate %s, key %s: %w", c.files.Cert, c.files.Key, err)
	}
	t = &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2"},
		// Streams last long, so session tickets save little. A ticket could also outlive the CA that
		// verified the client.
		SessionTicketsDisabled: true,
	}
	if c.files.ClientCA != "" {
		t.ClientCAs, skipped, err = Pool(c.ca)
		if err != nil {
			return nil, nil, fmt.Errorf("TLS: %s: %w", c.files.ClientCA, err)
		}
		t.ClientAuth = tls.RequireAndVerifyClientCert
		if c.files.Optional {
			t.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	return t, skipped, nil
}

// Pool returns the certificates of a PEM file. A member that is unusable does not spoil the others: skipped has its
// place and the reason, for a warning. A file without a usable certificate is an error.
func Pool(b []byte) (p *x509.CertPool, skipped []string, err error) {
	p = x509.NewCertPool()
	usable, n := 0, 0
	for line := 1; len(b) > 0; {
		var member []byte
		member, b = cutMember(b)
		at := line
		line += bytes.Count(member, []byte("\n"))
		if !bytes.HasPrefix(member, begin) {
			continue
		}
		n++
		cert, err := parse(member)
		if err != nil {
			skipped = append(skipped, fmt.Sprintf("certificate %d (line %d): %v", n, at, err))
			continue
		}
		usable++
		p.AddCert(cert)
	}
	switch {
	case usable > 0:
		return p, skipped, nil
	case n > 0:
		return nil, nil, errors.New(skipped[0])
	}
	return nil, nil, errors.New("contains no certificate")
}

// begin begins a member of a PEM file, at the start of a line.
var begin = []byte("-----BEGIN ")

// cutMember splits PEM text before its second member, or before its first if it begins with other text.
func cutMember(b []byte) (member, rest []byte) {
	i := bytes.Index(b, slices.Concat([]byte("\n"), begin))
	if i < 0 {
		return b, nil
	}
	return b[:i+1], b[i+1:]
}

// parse parses one member of a PEM file.
func parse(member []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(member)
	switch {
	case block == nil:
		return nil, errors.New("malformed PEM")
	case block.Type != "CERTIFICATE":
		return nil, fmt.Errorf("is a %s, but only certificates are allowed", block.Type)
	}
	return x509.ParseCertificate(block.Bytes)
}

// warnSkipped logs certificates of a CA file that are not used.
func warnSkipped(log *slog.Logger, file string, skipped []string) {
	for _, why := range skipped {
		log.Warn("a certificate of a CA file is not used", "file", file, "reason", why)
	}
}
