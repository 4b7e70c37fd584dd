// Package tlstest makes certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// An Authority issues certificates.
type Authority struct {
	Cert *x509.Certificate
	PEM  []byte // of Cert

	t   testing.TB
	key *ecdsa.PrivateKey
}

// A Pair is a certificate and its private key, in PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority returns a new self-signed authority.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{t: t, key: newKey(t), Cert: template}
	der := a.sign(template, &a.key.PublicKey)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.Cert, a.PEM = cert, block("CERTIFICATE", der)
	return a
}

// Issue returns a certificate for servers and clients, with a common name and the given hosts: names,
// IP addresses or URIs.
func (a *Authority) Issue(name string, hosts ...string) Pair {
	a.t.Helper()
	return a.IssueUntil(time.Now().AddDate(0, 0, 90), name, hosts...)
}

// IssueUntil returns a certificate that expires at end.
func (a *Authority) IssueUntil(end time.Time, name string, hosts ...string) Pair {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if u, err := url.Parse(h); err == nil && u.Scheme != "" {
			template.URIs = append(template.URIs, u)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(a.t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return Pair{Cert: block("CERTIFICATE", a.sign(template, &key.PublicKey)), Key: block("PRIVATE KEY", der)}
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
