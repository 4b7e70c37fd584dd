package certs

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

const host = "xds.example"

type authority struct {
	*tlstest.Authority
	t *testing.T
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	return authority{tlstest.NewAuthority(t, name), t}
}

func (a authority) issue(name string) tlstest.Pair { return a.Issue(name, host) }

// client returns a configuration that trusts the authority, with the given certificates.
func (a authority) client(show ...tlstest.Pair) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	c := &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{"h2"}}
	for _, p := range show {
		cert, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			a.t.Fatal(err)
		}
		// Send the certificate even to a server that requests another authority.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return c
}

// write replaces a file in one step, as a program should.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// filesIn writes a pair and, if given, a CA for clients into a directory.
func filesIn(t *testing.T, dir string, p tlstest.Pair, clientCA []byte) Files {
	t.Helper()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	write(t, f.Cert, p.Cert)
	write(t, f.Key, p.Key)
	if clientCA != nil {
		f.ClientCA = filepath.Join(dir, "ca.crt")
		write(t, f.ClientCA, clientCA)
	}
	return f
}
